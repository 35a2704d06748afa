"""What a function knows of its partition, with the names that theirs have."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

import partwise.connector.context as ours
from partwise.compat.snowflake.snowpark.session import Session
from partwise.errors import InputError


class PartitionContext:
    """The context of partwise, of which all of it is made, as `own`."""

    def __init__(self, own: ours.PartitionContext, session: Session | None = None) -> None:
        self.own = own
        self._session = (session or Session()).of_writer(f"{own.run_id}-{own.partition_id}")

    @property
    def session(self) -> Session:
        """What the partition may read and write tables by."""
        return self._session

    @property
    def partition_id(self) -> str:
        """The key as text; of rows of a stage the path of their file."""
        return self.own.key_text

    def upload_to_stage(
        self, obj: Any, filename: str, write_function: Callable[[Any, str], Any] | None = None
    ) -> None:
        """Keep an object as an artifact of the partition, by pickle or as `write_function` does."""
        if write_function is None:
            self.own.upload(pickled(obj), filename)
        else:
            self.own.upload(obj, filename, write=write_function)

    def download_from_stage(
        self,
        filename: str,
        read_function: Callable[[str], Any] | None = None,
        stage_path: str | None = None,
    ) -> Any:
        """Return an artifact of the partition: of this run, or of "other-run/partition".

        Raises:
            InputError: `stage_path` is of another partition.
        """
        run_id, _, partition = (stage_path or "").strip("/").partition("/")
        if partition not in ("", self.partition_id):
            raise InputError(
                f"stage_path={stage_path!r} is not of the partition {self.partition_id!r}: here a "
                f'partition reads its own artifacts, of another run by "RUN/{self.partition_id}".'
            )
        return self.own.download(filename, read_function or unpickled, run_id=run_id or None)

    def with_session(self, fn: Callable[[Session], Any]) -> Any:
        """Return `fn(session)`; what it appends to a table is there once after retries too.

        A run that overwrites another of its name replaces what the same partitions appended.
        """
        return fn(self.session)


def pickled(obj: Any) -> bytes:
    """Return an object as a file, also of a class of the user's own script."""
    content: bytes = cloudpickle.dumps(obj)  # type: ignore[no-untyped-call]
    return content


def unpickled(path: str) -> Any:
    """Return the object of a file that `upload_to_stage` wrote by pickle."""
    return pickle.loads(Path(path).read_bytes())  # noqa: S301 (asked for by the name of theirs)
