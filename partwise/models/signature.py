"""What an exported model takes and gives, as its metadata says; and rows as what it takes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from partwise.errors import InputError, IntegrityError
from partwise.models.export_options import ExportOptions
from partwise.renamed import with_new_names
from partwise.tables.column_names import names_in_words
from partwise.tables.features import feature_matrix, find_columns

Feeds = Mapping[str, np.ndarray]
"""The inputs of a model by name, in the signature's order; text as arrays of `object`."""

Outputs = dict[str, np.ndarray]
"""The outputs of a model by name, in the signature's order."""

MATRIX = "features"
"""The name of the one input tensor."""

METADATA_KEY = "partwise.signature"
"""Under which an ONNX file's metadata, or a TorchScript's or .pt2's extra files, hold it."""

SIGNATURE_FILE = "signature.json"
_UNSEEN = "\ufffd unseen"


class Tensor(BaseModel):
    """An input or an output."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: str
    """As numpy names it: "float32", "float64", "int64", "bool"; "string" for text."""
    shape: tuple[int | None, ...]
    """None: any size. The first is that of the batch."""


class Feature(BaseModel):
    """A column of the data as a feature."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The column's name."""
    categories: tuple[str, ...] | tuple[int, ...] | tuple[float, ...] | None = None
    """Of a categorical feature: a category's code is its place. None: a number."""


class Origin(BaseModel):
    """The trained model that an export was made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    training_run_id: str
    partition_id: str
    model_file: str
    """The name of the model's artifact."""
    model_serde: str
    """The serde that wrote it."""
    model_sha256: str


def type_name(model: Any) -> str:
    """Return the type of a model with its module, such as "lightgbm.basic.Booster"."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


class Signature(BaseModel):
    """What an exported model takes and gives, and where it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    layout: Literal["tensor", "columns", "custom"]
    """One matrix of all features, an input for each column, or what the user's function makes."""
    features: tuple[Feature, ...] = ()
    """In the model's order. None: the user's function makes the inputs."""
    prediction: str
    """The output that holds what the model's own `predict` gives."""
    prediction_column: int | None = None
    """Its column, where it is one of several: the probability of class 1."""
    class_labels: tuple[int, ...] | tuple[str, ...] | None = None
    """What the columns of probabilities stand for."""
    model_type: str
    """The model's type, such as "lightgbm.basic.Booster"."""
    origin: Origin | None = None
    """None: it was exported outside any run."""
    options: ExportOptions | None = None
    """How it was exported; None as for `origin`."""

    @field_validator("options", mode="before")
    @classmethod
    def _of_earlier_versions(cls, options: Any) -> Any:
        return with_new_names("ExportOptions", options) if isinstance(options, dict) else options

    def to_json(self) -> str:
        """Return the signature as JSON."""
        return self.model_dump_json()

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Return the signature that stands in a file's metadata.

        Raises:
            IntegrityError: There is none, or none that this release knows.
        """
        text = metadata.get(METADATA_KEY)
        if not text:
            raise IntegrityError(
                f"The model has no {METADATA_KEY!r} in its metadata: export_models did not write "
                "it."
            )
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            seen = f" {first['input']!r:.40}" if place == "format_version" else ""
            raise IntegrityError(
                f"The model's {METADATA_KEY!r} has a form that this release does not know: "
                f"{place}{seen}: {first['msg']}. Install a newer partwise, or "
                "export the model again."
            ) from error

    def column_names(self) -> list[str]:
        """Return the columns that rows need."""
        return [feature.name for feature in self.features]

    def check_sizes(self, feeds: Feeds) -> None:
        """Refuse inputs whose sizes are others than those that are fixed; no rows always fit."""
        for tensor in self.inputs:
            shape = np.shape(feeds[tensor.name])
            if shape[:1] == (0,):
                return
            if len(shape) != len(tensor.shape) or any(
                wanted is not None and size != wanted
                for size, wanted in zip(shape, tensor.shape, strict=True)
            ):
                wanted = " x ".join("any" if size is None else str(size) for size in tensor.shape)
                raise InputError(
                    f"The input {tensor.name!r} has the shape {shape}, and this model takes "
                    f"{wanted} only: pad or cut it to that, or export the model again for other "
                    "sizes."
                )

    def outputs_of_no_rows(self) -> Outputs:
        """Return the outputs of an empty batch; sizes that are free are 0."""
        return {
            tensor.name: np.zeros(
                (0, *(size or 0 for size in tensor.shape[1:])),
                object if tensor.dtype == "string" else tensor.dtype,
            )
            for tensor in self.outputs
        }

    def predictions(self, outputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return of a model's outputs what its own `predict` would give."""
        values = outputs[self.prediction]
        return values if self.prediction_column is None else values[:, self.prediction_column]


