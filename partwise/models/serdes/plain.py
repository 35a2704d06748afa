"""Models of partwise's own as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        from partwise.models.plain_models import PlainModel

        if not isinstance(model, PlainModel):
            kind = type(model)
            raise SerdeError(
                f"PlainSerde cannot write a {kind.__module__}.{kind.__qualname__}: it is for the "
                "models of partwise's own trainers."
            )
        written = {"format_version": model.format_version, **model.to_json()}
        Path(file_path).write_text(json.dumps(written))

    def read(self, file_path: str) -> Any:
        """Return the model.

        Raises:
            SerdeError: The file is none of this serde's, or a newer release wrote it.
        """
        from partwise.models.plain_models import plain_model

        try:
            written = json.loads(Path(file_path).read_text())
            version = written.pop("format_version")
            if version in range(1, FORMAT_VERSION + 1):
                return plain_model(written)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SerdeError(
                f"{file_path} is not a model that PlainSerde reads: {error}"
            ) from error
        raise SerdeError(
            f"{file_path} has format version {version}, and this release reads "
            f"those up to {FORMAT_VERSION}; install a newer partwise."
        )
