"""The child process: runs the user's function, partition after partition, and streams outcomes.

With the isolation "partition" it forks a process for each, else it runs them itself. It is started
by `worker/child.py` and lives on between shards. The socket, the mark and the log stand on high
descriptors, out of the way of code that closes or redirects the low ones.
"""

import contextlib
import contextvars
import ctypes
import fcntl
import itertools
import mmap
import os
import pickle
import resource
import socket
import struct
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.connector.context import PartitionContext, Share
from partwise.connector.data_connector import DataConnector
from partwise.connector.spooling import SpooledReader
from partwise.engine.child.gpu_memory import concerns_gpu, free_gpu_memory, lacks_gpu_memory
from partwise.engine.child.leftovers import Leftovers, describe_leftovers
from partwise.engine.child.log import ChildLog
from partwise.engine.child.named_code import NamedCode
from partwise.engine.child.parent_link import ParentLink, SharedConnection
from partwise.engine.child.seeding import Seeding
from partwise.engine.child.state import ProcessState
from partwise.engine.failures import describe_error, storable_start
from partwise.engine.libraries import loaded_libraries
from partwise.engine.messages import (
    Artifact,
    Idle,
    OpenShard,
    OpenWork,
    RunPartitions,
    WorkReady,
    WorkUnusable,
)
from partwise.engine.outcome import INLINE_BYTES, Content, Outcome, Produced
from partwise.engine.params_file import read_params
from partwise.engine.works import StoredModel, Work
from partwise.errors import FunctionError, PartwiseError
from partwise.models.serdes import SERDES
from partwise.outcomes import PartitionStatus
from partwise.processes.family import adopt_orphans
from partwise.processes.forks import ForkServer, end_like, refuse_threads
from partwise.processes.garbage import collecting_rarely
from partwise.processes.memory import read_memory
from partwise.processes.shared_files import name_own_files, own_folder_of
from partwise.processes.starting import LOST_PARENT
from partwise.shuffle.sorted_shards import ShardReader
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.keys.partition_keys import Key, key_values

if TYPE_CHECKING:
    # A form: it would bring pydantic along.
    from partwise.engine.options import Isolation

MARK = struct.Struct("<qq")
"""What runs since when: index of the partition (-1: none), monotonic nanoseconds (0: its function
has ended, and its outcome is on the way; `SENT`: it is sent; below that: so long ago, by the number
without its sign, this process began to prepare for the function)."""
SENT = -1

RECYCLE_AFTER_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What a child is started with, besides its descriptors."""

    token: str
    """What names of its files in shared memory begin with."""
    directory: str
    """A folder of its own for files that it hands over."""
    recycle_bytes: int
    """Memory that it may keep between partitions."""
    isolation: "Isolation"
    threads: int = 1
    """How many its partitions may use; libraries know it from the environment."""


@dataclass(frozen=True, slots=True)
class _ShardAtWork:
    """The shard at work: the message about it, with its files opened."""

    opened: OpenShard
    reader: ShardReader | SpooledReader
    keys: list[Key]
    params: dict[str, dict[str, Any]]

    def share_of(self, index: int) -> Share | None:
        """Return how much of the run a partition is."""
        opened = self.opened
        if not opened.all_rows:
            return None
        rows = opened.offsets[index + 1] - opened.offsets[index]
        return Share(rows=rows / opened.all_rows, partitions=opened.all_partitions)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What the partitions of a process share."""

    state: ProcessState
    leftovers: Leftovers

    def restore(self, seconds: float) -> list[str]:
        """Put back what can be; return, in words, what was left that cannot."""
        failed = self.state.restore(seconds)
        left = [f"it changed what cannot be put back: {name}" for name in failed]
        return left + self.leftovers.look(seconds)


