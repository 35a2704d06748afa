"""What a user's function knows of its partition, apart from the data."""

import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

from partwise.errors import ArtifactNotFoundError, InputError, TrialPruned
from partwise.formatting import TOO_LARGE, key_text, lone_surrogate
from partwise.runs.bundle import (
    CATEGORIES_FILENAME,
    LOG_FILENAME,
    SKETCH_FILENAME,
    plain_content,
)
from partwise.tables.keys.partition_keys import Key

_FILENAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,126}")


class ArtifactLink(Protocol):
    """How a context reaches the artifacts of its partition."""

    def upload(self, filename: str, content: bytes) -> None:
        """Keep `content` under this name."""

    def download(self, filename: str, run_id: str | None) -> bytes:
        """Return what was kept under this name, by this run or by another."""

    def report(self, step: int, value: float) -> bool:
        """Tell how good the model is by now, and return whether to give it up."""


class MemoryLink:
    """Artifacts in memory: for calling a function outside any run, in a test or a notebook."""

    def __init__(self) -> None:
        self.artifacts: dict[str, bytes] = {}
        self.reports: dict[int, float] = {}

    def upload(self, filename: str, content: bytes) -> None:
        """Keep `content` in `artifacts`."""
        self.artifacts[filename] = content

    def download(self, filename: str, run_id: str | None) -> bytes:
        """Return what was uploaded."""
        if run_id is not None or filename not in self.artifacts:
            raise ArtifactNotFoundError(f"There is no artifact {filename!r} outside a run.")
        return self.artifacts[filename]

    def report(self, step: int, value: float) -> bool:
        """Keep the number in `reports`."""
        self.reports[step] = value
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of its run a partition is."""

    rows: float
    """Its part of all rows, from 0 to 1."""
    partitions: int
    """How many there are."""


class _ReadingLink:
    """Artifacts that can be read, and none that is kept."""

    def __init__(self, link: ArtifactLink) -> None:
        self._link = link

    def upload(self, filename: str, content: bytes) -> None:
        """Keep nothing."""

    def download(self, filename: str, run_id: str | None) -> bytes:
        """Return what was kept under this name, by this run or by another."""
        return self._link.download(filename, run_id)

    def report(self, step: int, value: float) -> bool:
        """Tell how good the model is by now, and return whether to give it up."""
        return self._link.report(step, value)


class _HoldingLink(_ReadingLink):
    """Artifacts that are kept back until somebody hands them over."""

    def __init__(self, link: ArtifactLink) -> None:
        super().__init__(link)
        self.artifacts: dict[str, bytes] = {}

    def upload(self, filename: str, content: bytes) -> None:
        """Keep `content` here."""
        self.artifacts[filename] = content

    def download(self, filename: str, run_id: str | None) -> bytes:
        """Return what was kept under this name, here or by a run."""
        if run_id is None and filename in self.artifacts:
            return self.artifacts[filename]
        return super().download(filename, run_id)


class PartitionContext:
    """The second argument of every user's function.

    Attributes:
        key: The partition's key: a scalar, or a tuple where `partition_by` is several columns.
        key_columns: The names of the key columns.
        partition_id: A path-safe name of the key, with a part of its checksum: not its value.
        run_id: The run that this partition belongs to.
        attempt: 1 at first, 2 at the first retry.
        seed: Derived from the run's seed and the key, in [0, 2**31): the same for any number
            of workers. `random`, `numpy.random` and torch (if imported) are seeded with it.
        threads: How many threads the partition may use: the run's `cpus`. OpenMP, BLAS,
            Arrow, polars and torch are set to that in any case.
        params: This partition's share of the flow's `params`; empty without one.
        logger: Writes to this partition's log, as print() and warnings do.
        share: How much of its run this partition is; None outside a run.
    """

    def __init__(
        self,
        *,
        key: Key = None,
        key_columns: tuple[str, ...] = (),
        partition_id: str = "",
        run_id: str = "",
        attempt: int = 1,
        seed: int = 0,
        threads: int = 1,
        params: Mapping[str, Any] | None = None,
        logger: logging.Logger | None = None,
        link: ArtifactLink | None = None,
        share: Share | None = None,
    ) -> None:
        self.key = key
        self.key_columns = key_columns
        self.partition_id = partition_id
        self.run_id = run_id
        self.attempt = attempt
        self.seed = seed
        self.threads = threads
        self.params: Mapping[str, Any] = {} if params is None else params
        self.logger = logger or logging.getLogger("partwise.partition")
        self.share = share
        self._link: ArtifactLink = link or MemoryLink()
        self._made: set[str] = set()

    @property
    def has_made(self) -> bool:
        """Whether something was uploaded or reported: that is a result where none is returned."""
        return bool(self._made)

    @property
    def key_text(self) -> str:
        """The key as one text, for names, labels and logs.

        Dates and times as ISO 8601, null as "null"; of several columns as a line of CSV, so that no
        two keys have one text. `run.model` and the like, and `--key` of the command line, take it.
        """
        values = self.key if isinstance(self.key, tuple) else (self.key,)
        return key_text(values)

    def __repr__(self) -> str:
        return f"PartitionContext(key={self.key!r}, run_id={self.run_id!r}, attempt={self.attempt})"

    def with_params(self, params: Mapping[str, Any], *, uploads: bool) -> "PartitionContext":
        """Return a context of the same partition with other parameters.

        Args:
            params: In place of this one's.
            uploads: Whether files that are uploaded are kept.
        """
        context = copy(self)
        context.params = params
        if not uploads:
            context._link, context._made = _ReadingLink(self._link), set()
        return context

    @contextmanager
    def uploads_if_done(self) -> Iterator[None]:
        """Keep what is uploaded within the block only if that ends without an error."""
        link, before = self._link, set(self._made)
        self._link = held = _HoldingLink(link)
        try:
            yield
        except BaseException:
            # In place: contexts with other parameters share it.
            self._made &= before
            raise
        finally:
            self._link = link
        for filename, content in held.artifacts.items():
            link.upload(filename, content)

    def upload(
        self, obj: Any, filename: str, write: Callable[[Any, str], None] | None = None
    ) -> None:
        """Keep an object as an artifact of this partition; a later upload of the name replaces it.

        Args:
            obj: Without `write`: bytes; text for a name such as notes.txt; what JSON can hold for
                a name that ends in .json.
            filename: A flat name, such as "curve.png".
            write: Called as `write(obj, path)`; what it wrote to the path is kept.

        Raises:
            InputError: The name is not flat or is reserved, or the object needs a `write`, or that
                made no file of this path.
            TypeError: The object and its name are swapped.

        Example:
            >>> context.upload({"best": 3}, "choice.json")  # doctest: +SKIP
            >>> context.upload(figure, "fit.png", write=Figure.savefig)  # doctest: +SKIP
        """
        _refuse_swapped(obj, filename)
        check_filename(filename)
        if write is None:
            content = _encode(obj, filename)
        else:
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory, filename)
                write(obj, str(path))
                if not path.is_file():
                    made = ", ".join(map(repr, os.listdir(directory))) or "nothing"
                    raise InputError(
                        f"write= of the artifact {filename!r} made {made}, and no file of the path "
                        "that it was given, to which some functions add an ending."
                    )
                content = path.read_bytes()
        self._link.upload(filename, content)
        self._made.add(filename)

    def download(
        self,
        filename: str,
        read: Callable[[str], Any] | None = None,
        run_id: str | None = None,
    ) -> Any:
        """Return an artifact of this partition: of this run (an earlier attempt too), or another's.

        Args:
            filename: The name it was uploaded under; a model's is its serde's `filename`.
            read: Called as `read(path)`, its result is returned. Without it, .json names are
                parsed, .txt and similar come as text, and all others as bytes.
            run_id: Another run of the same store and keys. None: this run.

        Raises:
            ArtifactNotFoundError: The partition has no such artifact there.
            InputError: It is not what its name says, and there is no `read`.
        """
        check_filename(filename)
        content = self._link.download(filename, run_id)
        if read is None:
            return plain_content(content, filename)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, filename)
            path.write_bytes(content)
            return read(str(path))

    def report(self, step: int, metric: float) -> None:
        """Tell the study, of which this is a trial, how good the model is by now.

        Anywhere but in `tune_model` nothing comes of it.

        Args:
            step: A count of epochs, rounds or batches: 0, or 1, and up.
            metric: The metric that the study goes by.

        Raises:
            TrialPruned: The study gives the trial up; let it pass.
            InputError: The step is not a count, or the metric no number.

        Example:
            >>> context.report(step=epoch, metric=rmse)  # doctest: +SKIP
        """
        if not isinstance(step, Integral) or not 0 <= step < 2**63:
            raise InputError(f"context.report() was given the step {step!r}, which is not a count.")
        if isinstance(metric, str | bytes) or not hasattr(metric, "__float__"):
            raise InputError(
                f"context.report() was given a metric that is a {type(metric).__name__} and no "
                "number: keep lists and texts by context.upload(values, 'values.json')."
            )
        try:
            number = float(metric)
        except OverflowError as error:
            raise InputError(f"context.report() was given {TOO_LARGE}") from error
        gives_up = self._link.report(int(step), number)
        self._made.add("a report")
        if gives_up:
            raise TrialPruned(f"the study gave it up at step {step}, with {number:.6g}")


def check_filename(filename: str) -> None:
    """Refuse a file name that is not flat, or that partwise itself uses."""
    if not _FILENAME.fullmatch(filename) or filename.endswith((".", " ")):
        raise InputError(
            f"The artifact name {filename!r} is not a flat file name; use letters, digits, '.', "
            "'_' and '-', and no folder."
        )
    if filename == LOG_FILENAME:
        raise InputError(f"The artifact name {filename!r} is that of the partition's own log.")
    if filename == CATEGORIES_FILENAME:
        raise InputError(f"The artifact name {filename!r} is that of the model's categories.")
    if filename == SKETCH_FILENAME:
        raise InputError(f"The artifact name {filename!r} is that of the model's sketch.")


def _refuse_swapped(obj: Any, filename: object) -> None:
    """Say so where the name was given first and the object second.

    Raises:
        TypeError: The file name is not text, or not a flat name where the object is one.
    """
    is_name = isinstance(filename, str)
    if is_name and (_FILENAME.fullmatch(str(filename)) or not _looks_like_filename(obj)):
        return
    given = "text that is not a file name" if is_name else f"a {type(filename).__name__}"
    hint = f"upload(..., {obj!r})" if _looks_like_filename(obj) else "upload(obj, 'curve.png')"
    raise TypeError(
        f"context.upload() was given {given} as its second argument; the object comes first and "
        f"its file name second: {hint}."
    )


def _looks_like_filename(obj: Any) -> bool:
    return isinstance(obj, str) and "." in obj and _FILENAME.fullmatch(obj) is not None


def _encode(obj: Any, filename: str) -> bytes:
    if isinstance(obj, bytes | bytearray | memoryview):
        return bytes(obj)
    if isinstance(obj, str) and not filename.endswith(".json"):
        if found := lone_surrogate(obj):
            raise InputError(f"The artifact {filename!r} is a text with {found}: give it as bytes.")
        return obj.encode()
    if filename.endswith(".json"):
        try:
            return json.dumps(obj).encode()
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The artifact {filename!r} cannot be written as JSON: {error}."
            ) from error
    raise InputError(
        f"The artifact {filename!r} is a {type(obj).__name__}; pass write=, a function of the "
        "object and a path, or give bytes, text, or a name that ends in .json."
    )
