"""The child process: runs the user's function, partition after partition, and streams outcomes.

It is started by `child_process.py` and lives on between shards. The socket, the mark and the log
stand on high descriptors, out of the way of code that closes or redirects the low ones.
"""

import contextlib
import ctypes
import faulthandler
import fcntl
import io
import json
import logging
import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.failures import MESSAGE_CHARS, Failure, describe_error, printable
from partwise.engine.messages import (
    Artifact,
    ArtifactFound,
    ArtifactMissing,
    ArtifactRequest,
    Connection,
    Content,
    Idle,
    OpenShard,
    OpenWork,
    Outcome,
    RunPartitions,
    WorkReady,
    WorkUnusable,
    WrittenModel,
)
from partwise.engine.params import read_params
from partwise.engine.process_family import adopt_orphans
from partwise.engine.seeding import Seeding
from partwise.engine.works import Produced, StoredModel, Work
from partwise.errors import ArtifactNotFoundError, PartwiseError
from partwise.outcomes import PartitionStatus
from partwise.processes import LOST_PARENT, become_child
from partwise.shuffle.sorted_shards import ShardReader
from partwise.tables.keys.partition_keys import Key

MARK = struct.Struct("<qq")
"""What runs since when: index of the partition (-1: none), monotonic nanoseconds (0: its function
has ended, and its outcome is on the way)."""

INLINE_BYTES = 1 << 20
"""Larger contents travel as files."""

