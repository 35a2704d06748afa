"""LightGBM models in LightGBM's own text format."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partwise.errors import SerdeError
from partwise.models.serdes.damage import readable
from partwise.models.serdes.pickle import BY_PICKLE

_NAMES = re.compile(rb"^(\[categorical_feature: )name:.*\]$", re.MULTILINE)
"""The parameter as names, which LightGBM (4.7) writes into a model but cannot read back.

It was for training only: a tree says itself what it splits as a category.
"""

_END = b"\nend of trees"


@dataclass(frozen=True, slots=True)
class LightGBMSerde:
    """A Booster comes back as a Booster, with the categories of the frame it was trained on.

    LightGBM writes the trees up to the best iteration, where early stopping found one.
    scikit-learn wrappers are refused: the text holds none of what makes a wrapper, and a Booster
    in its place would give probabilities where the wrapper gave classes.
    """

    filename: str = "model.txt"

    def write(self, model: Any, file_path: str) -> None:
        """Write a Booster.

        Raises:
            SerdeError: The model is not a plain Booster.
        """
        import lightgbm

        if type(model) is not lightgbm.Booster:
            raise SerdeError(
                f"LightGBMSerde cannot bring back a {type(model).__module__}."
                f"{type(model).__name__}: return a Booster (a wrapper has it as model.booster_), "
                f"or {BY_PICKLE} or your own ModelSerde."
            )
        model.save_model(file_path)
        path = Path(file_path)
        text = path.read_bytes()
        if _NAMES.search(text):
            path.write_bytes(_NAMES.sub(rb"\g<1>]", text))

    def read(self, file_path: str) -> Any:
        """Return the Booster.

        Raises:
            IntegrityError: The file is broken.
        """
        import lightgbm

        with readable(file_path, "LightGBM"):
            # LightGBM's own reader ends the process where a file is cut off among its trees.
            if _END not in Path(file_path).read_bytes():
                raise ValueError("the file ends before its trees do")
            return lightgbm.Booster(model_file=file_path)
