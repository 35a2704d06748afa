"""Keras models in the .keras format."""

import json
import zipfile
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from partwise.errors import SerdeError
from partwise.models.serdes.damage import readable

# Before, `safe_mode=True` could be made to run code (CVE-2025-49655, CVE-2026-1462).
_SAFE_VERSION = Version("3.13.2")

_FEATURES_FILE = "partwise/feature_names_in.json"
"""In the zip that a .keras file is; Keras itself keeps no attributes of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasSerde:
    """Reads with `safe_mode=True`; the backend is the one that KERAS_BACKEND names.

    The model's attribute `feature_names_in_`, a list of columns, is kept where it is set.
    """

    classes: tuple[type, ...] = ()
    """Your own layers and models, where they are not registered with Keras."""
    filename: str = "model.keras"

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))  # a list, where JSON held it
        if not self.filename.endswith(".keras"):
            raise SerdeError(f"KerasSerde(filename={self.filename!r}) has to end in .keras.")

    def write(self, model: Any, file_path: str) -> None:
        """Write a Keras model.

        Raises:
            SerdeError: It is not a Keras model.
        """
        import keras

        if not isinstance(model, keras.Model):
            raise SerdeError(f"KerasSerde writes a keras.Model, not a {type(model).__name__}.")
        model.save(file_path)
        # Keras does not write this attribute, which is not its own.
        if (names := getattr(model, "feature_names_in_", None)) is not None:
            with zipfile.ZipFile(file_path, "a") as archive:
                member = zipfile.ZipInfo(_FEATURES_FILE)  # without a date
                archive.writestr(member, json.dumps([str(name) for name in names]))

    def read(self, file_path: str) -> Any:
        """Return the model.

        Raises:
            SerdeError: The file needs classes that are not given or code that is not safe, or this
                Keras has no safe mode that holds.
        """
        import keras

        if Version(keras.__version__) < _SAFE_VERSION:
            raise SerdeError(
                f"Keras {keras.__version__} cannot read models safely: install "
                f"keras>={_SAFE_VERSION}."
            )
        known = {keras.saving.get_registered_name(kind): kind for kind in self.classes}
        with readable(file_path, "Keras"):
            try:
                model = keras.saving.load_model(file_path, custom_objects=known, safe_mode=True)
            except (TypeError, ValueError) as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise SerdeError(
                    f"Keras does not read the model safely: {reason} If it has layers of your own, "
                    "pass serde=KerasSerde(classes=(...)) with them."
                ) from error
            with zipfile.ZipFile(file_path) as archive:
                if _FEATURES_FILE in archive.namelist():
                    model.feature_names_in_ = json.loads(archive.read(_FEATURES_FILE))
            return model