def features_of(
    names: Sequence[str], categories: Mapping[str, Sequence[Any]]
) -> tuple[Feature, ...]:
    """Return columns as features, of which some are categorical."""
    return tuple(
        Feature(name=name, categories=tuple(categories[name]) if name in categories else None)
        for name in names
    )


def feature_tensors(
    features: Sequence[Feature],
    dtype: Literal["float32", "float64"],
    layout: Literal["tensor", "columns"],
) -> tuple[Tensor, ...]:
    """Return the inputs of a model of numbers: one matrix, or an input (n, 1) for each column.

    In the layout "columns", a categorical feature whose categories are text takes text.
    """
    if layout == "tensor":
        return (Tensor(name=MATRIX, dtype=dtype, shape=(None, len(features))),)
    return tuple(
        Tensor(
            name=feature.name,
            dtype="string" if _has_text_categories(feature) else dtype,
            shape=(None, 1),
        )
        for feature in features
    )


def feeds_of_rows(signature: Signature, rows: pa.Table) -> dict[str, np.ndarray]:
    """Return rows as the inputs of a model.

    Null and NaN are missing; so is a category that the model does not know.

    Raises:
        ColumnError: A column is missing, or its type does not fit.
        InputError: The user's own function made the inputs when the model was exported.
    """
    if signature.layout == "custom":
        raise InputError(
            "The inputs of this export were made by a function of yours: pass predict=, which gets "
            f"the model and runs it on {names_in_words([t.name for t in signature.inputs])}."
        )
    names = find_columns(signature.column_names(), rows.schema)
    categories = {
        feature.name: list(feature.categories)
        for feature in signature.features
        if feature.categories is not None
    }
    return feeds_of_matrix(signature, feature_matrix(rows, names, categories))


def feeds_of_matrix(signature: Signature, matrix: np.ndarray) -> dict[str, np.ndarray]:
    """Return a matrix of features as the inputs of a model.

    Inputs that the user's function makes are one matrix too. It has shape (n, k), categories as
    their codes, NaN for what is missing. Where an input is text, a code that is none of a category
    stands for a text that is none of them.
    """
    if signature.layout != "columns":
        (tensor,) = signature.inputs
        return {tensor.name: np.ascontiguousarray(matrix, dtype=tensor.dtype)}
    feeds: dict[str, np.ndarray] = {}
    for place, (tensor, feature) in enumerate(
        zip(signature.inputs, signature.features, strict=True)
    ):
        values = matrix[:, place]
        if tensor.dtype == "string":
            feeds[tensor.name] = _texts(values, [str(text) for text in feature.categories or ()])
        else:
            feeds[tensor.name] = np.ascontiguousarray(values, dtype=tensor.dtype)[:, None]
    return feeds


def matrix_of_feeds(signature: Signature, feeds: Feeds) -> np.ndarray:
    """Return the inputs of a model as a matrix of features: the inverse of `feeds_of_matrix`."""
    if signature.layout != "columns":
        return feeds[signature.inputs[0].name]
    columns = []
    for tensor, feature in zip(signature.inputs, signature.features, strict=True):
        values = feeds[tensor.name][:, 0]
        if tensor.dtype == "string":
            codes = {str(text): code for code, text in enumerate(feature.categories or ())}
            columns.append(np.array([codes.get(text, np.nan) for text in values], np.float64))
        else:
            columns.append(values)
    return np.column_stack(columns)


def take_rows(feeds: Feeds, count: int) -> dict[str, np.ndarray]:
    """Return so many rows of the inputs, from the start and round again; of none, zeros."""
    return {
        name: values[np.arange(count) % len(values)]
        if len(values)
        else np.zeros((count, *values.shape[1:]), values.dtype)
        for name, values in feeds.items()
    }


def _has_text_categories(feature: Feature) -> bool:
    return bool(feature.categories) and isinstance((feature.categories or ("",))[0], str)


def _texts(codes: np.ndarray, categories: list[str]) -> np.ndarray:
    known = np.array([*categories, _UNSEEN], dtype=object)
    is_code = (codes >= 0) & (codes < len(categories)) & (codes == np.floor(codes))
    places = np.where(is_code, codes, len(categories)).astype(np.int64)
    return known[places][:, None]
