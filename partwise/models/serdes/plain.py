"""Models of partwise's own as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from partwise.errors import SerdeError

FORMAT_VERSION = 2
"""Of what an earlier release would misread; of all else it is 1."""


@dataclass(frozen=True, slots=True)
class PlainSerde:
    """A model of plain numbers: a mean, a naive forecast, a linear model, a forest."""

    filename: str = "model.json"

    def write(self, model: Any, file_path: str) -> None:
        """Write a model of `partwise.models.plain_models`.

        Raises:
            SerdeError: It is none.
        """
        Path(file_path).write_bytes(self._content_of(model))

    def write_stream(self, model: Any, file: BinaryIO) -> None:
        """Write a model to an open file; see `write`."""
        file.write(self._content_of(model))

    def _content_of(self, model: Any) -> bytes:
        from partwise.models.plain_models import PlainModel

        if not isinstance(model, PlainModel):
            kind = type(model)
            raise SerdeError(
                f"PlainSerde cannot write a {kind.__module__}.{kind.__qualname__}: it is for the "
                "models of partwise's own trainers."
            )
        written = {"format_version": model.format_version, **model.to_json()}
        return json.dumps(written).encode()

    def read(self, file_path: str) -> Any:
        """Return the model.

        Raises:
            SerdeError: The file is none of this serde's, or a newer release wrote it.
        """
        with open(file_path, "rb") as file:
            return self.read_stream(file)

    def read_stream(self, file: BinaryIO) -> Any:
        """Return the model of an open file; see `read`."""
        from partwise.models.plain_models import plain_model

        try:
            written = json.loads(file.read().decode())
            version = written.pop("format_version")
            if version in range(1, FORMAT_VERSION + 1):
                return plain_model(written)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SerdeError(
                f"{file.name} is not a model that PlainSerde reads: {error}"
            ) from error
        raise SerdeError(
            f"{file.name} has format version {version}, and this release reads "
            f"those up to {FORMAT_VERSION}; install a newer partwise."
        )
