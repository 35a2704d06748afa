"""The work on a shard: sort it, decide what to run, run it in a child, commit segments.

It knows its worker only as a `Host`, so that a test can run a shard in its own process.
"""

import bisect
import hashlib
import itertools
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from partwise.engine.assignment import ShardAssignment, ShardReceipt
from partwise.engine.host import Host
from partwise.engine.messages import OpenShard
from partwise.engine.params_file import params_fingerprints
from partwise.engine.reporter import AtWork, Reporter
from partwise.engine.trained_models import ShardModels
from partwise.engine.worker.attempts import Attempts, supervise
from partwise.engine.worker.child import discard_child
from partwise.engine.worker.machine_slots import SharedMachine
from partwise.engine.worker.scratch import check_scratch, own_scratch
from partwise.engine.worker.segments import SegmentWriter
from partwise.engine.worker.shard_plan import ShardPlan, plan_shard
from partwise.environments.building import BuiltEnvironment, open_environment
from partwise.errors import (
    ArtifactNotFoundError,
    ClusterError,
    PartwiseError,
    ScratchError,
    StoreError,
)
from partwise.formatting import shortened, visible
from partwise.outcomes import PartitionStatus
from partwise.runs.contents import files_there, read_committed
from partwise.runs.documents import segment_file
from partwise.runs.key_texts import row_key_text
from partwise.runs.kinds import KINDS
from partwise.runs.ledger import LedgerRow
from partwise.runs.outputs import rewrite_partial_files
from partwise.runs.run import Run
from partwise.shuffle.shared_folder import StagedFile, fetch, fetch_shard
from partwise.shuffle.sorted_shards import ShardReader, SortedShard, sort_shard
from partwise.store.signing import keys_of_blocks
from partwise.store.store import Store
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.keys.partition_keys import chosen_keys, encode_keys, partition_seed


def run_on(
    host: Host,
    assignment: ShardAssignment,
    is_stopped: Callable[[], bool],
    gpus: Sequence[str] = (),
) -> ShardReceipt:
    """Work on one shard on a host, with these GPUs where the options say how many."""
    with folder_of_work(host, "shard-") as directory:
        return ShardRun(assignment, host, directory, is_stopped, gpus).run()


