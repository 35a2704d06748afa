"""LightGBM models in LightGBM's own text format."""

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

import numpy as np

from partwise.errors import SerdeError
from partwise.models.serdes.damage import readable
from partwise.models.serdes.own_attributes import (
    own_attributes,
    plain_settings,
    set_attributes,
)
from partwise.models.serdes.pickle import BY_PICKLE
from partwise.models.serdes.protocol import StreamSerde

_NAMES = re.compile(rb"^(\[categorical_feature: )name:.*\]$", re.MULTILINE)
"""The parameter as names, which LightGBM (4.7) writes into a model but cannot read back.

It was for training only: a tree says itself what it splits as a category.
"""

_NAMED = b"[categorical_feature: name:"
"""What `_NAMES` looks for, for a look that takes a hundredth of the time."""

_END = b"\nend of trees"

_OWN = b"\npartwise_attributes:"
"""Begins a line that LightGBM passes over: one behind its parameters."""

_WRAPPER = b"\npartwise_wrapper:"
"""Begins such a line with what makes a wrapper: its class, settings, what a fit has found, and the
classes of labels."""

_WRAPPERS = ("LGBMClassifier", "LGBMRanker", "LGBMRegressor")

_LAST = b"\npandas_categorical:"
"""Begins the last line, which LightGBM looks for from the end."""

_OF_LIBRARY = frozenset(
    {
        *("best_iteration", "best_score", "name_valid_sets", "pandas_categorical", "params"),
        *("train_set", "train_set_version", "valid_sets", "_handle", "_network"),
        *("_train_data_name", "_Booster__num_class", "_Booster__num_dataset"),
        *("_Booster__higher_better_inner_eval", "_Booster__init_predictor"),
        *("_Booster__inner_predict_buffer", "_Booster__is_predicted_cur_iter"),
        *("_Booster__name_inner_eval", "_Booster__need_reload_eval_info"),
        *("_Booster__num_inner_eval", "_Booster__set_objective_to_none"),
    }
)
"""The names of attributes that LightGBM sets on a Booster."""


@dataclass(frozen=True, slots=True)
class LightGBMSerde(StreamSerde):
    """A Booster comes back as a Booster, a scikit-learn wrapper as a wrapper of its own class.

    Both have the categories of the frame that they were trained on. LightGBM writes the trees up to
    the best iteration, where early stopping found one, and nothing of what makes a wrapper: that
    stands in a line of the same file, and so do plain values that a function sets on the model
    (`model.rmse = 0.3`). What serves training only and is not a plain value (a random state) is
    left behind.
    """

    filename: str = "model.txt"

    def write_stream(self, model: Any, file: BinaryIO) -> None:
        """Write a Booster or a wrapper to an open file.

        Raises:
            SerdeError: A subclass of these, or a wrapper with an objective of the user's own or
                with classes that are neither numbers nor texts.
        """
        file.write(_text_of(model))

    def read_stream(self, file: BinaryIO) -> Any:
        """Return the Booster or the wrapper of an open file.

        Raises:
            IntegrityError: The file is broken.
        """
        with readable(file.name, "LightGBM"):
            return _model_of(file.read())

    def not_kept(self, model: Any) -> list[str]:
        """Return the names of attributes of the caller's own that a file cannot hold."""
        return own_attributes(model, _names_of(model))[1]


def _text_of(model: Any) -> bytes:
    import lightgbm

    booster, lines = model, b""
    if type(model) is not lightgbm.Booster:
        lines, booster = _WRAPPER + _wrapper_text(model).encode(), model.booster_
    # By the way of files, in memory. `model_to_string` takes a cleared MiB even for a tiny model,
    # 0.4 ms below a Dask worker; and it makes a longer text twice, and holds it four times.
    with open(os.memfd_create("partwise-model"), "rb") as file:
        booster.save_model(f"/proc/self/fd/{file.fileno()}")
        text = file.read()
    text = _NAMES.sub(rb"\g<1>]", text) if _NAMED in text else text
    if own := own_attributes(model, _names_of(model))[0]:
        lines += _OWN + json.dumps(own).encode()
    if lines:
        place = text.rindex(_LAST)
        text = text[:place] + lines + text[place:]
    return text


def _names_of(model: Any) -> frozenset[str]:
    """Return the names of attributes that LightGBM sets on a model."""
    others: Any = getattr(model, "_other_params", None)
    names = _OF_LIBRARY if others is None else _names_of_wrapper(type(model).__name__)
    return names.union(others) if others else names


@cache
def _names_of_wrapper(kind: str) -> frozenset[str]:
    import lightgbm

    return frozenset({*vars(getattr(lightgbm, kind)()), "fitted_", "_le"})


def _wrapper_text(model: Any) -> str:
    """Return what makes a wrapper, besides its Booster, as JSON."""
    import lightgbm

    name = type(model).__name__
    if name not in _WRAPPERS or type(model) is not getattr(lightgbm, name):
        raise SerdeError(
            f"LightGBMSerde cannot bring back a {type(model).__module__}.{name}: return a Booster "
            f"(a wrapper has it as model.booster_) or one of {', '.join(_WRAPPERS)}, or "
            f"{BY_PICKLE} or your own ModelSerde."
        )
    if callable(model.objective):
        raise SerdeError(
            "LightGBMSerde cannot keep the objective of this wrapper, which is a function: return "
            f"model.booster_, or {BY_PICKLE}."
        )
    found = {key: value for key, value in vars(model).items() if key.startswith("_")}
    classes = getattr(model, "_classes", None)
    if classes is not None:
        if classes.dtype.kind not in "biufUO":
            raise SerdeError(
                f"LightGBMSerde cannot keep classes of {classes.dtype}: train with numbers or "
                f"texts as labels, or {BY_PICKLE}."
            )
        classes = [classes.dtype.str, classes.tolist()]
    return json.dumps([name, plain_settings(model.get_params()), plain_settings(found), classes])


def _wrapper_of(booster: Any, text: bytes) -> Any:
    """Return the wrapper of a Booster, as `_wrapper_text` wrote it."""
    import lightgbm

    name, params, found, classes = json.loads(text)
    if name not in _WRAPPERS:
        raise SerdeError(f"The model was written from the unknown wrapper {name!r}.")
    kind = getattr(lightgbm, name)
    # Whoever writes to a store must not put a value in the place of a method.
    model = kind(**{key: value for key, value in params.items() if not hasattr(kind, key)})
    for key in vars(model).keys() & found.keys():
        setattr(model, key, found[key])
    model._Booster, model.fitted_ = booster, True
    if classes is not None:
        labels = np.array(classes[1], np.dtype(classes[0]))
        model._le = lightgbm.compat._LGBMLabelEncoder().fit(labels)
        model._classes = model._le.classes_
    return model


def _model_of(text: bytes) -> Any:
    import lightgbm

    # LightGBM's own reader ends the process where a text is cut off among its trees, as it is for
    # that reader at a zero byte.
    if _END not in text or b"\0" in text:
        raise ValueError("the file ends before its trees do")
    model = lightgbm.Booster(model_str=text.decode())
    end = text.rindex(_END)
    if (line := _line_of(text, _WRAPPER, end)) is not None:
        model = _wrapper_of(model, line)
    if (line := _line_of(text, _OWN, end)) is not None:
        set_attributes(model, line.decode())
    return model


def _line_of(text: bytes, begin: bytes, after: int) -> bytes | None:
    place = text.find(begin, after)
    return None if place < 0 else text[place + len(begin) :].partition(b"\n")[0]
