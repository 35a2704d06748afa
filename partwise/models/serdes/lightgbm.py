"""LightGBM models in LightGBM's own text format."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from partwise.errors import SerdeError
from partwise.models.serdes.damage import readable
from partwise.models.serdes.own_attributes import attributes_text, own_attributes, set_attributes
from partwise.models.serdes.pickle import BY_PICKLE

_NAMES = re.compile(rb"^(\[categorical_feature: )name:.*\]$", re.MULTILINE)
"""The parameter as names, which LightGBM (4.7) writes into a model but cannot read back.

It was for training only: a tree says itself what it splits as a category.
"""

_NAMED = b"[categorical_feature: name:"
"""What `_NAMES` looks for, for a look that takes a hundredth of the time."""

_END = b"\nend of trees"

_OWN = b"\npartwise_attributes:"
"""Begins a line that LightGBM passes over: one behind its parameters."""

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
class LightGBMSerde:
    """A Booster comes back as a Booster, with the categories of the frame it was trained on.

    LightGBM writes the trees up to the best iteration, where early stopping found one. Plain values
    that a function sets on the Booster (`booster.rmse = 0.3`) are kept too.
    scikit-learn wrappers are refused: the text holds none of what makes a wrapper, and a Booster
    in its place would give probabilities where the wrapper gave classes.
    """

    filename: str = "model.txt"

    def write(self, model: Any, file_path: str) -> None:
        """Write a Booster.

        Raises:
            SerdeError: The model is not a plain Booster.
        """
        Path(file_path).write_bytes(_text_of(model))

    def write_stream(self, model: Any, file: BinaryIO) -> None:
        """Write a Booster to an open file; see `write`."""
        file.write(_text_of(model))

    def read(self, file_path: str) -> Any:
        """Return the Booster.

        Raises:
            IntegrityError: The file is broken.
        """
        with readable(file_path, "LightGBM"):
            return _booster_of(Path(file_path).read_bytes())

    def read_stream(self, file: BinaryIO) -> Any:
        """Return the Booster of an open file; see `read`."""
        with readable(file.name, "LightGBM"):
            return _booster_of(file.read())

    def not_kept(self, model: Any) -> list[str]:
        """Return the names of attributes of the caller's own that a file cannot hold."""
        return own_attributes(model, _OF_LIBRARY)[1]


def _text_of(model: Any) -> bytes:
    import lightgbm

    if type(model) is not lightgbm.Booster:
        raise SerdeError(
            f"LightGBMSerde cannot bring back a {type(model).__module__}."
            f"{type(model).__name__}: return a Booster (a wrapper has it as model.booster_), "
            f"or {BY_PICKLE} or your own ModelSerde."
        )
    # By the way of files, in memory. `model_to_string` takes a cleared MiB even for a tiny model,
    # 0.4 ms below a Dask worker; and it makes a longer text twice, and holds it four times.
    with open(os.memfd_create("partwise-model"), "rb") as file:
        model.save_model(f"/proc/self/fd/{file.fileno()}")
        text = file.read()
    text = _NAMES.sub(rb"\g<1>]", text) if _NAMED in text else text
    if own := own_attributes(model, _OF_LIBRARY)[0]:
        place = text.rindex(_LAST)
        text = text[:place] + _OWN + attributes_text(own).encode() + text[place:]
    return text


def _booster_of(text: bytes) -> Any:
    import lightgbm

    # LightGBM's own reader ends the process where a text is cut off among its trees, as it is for
    # that reader at a zero byte.
    if _END not in text or b"\0" in text:
        raise ValueError("the file ends before its trees do")
    booster = lightgbm.Booster(model_str=text.decode())
    end = text.rindex(_END)
    if (place := text.find(_OWN, end)) >= 0:
        set_attributes(booster, text[place + len(_OWN) :].partition(b"\n")[0].decode())
    return booster
