"""What a model takes and gives, as the Open Inference Protocol describes it."""

from collections.abc import Iterator, Sequence
from typing import Any

from partwise.models.signature import Feature, Signature
from partwise.serving.columns import source_of
from partwise.serving.served import Served
from partwise.serving.served_model import ServedModel
from partwise.tables.keys.key_classes import KeyClass

_OF_KEYS = {KeyClass.INTEGER: "INT64", KeyClass.FLOAT: "FP64", KeyClass.BOOLEAN: "BOOL"}
"""All other keys are text, since JSON has no such values."""


def describe_model(
    name: str, versions: Sequence[int], served: Served, model: ServedModel | None
) -> dict[str, Any]:
    """Return the metadata of a version.

    Args:
        name: The model's name in URLs.
        versions: All that are served.
        served: The one that is described.
        model: That of the key that was asked for. None: there was none, and the inputs are the key
            columns alone, since each key may have features of its own.
    """
    if model is None:
        inputs = [
            _tensor(column.name, _OF_KEYS.get(column.key_class, "BYTES"))
            for column in served.key_columns
        ]
    elif model.signature is not None:
        inputs = list(_inputs(model.signature))
    else:
        # As it was trained it does not say which of them are text.
        names = dict.fromkeys(map(source_of, model.column_names or ()))
        inputs = [_tensor(each, "FP64") for each in names]
    is_export = model is not None and model.signature is not None
    return {
        "name": name,
        "versions": [str(version) for version in versions],
        "platform": "partwise_onnx" if is_export else "partwise",
        "inputs": inputs,
        "outputs": [
            _tensor("prediction", "FP64"),
            _tensor("level", "INT32"),
            _tensor("status", "BYTES"),
        ],
    }


def _inputs(signature: Signature) -> Iterator[dict[str, Any]]:
    described: dict[str, str] = {}
    for feature in signature.features:
        described.setdefault(source_of(feature.name), _datatype(feature))
    for name, datatype in described.items():
        yield _tensor(name, datatype)


def _datatype(feature: Feature) -> str:
    """Return the datatype of a feature: of dates and times, as of categories of text, BYTES."""
    if source_of(feature.name) != feature.name:
        return "BYTES"
    kinds = {type(category) for category in feature.categories or ()}
    return "BYTES" if str in kinds else "INT64" if kinds == {int} else "FP64"


def _tensor(name: str, datatype: str) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [-1]}
