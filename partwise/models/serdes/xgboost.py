"""XGBoost models in XGBoost's own format."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from partwise.errors import SerdeError
from partwise.models.serdes.damage import readable
from partwise.models.serdes.own_attributes import (
    own_attributes,
    plain_settings,
    set_attributes,
)
from partwise.models.serdes.pickle import BY_PICKLE
from partwise.models.serdes.protocol import StreamSerde

_WRAPPER_ATTRIBUTE = "partwise_wrapper"
_OWN_ATTRIBUTE = "partwise_attributes"
_WRAPPERS = ("XGBClassifier", "XGBRegressor", "XGBRanker", "XGBRFClassifier", "XGBRFRegressor")


@dataclass(frozen=True, slots=True)
class XGBoostSerde(StreamSerde):
    """A Booster comes back as a Booster, a scikit-learn wrapper as a wrapper of its own class.

    XGBoost's file keeps the trees and categories, but of a wrapper only whether it classifies: its
    settings (`missing`, `enable_categorical`, ...) would be lost without a word, and with them the
    predictions. They are kept in an attribute of the Booster, in the same file, and so are plain
    values that a function sets on the model (`model.rmse = 0.3`). What serves training only and is
    not a plain value (callbacks, a random state) is left behind.
    """

    filename: str = "model.ubj"

    def __post_init__(self) -> None:
        if not self.filename.endswith((".ubj", ".json")):
            raise SerdeError(
                f"XGBoostSerde(filename={self.filename!r}) has no format: end it in .ubj or .json."
            )

    def write(self, model: Any, file_path: str) -> None:
        """Write a Booster or a wrapper; the end of the path says in which format.

        Raises:
            SerdeError: A subclass of these, or a wrapper with an objective of the user's own.
        """
        Path(file_path).write_bytes(_content_of(model, file_path))

    def write_stream(self, model: Any, file: BinaryIO) -> None:
        """Write a Booster or a wrapper to an open file; see `write`."""
        file.write(_content_of(model, self.filename))

    def read_stream(self, file: BinaryIO) -> Any:
        """Return the Booster or the wrapper of an open file.

        Raises:
            IntegrityError: The file is broken, or newer than this XGBoost.
        """
        with readable(file.name, "XGBoost"):
            return _model_of(bytearray(file.read()))

    def not_kept(self, model: Any) -> list[str]:
        """Return the names of attributes of the caller's own that a file cannot hold."""
        return _own_attributes(model)[1]


def _content_of(model: Any, filename: str) -> bytearray:
    """Return what a file of this name is to hold; its end says in which format."""
    import xgboost

    form = "json" if filename.endswith(".json") else "ubj"
    booster, marks = model, {}
    if type(model) is not xgboost.Booster:
        settings = json.dumps([_wrapper_name(model), _wrapper_params(model)])
        # With the mark that the wrapper's own `save_model` sets, which takes a path only.
        kind = json.dumps({"_estimator_type": model._get_type()})
        marks = {_WRAPPER_ATTRIBUTE: settings, "scikit_learn": kind}
        booster = model.get_booster()
    if own := _own_attributes(model)[0]:
        marks[_OWN_ATTRIBUTE] = json.dumps(own)
    raw: bytearray
    if not marks:
        raw = booster.save_raw(form)
        return raw
    booster.set_attr(**marks)
    try:
        raw = booster.save_raw(form)
    finally:
        # The model is its caller's, and is left as it was.
        booster.set_attr(**dict.fromkeys(marks))
    return raw


def _model_of(content: bytearray) -> Any:
    import xgboost

    if not content:  # at which XGBoost (3.2) ends the process
        raise ValueError("the file is empty")
    model = booster = xgboost.Booster(model_file=content)
    settings, own = booster.attr(_WRAPPER_ATTRIBUTE), booster.attr(_OWN_ATTRIBUTE)
    if settings is not None:
        name, params = json.loads(settings)
        if name not in _WRAPPERS:
            raise SerdeError(f"The model was written from the unknown wrapper {name!r}.")
        model = getattr(xgboost, name)(**params)
        model.load_model(content)
        booster = model.get_booster()
        booster.set_attr(**{_WRAPPER_ATTRIBUTE: None})
    if own is not None:
        booster.set_attr(**{_OWN_ATTRIBUTE: None})
        set_attributes(model, own)
    return model


def _own_attributes(model: Any) -> tuple[dict[str, Any], list[str]]:
    # A Booster has its handle and nothing else: of most there is nothing to look for.
    if len(vars(model)) == 1:
        return {}, []
    return own_attributes(model, _names_of(type(model).__name__))


@cache
def _names_of(kind: str) -> frozenset[str]:
    """Return the names of attributes that XGBoost sets on a model of the class of this name."""
    import xgboost

    settings: Any = getattr(getattr(xgboost, kind)(), "get_params", dict)()
    return frozenset({*settings, "handle", "kwargs", "evals_result_", "n_classes_", "_Booster"})


def _wrapper_name(model: Any) -> str:
    import xgboost

    name = type(model).__name__
    if name in _WRAPPERS and type(model) is getattr(xgboost, name):
        return name
    raise SerdeError(
        f"XGBoostSerde cannot bring back a {type(model).__module__}.{name}: return a Booster or one"
        f" of {', '.join(_WRAPPERS)}, or {BY_PICKLE} or your own ModelSerde."
    )


def _wrapper_params(model: Any) -> dict[str, Any]:
    if callable(model.objective):
        raise SerdeError(
            "XGBoostSerde cannot keep the objective of this wrapper, which is a function: return "
            f"model.get_booster(), or {BY_PICKLE}."
        )
    params = plain_settings(model.get_params())
    return {name: value for name, value in params.items() if value is not None}
