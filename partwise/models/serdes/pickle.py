"""Any model, by pickle: only where the caller asks for it."""

import pickle
from dataclasses import dataclass
from typing import Any, BinaryIO

import cloudpickle

from partwise.models.serdes.damage import readable
from partwise.models.serdes.protocol import StreamSerde

BY_PICKLE = "pass serde=PickleSerde() (--pickle on the command line)"
"""What to do with a model of any kind, in both words: a partition's error is read by both."""


@dataclass(frozen=True, slots=True)
class PickleSerde(StreamSerde):
    """Writes any Python object, with classes and functions of the main script by value.

    Reading a pickle runs all code that it holds. It is therefore never chosen for you, neither
    when a model is written nor when it is read: use it for models whose origin you trust.
    """

    filename: str = "model.pkl"

    def write_stream(self, model: Any, file: BinaryIO) -> None:
        """Write a model to an open file."""
        cloudpickle.dump(model, file)  # type: ignore[no-untyped-call]

    def read_stream(self, file: BinaryIO) -> Any:
        """Return the model of an open file, running all code that the file holds.

        Raises:
            IntegrityError: The file is broken.
        """
        with readable(file.name, "pickle"):
            return pickle.load(file)  # noqa: S301 (the caller passed this serde)
