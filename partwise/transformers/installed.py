"""What has to be installed to read models of transformers."""

from importlib.metadata import version
from importlib.util import find_spec

from partwise.errors import CheckpointError
from partwise.tables.column_names import names_in_words

_NEEDED = ("torch", "transformers", "onnxscript")
HUB_LIBRARIES = ("transformers", "huggingface_hub")
TRANSFORMERS = "5.23"
"""The release whose names and patches are used here; the extra "transformers" asks for the same."""


def check_installed(names: tuple[str, ...] = _NEEDED) -> None:
    """Return when libraries are there, and transformers is of the release that this is made for."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise CheckpointError(
            f"Models of transformers need {names_in_words(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'partwise[transformers]'."
        )
    found = version("transformers")
    if found.split(".")[:2] != TRANSFORMERS.split("."):
        raise CheckpointError(
            f"Models of transformers need its release {TRANSFORMERS}, and {found} is installed: "
            "pip install 'partwise[transformers]'."
        )