class Child:
    """The process: its connection, its mark, its log, and what is restored between partitions."""

    def __init__(self, settings: ChildSettings, socket_fd: int, mark_fd: int, log_fd: int) -> None:
        self.settings = settings
        self.pid = os.getpid()
        # What its server had.
        self._loaded = loaded_libraries()
        self.connection = SharedConnection(socket.socket(fileno=_raise_descriptor(socket_fd)))
        self._mark = mmap.mmap(mark_fd, MARK.size)
        self.log = ChildLog(_raise_descriptor(log_fd))
        self._cwd_fd = _open_work_folder(settings.directory)
        self._files = itertools.count(1)
        self._work: Work | None = None
        self._shard: _ShardAtWork | None = None
        self._surroundings: _Surroundings | ForkServer | None = None
        self._obstacle: FunctionError | None = None
        os.close(mark_fd)
        self._seeding = Seeding()
        os.fchdir(self._cwd_fd)

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
                    free_gpu_memory()
                    # Before it says so: whoever ends an execution knows an idle child by its mark.
                    MARK.pack_into(self._mark, 0, -1, 0)
                    used = loaded_libraries() - self._loaded
                    self.connection.send(Idle(libraries=sorted(used)))

    def enclose(self, content: bytes) -> Content:
        """Return content for a message: itself, or the path of a file with it."""
        if len(content) <= INLINE_BYTES:
            return content
        # With the number of the process: each fork counts on from the same number.
        path = Path(self.settings.directory, f"content-{self.pid}-{next(self._files)}")
        path.write_bytes(content)
        return str(path)

    def _open_work(self, path: str) -> None:
        try:
            with collecting_rarely():
                self._work = pickle.loads(Path(path).read_bytes())  # noqa: S301 (the caller's own code)
            self._surroundings = self._obstacle = None
            if self.settings.isolation == "partition":
                refuse_threads()
        except BaseException as error:
            self.connection.send(WorkUnusable(failure=describe_error(error)))
            return
        finally:
            self.log.take()
        self.connection.send(WorkReady())

    def _run(self, index: int, attempt: int) -> bool:
        """Work on one partition and send its outcome; False when the process should be replaced."""
        # From here on a death of this process is this partition's, until its outcome is sent: the
        # worker reads the mark, in memory that outlives us, and needs no answer from here.
        if self._surroundings is None and self._obstacle is None:
            # What is imported for all partitions does not count for the time of the first one.
            MARK.pack_into(self._mark, 0, index, -time.monotonic_ns())
            self._prepare()
        MARK.pack_into(self._mark, 0, index, time.monotonic_ns())
        server = self._surroundings
        if not isinstance(server, ForkServer):
            return self._attempt(index, attempt)
        status = server.run(lambda: self._attempt_in_fork(index, attempt))
        if MARK.unpack_from(self._mark, 0)[1] != SENT:
            # It died. This process ends in the same way, with the same partition to blame.
            end_like(status)
        # What was written after its outcome, by what was left of it, belongs to no partition.
        self.log.take()
        return True

    def _prepare(self) -> None:
        """Import what the work's code imports, and note the state that each partition meets."""
        shard = self._shard
        own = () if shard is None else shard.opened.models.values()
        serdes = {model.artifact.serde for models in own for model in models} & SERDES.keys()
        named = NamedCode([self._work, *(SERDES[name]() for name in sorted(serdes))])
        with collecting_rarely():
            named.import_all()
        if self.settings.isolation == "partition":
            # numpy imports its random numbers when they are first used, and pyarrow imports pandas
            # when it is first given an array: before all forks, not in each.
            self._seeding.seed_all(0)
            pa.array(np.zeros(1))
        self._restore_output()
        try:
            self._surroundings = (
                ForkServer()
                if self.settings.isolation == "partition"
                else _Surroundings(ProcessState(named.words), Leftovers(named))
            )
        except FunctionError as error:
            self._obstacle = error

    def _attempt_in_fork(self, index: int, attempt: int) -> None:
        self.pid = os.getpid()
        self._enter_work_folder()
        self._attempt(index, attempt)
        MARK.pack_into(self._mark, 0, index, SENT)

    def _produce(self, shard: _ShardAtWork, work: Work, index: int, attempt: int) -> Produced:
        """Call the work for one partition."""
        if self._obstacle is not None:
            raise self._obstacle
        opened = shard.opened
        seed = opened.seeds[index]
        self._seeding.seed_all(seed)
        partition_id = opened.partition_ids[index]
        context = PartitionContext(
            key=shard.keys[index],
            key_columns=tuple(opened.key_columns),
            partition_id=partition_id,
            run_id=opened.run_id,
            attempt=attempt,
            seed=seed,
            threads=self.settings.threads,
            params=shard.params.get(partition_id),
            link=ParentLink(self.connection, index, self.enclose),
            share=shard.share_of(index),
        )
        rows = shard.reader.partition(opened.offsets[index], opened.offsets[index + 1])
        models: Sequence[StoredModel] = opened.models.get(index, ())
        given = DataConnector(rows), context, models, self.settings.directory
        rehearse = getattr(work, "rehearse", None)
        # Also has each partition shown the warnings that another one has met already.
        with warnings.catch_warnings():
            # What stands in context variables, such as numpy's error handling, ends with it.
            within = contextvars.copy_context()
            if rehearse is not None:
                within.run(lambda: rehearse(*given))
                # A dry run does all twice: each of the two has the whole time of a partition.
                MARK.pack_into(self._mark, 0, index, time.monotonic_ns())
            return within.run(work, *given)

    def _attempt(self, index: int, attempt: int) -> bool:
        """Make an outcome of the work and send it; False when the process should be replaced."""
        shard, work = self._shard, self._work
        if shard is None or work is None:
            raise RuntimeError("a child was asked to run before it was given work and a shard")
        began = time.perf_counter()
        try:
            produced = self._produce(shard, work, index, attempt)
            ended = self._success(index, produced)
        except BaseException as error:
            params = shard.params.get(shard.opened.partition_ids[index], {})
            ended = self._failure(index, error, params)
        # A fork of the user's that came back out of the function is not this process.
        if os.getpid() != self.pid:
            os._exit(0)
        seconds = time.perf_counter() - began
        # Its time is no longer measured, but it is still to blame: a thread or an extension that it
        # left behind may crash while the outcome is written.
        MARK.pack_into(self._mark, 0, index, 0)
        self._restore_output()
        left: list[str] = []
        is_changed = False
        if isinstance(self._surroundings, _Surroundings):
            left = self._surroundings.restore(seconds)
            if left:
                self.log.write(describe_leftovers(left))
            is_changed = bool(left) or (seconds > RECYCLE_AFTER_S and self._is_bloated())
        # Made once: to copy it with these took a tenth of all that a small partition costs.
        outcome = ended(seconds=seconds, log=self.log.take(), left=left)
        if is_changed:
            outcome = replace(outcome, retired=True)
        try:
            self.connection.send(outcome)
        except OSError:
            os._exit(LOST_PARENT)
        return not outcome.retired

    def _restore_output(self) -> None:
        self.log.restore()
        self._enter_work_folder()

    def _enter_work_folder(self) -> None:
        """Go to the folder in which functions work, which one of them may have removed."""
        if os.fstat(self._cwd_fd).st_nlink == 0:
            # Where all of the scratch folder is gone, the worker finds out.
            with contextlib.suppress(FileNotFoundError):
                folder_fd = _open_work_folder(self.settings.directory)
                os.close(self._cwd_fd)
                self._cwd_fd = folder_fd
        os.fchdir(self._cwd_fd)

    def _success(self, index: int, produced: Produced) -> partial[Outcome]:
        """Return what makes an outcome, once it is known how the partition left its process."""
        rows = None
        # Small ones with the outcome: a message for each took 20 us more. Others before it, with
        # which the worker puts them together when it comes.
        small = {}
        for filename, content in produced.files.items():
            if len(content) <= INLINE_BYTES:
                small[filename] = content
            else:
                enclosed = self.enclose(content)
                self.connection.send(Artifact(index=index, filename=filename, content=enclosed))
        model = produced.model
        if model is not None and isinstance(model.content, str):
            model = replace(model, content=self._hand_over(Path(model.content)))
        if produced.rows is not None:
            rows = self.enclose(table_bytes(produced.rows))
        return partial(
            Outcome,
            index=index,
            status=produced.status,
            reason=storable_start(produced.reason),
            metrics=dict(produced.metrics),
            model=model,
            rows=rows,
            candidate=produced.candidate,
            artifacts=small,
        )

    def _hand_over(self, path: Path) -> Content:
        if path.stat().st_size <= INLINE_BYTES:
            content = path.read_bytes()
            path.unlink()
            return content
        # Under another name: the next partition's model is written to the same path, perhaps before
        # the worker has read this one.
        return str(path.rename(path.with_name(f"content-{self.pid}-{next(self._files)}")))

    def _failure(
        self, index: int, error: BaseException, params: Mapping[str, Any]
    ) -> partial[Outcome]:
        failure = describe_error(error, params)
        self.log.write(failure.traceback)
        is_starved = lacks_gpu_memory(failure)
        return partial(
            Outcome,
            index=index,
            status=PartitionStatus.FAILED,
            reason="out of GPU memory" if is_starved else "exception",
            metrics=dict(error.metrics) if isinstance(error, PartwiseError) else {},
            failure=replace(failure, traceback=""),
            # After an assertion on the device, say, CUDA refuses all that this process asks for.
            retired=concerns_gpu(failure),
            is_starved=is_starved,
        )

    def _is_bloated(self) -> bool:
        if read_memory(self.pid)[0] <= self.settings.recycle_bytes:
            return False
        # What allocators hold for later is kept by nobody, and not worth another process.
        pa.default_memory_pool().release_unused()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return read_memory(self.pid)[0] > self.settings.recycle_bytes