LOG_HEAD_BYTES = 256 << 10
LOG_TAIL_BYTES = 768 << 10
RECYCLE_AFTER_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What a child is started with, as JSON on its command line."""

    socket_fd: int
    mark_fd: int
    log_fd: int
    parent_pid: int
    directory: str
    """A folder of its own for files that it hands over."""
    recycle_bytes: int
    """Anonymous memory that it may keep between partitions."""


@dataclass(frozen=True, slots=True)
class _ShardAtWork:
    """The shard at work: the message about it, with its files opened."""

    reader: ShardReader
    keys: list[Key]
    partition_ids: list[str]
    offsets: list[int]
    seeds: list[int]
    params: dict[str, dict[str, Any]]
    models: dict[int, StoredModel]
    run_id: str
    key_columns: tuple[str, ...]


class _Ended(NamedTuple):
    """How the work on a partition ended; the rest of its outcome is known a moment later."""

    status: PartitionStatus
    reason: str
    metrics: Mapping[str, float]
    failure: Failure | None = None
    model: WrittenModel | None = None
    rows: Content | None = None


class ParentLink:
    """Artifacts of the partition at work, through the worker."""

    def __init__(self, child: "Child", index: int) -> None:
        self._child = child
        self._index = index

    def upload(self, filename: str, content: bytes) -> None:
        """Hand an artifact over at once, so that it outlives this process."""
        enclosed = self._child.enclose(content)
        self._child.connection.send(
            Artifact(index=self._index, filename=filename, content=enclosed)
        )

    def download(self, filename: str, run_id: str | None) -> bytes:
        """Ask the worker for an artifact.

        Raises:
            ArtifactNotFoundError: There is none.
        """
        self._child.connection.send(
            ArtifactRequest(index=self._index, filename=filename, run_id=run_id)
        )
        match self._child.connection.receive():
            case ArtifactFound(path=path):
                content = Path(path).read_bytes()
                os.unlink(path)
                return content
            case ArtifactMissing(message=message):
                raise ArtifactNotFoundError(message)
            case answer:
                raise RuntimeError(f"a child asked for an artifact and was sent {answer!r}")


class Child:
    """The process: its connection, its mark, its log, and what is restored between partitions."""

    def __init__(self, settings: ChildSettings) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.connection = Connection(socket.socket(fileno=_raise_descriptor(settings.socket_fd)))
        self._mark = mmap.mmap(settings.mark_fd, MARK.size)
        self._log_fd = _raise_descriptor(settings.log_fd)
        self._cwd_fd = _raise_descriptor(os.open(settings.directory, os.O_RDONLY))
        self._recursion_limit = sys.getrecursionlimit()
        self._files = 0
        self._work: Work | None = None
        self._shard: _ShardAtWork | None = None
        os.close(settings.mark_fd)
        os.dup2(self._log_fd, 1)
        os.dup2(self._log_fd, 2)
        self._stdout, self._stderr = _unbuffered(1), _unbuffered(2)
        faulthandler.enable(file=self._log_fd)
        self._handler = logging.StreamHandler(self._stderr)
        self._handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        )
        self._seeding = Seeding()
        logging.captureWarnings(True)
        self._restore()

    def serve(self) -> None:
        """Answer the worker until it closes the connection."""
        while True:
            match self.connection.receive():
                case OpenWork(path=path):
                    self._open_work(path)
                case OpenShard() as shard:
                    self._shard = _open_shard(shard)
                case RunPartitions(indices=indices, attempt=attempt):
                    for index in indices:
                        if not self._run(index, attempt):
                            return
                    MARK.pack_into(self._mark, 0, -1, 0)
                    self.connection.send(Idle())

    def enclose(self, content: bytes) -> Content:
        """Return content for a message: itself, or the path of a file with it."""
        if len(content) <= INLINE_BYTES:
            return content
        self._files += 1
        path = Path(self.settings.directory, f"content-{self.pid}-{self._files}")
        path.write_bytes(content)
        return str(path)

    def _open_work(self, path: str) -> None:
        try:
            self._work = pickle.loads(Path(path).read_bytes())  # noqa: S301 (the caller's own code)
        except BaseException as error:
            self.connection.send(WorkUnusable(failure=describe_error(error)))
            return
        finally:
            self._take_log()
        self.connection.send(WorkReady())

    def _run(self, index: int, attempt: int) -> bool:
        """Work on one partition and send its outcome; False when the process should be replaced."""
        shard, work = self._shard, self._work
        if shard is None or work is None:
            raise RuntimeError("a child was told to run before it was given work and a shard")
        start, stop = shard.offsets[index], shard.offsets[index + 1]
        # From here on a death of this process is this partition's, until its outcome is sent: the
        # worker reads the mark, in memory that outlives us, and needs no answer from here.
        MARK.pack_into(self._mark, 0, index, time.monotonic_ns())
        began = time.perf_counter()
        try:
            seed = shard.seeds[index]
            self._seeding.seed_all(seed)
            partition_id = shard.partition_ids[index]
            context = PartitionContext(
                key=shard.keys[index],
                key_columns=shard.key_columns,
                partition_id=partition_id,
                run_id=shard.run_id,
                attempt=attempt,
                seed=seed,
                params=shard.params.get(partition_id),
                link=ParentLink(self, index),
            )
            data = DataConnector(shard.reader.partition(start, stop))
            # Also has each partition shown the warnings that another one has met already.
            with warnings.catch_warnings():
                produced = work(data, context, shard.models.get(index), self.settings.directory)
            ended = self._success(index, produced)
        except BaseException as error:
            ended = self._failure(error)
        # A fork of the user's that came back out of the function is not this process.
        if os.getpid() != self.pid:
            os._exit(0)
        seconds = time.perf_counter() - began
        # Its time is no longer measured, but it is still to blame: a thread or an extension that it
        # left behind may crash while the outcome is written.
        MARK.pack_into(self._mark, 0, index, 0)
        self._restore()
        outcome = Outcome(
            index=index,
            status=ended.status,
            reason=ended.reason,
            metrics=ended.metrics,
            failure=ended.failure,
            model=ended.model,
            rows=ended.rows,
            seconds=seconds,
            log=self._take_log(),
            retired=seconds > RECYCLE_AFTER_S and self._is_bloated(),
        )
        try:
            self.connection.send(outcome)
        except OSError:
            os._exit(LOST_PARENT)
        return not outcome.retired

    def _success(self, index: int, produced: Produced) -> _Ended:
        model = rows = None
        for filename, content in produced.files.items():
            self.connection.send(
                Artifact(index=index, filename=filename, content=self.enclose(content))
            )
        if produced.model_file:
            path = Path(produced.model_file)
            model = WrittenModel(
                filename=path.name, content=self._hand_over(path), serde=produced.serde
            )
        if produced.rows is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, produced.rows.schema) as writer:
                writer.write_table(produced.rows)
            rows = self.enclose(sink.getvalue().to_pybytes())
        return _Ended(
            status=produced.status,
            reason=printable(produced.reason[:MESSAGE_CHARS]),
            metrics=dict(produced.metrics),
            model=model,
            rows=rows,
        )

    def _hand_over(self, path: Path) -> Content:
        if path.stat().st_size <= INLINE_BYTES:
            content = path.read_bytes()
            path.unlink()
            return content
        self._files += 1
        return str(path.rename(path.with_name(f"content-{self.pid}-{self._files}")))

    def _failure(self, error: BaseException) -> _Ended:
        failure = describe_error(error)
        with contextlib.suppress(OSError):
            os.write(self._log_fd, (failure.traceback + "\n").encode(errors="replace"))
        return _Ended(
            status=PartitionStatus.FAILED,
            reason="exception",
            metrics=dict(error.metrics) if isinstance(error, PartwiseError) else {},
            failure=replace(failure, traceback=""),
        )

    def _restore(self) -> None:
        """Undo what a function may have done to the process."""
        signal.alarm(0)
        with contextlib.suppress(Exception):
            self._stdout.flush()
            self._stderr.flush()
        os.dup2(self._log_fd, 1)
        os.dup2(self._log_fd, 2)
        if self._stdout.closed or self._stderr.closed:
            self._stdout, self._stderr = _unbuffered(1), _unbuffered(2)
            # Its setStream() would flush the closed one.
            self._handler.stream = self._stderr
        sys.stdout, sys.stderr = self._stdout, self._stderr
        os.fchdir(self._cwd_fd)
        sys.setrecursionlimit(self._recursion_limit)
        root = logging.getLogger()
        if root.handlers != [self._handler]:
            root.handlers[:] = [self._handler]
        if root.level != logging.INFO:
            root.setLevel(logging.INFO)
        if root.manager.disable:
            logging.disable(logging.NOTSET)

    def _take_log(self) -> bytes:
        size = os.fstat(self._log_fd).st_size
        if size == 0:
            return b""
        log = read_log(self._log_fd, size)
        os.ftruncate(self._log_fd, 0)
        return log

    def _is_bloated(self) -> bool:
        if anonymous_bytes(self.pid) <= self.settings.recycle_bytes:
            return False
        pa.default_memory_pool().release_unused()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return anonymous_bytes(self.pid) > self.settings.recycle_bytes


def read_log(log_fd: int, size: int) -> bytes:
    """Return a log of `size` bytes, with the middle left out where it is very long."""
    if size <= LOG_HEAD_BYTES + LOG_TAIL_BYTES:
        return os.pread(log_fd, size, 0)
    left_out = size - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    head = os.pread(log_fd, LOG_HEAD_BYTES, 0)
    tail = os.pread(log_fd, LOG_TAIL_BYTES, size - LOG_TAIL_BYTES)
    return head + f"\n[... {left_out} bytes left out ...]\n".encode() + tail


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous resident memory of a process, in bytes; 0 when it is gone.

    Memory-mapped shards count as shared here, which is why this is not the resident size.
    """
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * mmap.PAGESIZE


