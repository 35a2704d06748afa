"""Models of partwise's own as JSON."""

import base64
import io
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from partwise.errors import PartwiseError, SerdeError
from partwise.models.serdes.protocol import StreamSerde

FORMAT_VERSION = 4
"""Of what an earlier release would misread; of all else it is 1."""


_INSIDE = ("lightgbm", "xgboost", "plain")
"""The formats that models inside of others have."""


_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What a file of another kind ends in."""


@dataclass(frozen=True, slots=True)
class PlainSerde(StreamSerde):
    """A model of plain numbers: a mean, a naive forecast, a linear model, a forest.

    Or one that has others in it, each as its own serde writes it.
    """

    filename: str = "model.json"

    def write_stream(self, model: Any, file: BinaryIO) -> None:
        """Write a model of `partwise.models.plain_models` to an open file.

        Raises:
            SerdeError: It is none.
        """
        from partwise.models.plain_models import PlainModel

        if not isinstance(model, PlainModel):
            kind = type(model)
            raise SerdeError(
                f"PlainSerde cannot write a {kind.__module__}.{kind.__qualname__}: it is for the "
                "models of partwise's own trainers."
            )
        written = {"format_version": model.format_version, **model.to_json()}
        file.write(json.dumps(written, default=_inner_to_json).encode())

    def read_stream(self, file: BinaryIO) -> Any:
        """Return the model of an open file.

        Raises:
            SerdeError: The file is none of this serde's, or a newer release wrote it.
        """
        from partwise.models.model_kinds import plain_model

        content = file.read()
        try:
            written = json.loads(content.decode(), object_hook=_inner_of_json)
            version = written.pop("format_version")
            if version in range(1, FORMAT_VERSION + 1):
                return plain_model(written)
        except (PartwiseError, *_UNREADABLE) as error:
            # Of a newer format, what is inside may be of another form.
            version = _version_of(content)
            if not (isinstance(version, int) and version > FORMAT_VERSION):
                if isinstance(error, PartwiseError):
                    raise
                raise SerdeError(
                    f"{file.name} is not a model that PlainSerde reads: {error}"
                ) from error
        raise SerdeError(
            f"{file.name} has format version {version!r}, and this release reads "
            f"those up to {FORMAT_VERSION}; install a newer partwise."
        )


def _version_of(content: bytes) -> Any:
    with suppress(*_UNREADABLE):
        return json.loads(content)["format_version"]
    return None


def _inner_to_json(model: Any) -> dict[str, str]:
    from partwise.models.serdes import SERDES, library_of

    name = library_of(model) or ""
    if name not in _INSIDE:
        raise SerdeError(f"A {type(model).__name__} inside a model has no format of its own.")
    file = io.BytesIO()
    SERDES[name]().write_stream(model, file)  # type: ignore[attr-defined]
    content = file.getvalue()
    if name == "xgboost":
        return {"serde": name, "base64": base64.b64encode(content).decode()}
    return {"serde": name, "text": content.decode()}


def _inner_of_json(values: dict[str, Any]) -> Any:
    """Return a model that stands inside another; all else as it is."""
    name = values.get("serde")
    if not isinstance(name, str):  # also of a feature of this name, whose categories are a list
        return values
    from partwise.models.serdes import SERDES

    if name not in _INSIDE:
        raise ValueError(f"a model inside has the format {name!r:.40}")
    is_text = "text" in values
    content = values["text"].encode() if is_text else base64.b64decode(values["base64"])
    return SERDES[name]().read_stream(_Inside(content))  # type: ignore[attr-defined]


class _Inside(io.BytesIO):
    """The file of a model inside another."""

    name = "a model inside"