def _open_work_folder(directory: str) -> int:
    # Apart from files of ours: a function may make what it likes there, or remove all.
    folder = os.path.join(directory, "work")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    return _raise_descriptor(os.open(folder, os.O_RDONLY))


def _open_shard(opened: OpenShard) -> _ShardAtWork:
    return _ShardAtWork(
        opened=opened,
        reader=SpooledReader(opened.path) if opened.is_spooled else ShardReader(opened.path),
        keys=key_values(pa.ipc.open_stream(opened.keys).read_all()),
        params=read_params(opened.params) if opened.params else {},
    )


def _raise_descriptor(descriptor: int) -> int:
    """Move a descriptor above those that programs close by the range."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = min(1 << 16, limit // 2) if limit != resource.RLIM_INFINITY else 1 << 16
    raised = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(descriptor)
    return raised


def main(settings: Mapping[str, Any]) -> None:
    """Run a child; `settings` are those of `ChildSettings`, and descriptors."""
    given = dict(settings)
    descriptors = {name: given.pop(name) for name in ("socket_fd", "mark_fd", "log_fd")}
    parsed = ChildSettings(**given)
    adopt_orphans()
    name_own_files(parsed.token, own_folder_of(parsed.directory, parsed.token))
    child = Child(parsed, **descriptors)
    with contextlib.suppress(EOFError):
        child.serve()
    # The end of a child is no place for users' exit handlers and threads to linger in.
    os._exit(0)