@contextmanager
def folder_of_work(host: Host, prefix: str) -> Iterator[str]:
    """Give work on a host a folder of its own; where it fails, its child is not used again.

    Raises:
        ScratchError: It failed since the disk of that folder is full or broken.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=own_scratch(host.folder)) as directory:
            try:
                yield directory
            except BaseException:
                # The child may be in the midst of it; what comes next must not hear of that.
                discard_child()
                raise
    except (OSError, ClusterError, pa.ArrowException) as error:
        if not isinstance(error, StoreError | ScratchError):
            check_scratch(host.folder, str(error))
        raise


class ShardRun:
    """One execution of one shard."""

    def __init__(
        self,
        assignment: ShardAssignment,
        host: Host,
        directory: str,
        is_stopped: Callable[[], bool],
        gpus: Sequence[str] = (),
    ) -> None:
        self._gpus = gpus
        self._assignment = assignment
        self._execution = assignment.execution
        self._is_stopped = is_stopped
        self._directory = directory
        self._began = time.monotonic()
        self._host_name = f"{socket.gethostname()}/{host.name}"
        self._shared = execution_folder(host, self._execution.token)
        self._reporter = Reporter(host, assignment)
        self._at_work: Callable[[], AtWork] = lambda: None

    def run(self) -> ShardReceipt:
        """Run it."""
        self._reporter.begin("it reads its rows")
        # Before anything is read: a disk, or a network file system, may hang in that as well.
        with self._reporter.beating():
            self._open()
            return self._run()

    def _open(self) -> None:
        """Make the rows and what belongs to them ready on this machine."""
        assignment, directory = self._assignment, self._directory
        os.makedirs(self._shared, exist_ok=True)
        sharded = fetch_shard(
            assignment.shard, assignment.where, self._execution.store, self._shared, directory
        )
        self._shard: SortedShard = sort_shard(sharded, self._execution.key_columns, directory)
        self._chosen = list(range(len(self._shard.partition_ids)))
        if assignment.only is not None:
            self._chosen = chosen_keys(self._shard.keys, assignment.only)
        names = self._shard.partition_ids
        self._reporter.name_partitions(lambda name: self._name(names.index(name)))
        self._reader = ShardReader(self._shard.path)
        self._params = None if assignment.params is None else self._fetch(assignment.params)
        self._models = None
        if assignment.models is not None:
            self._models = ShardModels.read(self._fetch(assignment.models), self._shard.keys)

    def _run(self) -> ShardReceipt:
        execution = self._execution
        self._writer = SegmentWriter(execution, self._assignment.number, self._shard.keys)
        plan = self._plan()
        counts = Counter(plan.committed)
        kept = 0
        if plan.kept is not None:
            kept = plan.kept.num_rows
            counts[PartitionStatus.DONE.value] += kept
            self._writer.carry(self._take_over(plan.kept))
        self._reporter.keep(counts, kept)
        if plan.waiting:
            self._reporter.begin("it gets ready to run partitions")
            with open_environment(execution.environment) as packages:
                waiting = [self._chosen[place] for place in plan.waiting]
                try:
                    for row in self._run_all(waiting, packages):
                        counts[row.status] += 1
                        self._reporter.add(row)
                        self._commit_if_due()
                except ScratchError:
                    # What is done stays; where the store is on the same disk, what was committed.
                    with suppress(PartwiseError):
                        self._commit()
                    raise
        self._commit()
        self._reporter.report()
        partitions = len(self._chosen)
        return ShardReceipt(
            shard=self._assignment.number,
            partitions=partitions,
            counts=dict(counts),
            kept=kept,
            seconds=time.monotonic() - self._began,
            complete=counts.total() == partitions,
            damaged=self._damaged,
        )

    def _commit_if_due(self) -> None:
        if self._writer.is_due:
            self._commit()

    def _commit(self) -> None:
        self._reporter.begin("it writes to the store")
        self._writer.commit()
        self._tell_partitions()

    def _tell_partitions(self) -> None:
        self._reporter.begin("it waits for its process", self._at_work)

    def _plan(self) -> ShardPlan:
        """Compare the shard with what is committed of it."""
        execution, shard = self._execution, self._shard
        params = {} if self._params is None else params_fingerprints(self._params)
        models = dict.fromkeys(self._chosen, execution.without_model)
        if self._models is not None:
            of_all = execution.compares_models
            found = {i: self._models.checksum(i, of_all=of_all) for i in self._chosen}
            models |= {i: checksum for i, checksum in found.items() if checksum is not None}
        rows = {
            i: (
                self._reader.fingerprint(int(shard.offsets[i]), int(shard.offsets[i + 1])),
                self._reader.codes_fingerprint(int(shard.offsets[i]), execution.reads),
                params.get(shard.partition_ids[i]),
            )
            for i in self._chosen
        }
        self._fingerprints = {i: combine(*own, models[i]) for i, own in rows.items()}
        self._as_trained = {}
        if execution.compares_models:
            self._as_trained = {i: combine(*own, None) for i, own in rows.items()}
        committed = read_committed(
            execution.store,
            execution.run_id,
            self._assignment.number,
            execution.generation,
            execution.compatible,
            ids=shard.partition_ids,
            key_types=shard.keys.schema.types,
            keeps_done=execution.keeps_done,
            is_signed=execution.is_signed,
        )
        self._earlier = committed.earlier
        self._damaged = committed.damaged
        files: set[str] = set()
        # The store is listed only where there is something to keep.
        if committed.earlier is not None:
            number = self._assignment.number
            files = files_there(execution.store, execution.run_id, execution.kind, number)
        return plan_shard(
            [shard.partition_ids[i] for i in self._chosen],
            None if execution.keeps_done else list(self._fingerprints.values()),
            committed.current,
            committed.earlier,
            files,
        )

    def _take_over(self, kept: pa.Table) -> pa.Table:
        """Take output rows out of files that hold others too: those files go when the run ends."""
        execution = self._execution
        shard, token, numbers = self._assignment.number, self._writer.token, itertools.count()
        names = {
            name: f"{KINDS[execution.kind].outputs}/"
            + segment_file(shard, token, 0, f"{next(numbers)}.parquet")
            for name in kept["rows_file"].drop_null().unique().to_pylist()
        }
        return rewrite_partial_files(execution.store, execution.run_id, kept, names.__getitem__)

    def _run_all(self, waiting: list[int], packages: BuiltEnvironment) -> Iterator[LedgerRow]:
        """Run partitions, and write a row of each that is settled."""
        with SharedMachine(self._execution.token, self._is_stopped) as machine:
            supervisor = supervise(
                self._execution,
                self._fetch(self._execution.work),
                self._describe_shard(waiting),
                directory=self._shared,
                download=self._download,
                is_stopped=self._is_stopped,
                gpus=self._gpus,
                packages=packages,
                # What is done is not to wait for a neighbour that takes hours.
                while_waiting=self._commit_if_due,
            )
            attempts = Attempts(
                execution=self._execution,
                shard=self._assignment.number,
                fingerprints=self._fingerprints,
                host=self._host_name,
                supervisor=supervisor,
                writer=self._writer,
                on_remarks=self._reporter.add_remarks,
                alone=machine.alone,
            )
            self._at_work = lambda: self._clause(supervisor.at_work())
            self._tell_partitions()
            yield from attempts.run(waiting)

    def _clause(self, at_work: tuple[int, float] | None) -> AtWork:
        if at_work is None:
            return None
        index, seconds = at_work
        place = bisect.bisect_left(self._chosen, index)
        return f"partition {self._name(index)} runs", seconds, place

    def _name(self, index: int) -> str:
        """Return the key of a partition for a line of a log."""
        text = row_key_text(self._shard.keys, index) or self._shard.partition_ids[index]
        return visible(shortened(text))

    def _describe_shard(self, waiting: list[int]) -> OpenShard:
        """Return what a child needs to know of the shard."""
        execution, shard = self._execution, self._shard
        columns = execution.key_columns
        models = {}
        if self._models is not None:
            models = self._models.locate(
                waiting, execution.store, self._directory, self._as_trained
            )
        return OpenShard(
            path=shard.path,
            keys=table_bytes(shard.keys),
            key_columns=[column.name for column in columns],
            partition_ids=shard.partition_ids,
            offsets=shard.offsets.tolist(),
            seeds=[partition_seed(execution.seed, key) for key in encode_keys(shard.keys, columns)],
            params=self._params,
            models=models,
            run_id=execution.run_id,
            all_rows=execution.all_rows,
            all_partitions=execution.all_partitions,
        )

    def _download(self, index: int, filename: str, run_id: str | None) -> bytes:
        """Return an artifact that some run has of a partition, for its function."""
        # An earlier run may have left its caller's keys in this process.
        with keys_of_blocks(count=self._execution.is_signed):
            return self._artifact(index, filename, run_id)

    def _artifact(self, index: int, filename: str, run_id: str | None) -> bytes:
        execution = self._execution
        name = self._shard.partition_ids[index]
        if run_id is not None and run_id != execution.run_id:
            generation = None
            # Under another name, and in an older generation, if its model is used here.
            if self._models is not None and (owner := self._models.owner(index, run_id)):
                name, generation = owner
            run = open_run(execution.store, run_id, generation, execution.token)
            return run.read_artifact(name, filename)
        # Of this run, what an earlier generation committed: a ledger of this one is only written.
        row = self._earlier_rows.get(name)
        if row is None:
            raise ArtifactNotFoundError(
                f"The partition {name} has no artifact {filename!r} yet in the run "
                f"{execution.run_id!r}; pass run_id= for that of another run."
            )
        return self._run_handle.read_artifact_of(row, filename)

    @cached_property
    def _run_handle(self) -> Run:
        return Run.open(self._execution.run_id, self._execution.store)

    @cached_property
    def _earlier_rows(self) -> dict[str, dict[str, Any]]:
        rows = [] if self._earlier is None else self._earlier.to_pylist()
        return {row["partition_id"]: row for row in rows}

    def _fetch(self, staged: StagedFile) -> str:
        return fetch(staged, self._execution.store, self._shared)


def combine(rows: str, codes: str | None, params: str | None, model: str | None) -> str:
    """Return the fingerprint of a partition: of its rows, its params and its trained model.

    `codes` is of the categories that stand for some of them; None: no column has any.
    """
    if codes is not None:
        rows = f"{rows}:{codes}"
    elif params is None and model is None:
        return rows
    return hashlib.sha256(f"{rows}:{params}:{model}".encode()).hexdigest()


@lru_cache(maxsize=8)
def open_run(
    store: Store,
    run_id: str,
    generation: int | None,
    token: str,  # noqa: ARG001 (what is cached)
) -> Run:
    """Open another run, once per execution: its ledger is read as it stood then."""
    return Run.open(run_id, store, generation=generation)


def execution_folder(host: Host, token: str) -> str:
    """Return the folder that the shards of an execution share on a worker."""
    return os.path.join(host.folder, f"partwise-{token}")