def _open_shard(shard: OpenShard) -> _ShardAtWork:
    with pa.ipc.open_stream(shard.keys) as reader:
        columns = [column.to_pylist() for column in reader.read_all().columns]
    keys: list[Key] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    return _ShardAtWork(
        reader=ShardReader(shard.path),
        keys=keys,
        partition_ids=shard.partition_ids,
        offsets=shard.offsets,
        seeds=shard.seeds,
        params=read_params(shard.params) if shard.params else {},
        models=shard.models,
        run_id=shard.run_id,
        key_columns=tuple(shard.key_columns),
    )


def _unbuffered(descriptor: int) -> TextIO:
    """Return text output of which nothing is lost when the process dies, or cannot be encoded."""
    raw = os.fdopen(descriptor, "wb", 0, closefd=False)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)


def _raise_descriptor(descriptor: int) -> int:
    """Move a descriptor above those that programs close by the range."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = min(1 << 16, limit // 2) if limit != resource.RLIM_INFINITY else 1 << 16
    raised = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(descriptor)
    return raised


def main(settings: str) -> None:
    """Run a child with these settings, as JSON of `ChildSettings`."""
    parsed = ChildSettings(**json.loads(settings))
    become_child(parsed.parent_pid)
    adopt_orphans()
    with contextlib.suppress(OSError):
        # Should the machine run out of memory, the kernel takes this process, not the worker.
        Path("/proc/self/oom_score_adj").write_text("1000")
    child = Child(parsed)
    with contextlib.suppress(EOFError):
        child.serve()
    # The end of a child is no place for users' exit handlers and threads to linger in.
    os._exit(0)
