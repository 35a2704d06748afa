"""The work on a trial: run it in a child as a partition is run, and commit it as a segment.

It knows its worker only as a `Host`, so that a test can run a trial in its own process.
"""

import os
import pickle
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from partwise.engine.host import Host
from partwise.engine.messages import OpenShard
from partwise.engine.outcome import Outcome
from partwise.engine.params_file import write_params
from partwise.engine.worker.attempts import Attempts, supervise
from partwise.engine.worker.machine_slots import SharedMachine
from partwise.engine.worker.segments import SegmentWriter
from partwise.engine.worker.shard_run import execution_folder, folder_of_work, open_run
from partwise.environments.building import open_environment
from partwise.errors import ArtifactNotFoundError
from partwise.outcomes import PartitionStatus
from partwise.runs.trials import TRIAL, TRIAL_KEY, TrialRecord
from partwise.shuffle.shared_folder import fetch
from partwise.store.signing import keys_of_blocks
from partwise.studies.assignment import TrialAssignment, TrialReceipt
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.keys.partition_keys import partition_ids, partition_seed


@dataclass(slots=True, kw_only=True)
class TrialRun:
    """One execution of one trial."""

    assignment: TrialAssignment
    host: Host
    rows_path: str
    """Of the file with all rows, as `write_spooled` makes it."""
    rows: int
    is_stopped: Callable[[], bool]
    gpus: Sequence[str] = ()
    ask: Callable[[int, float], bool] | None = None
    """Asks the driver whether to give the trial up, after a step with its metric; None: no."""
    _reports: dict[int, float] = field(default_factory=dict)
    _is_given_up: bool = False

    def run(self) -> TrialReceipt | None:
        """Run it; None: the study is being stopped, and nothing is committed."""
        folder = execution_folder(self.host, self.assignment.execution.token)
        with folder_of_work(self.host, "trial-") as directory:
            os.makedirs(folder, exist_ok=True)
            return self._run(folder, directory)

    def _run(self, folder: str, directory: str) -> TrialReceipt | None:
        assignment, execution = self.assignment, self.assignment.execution
        keys = pa.table({TRIAL: pa.array([assignment.number], pa.int64())})
        opened = self._describe(keys, directory)
        writer = SegmentWriter(execution, assignment.number, keys)
        with (
            open_environment(execution.environment) as packages,
            SharedMachine(execution.token, self.is_stopped) as machine,
        ):
            supervisor = supervise(
                execution,
                fetch(execution.work, execution.store, folder),
                opened,
                directory=folder,
                download=self._download,
                is_stopped=self.is_stopped,
                gpus=self.gpus,
                packages=packages,
                on_report=self._on_report,
            )
            attempts = Attempts(
                execution=execution,
                shard=assignment.number,
                fingerprints={0: assignment.fingerprint},
                host=f"{socket.gethostname()}/{self.host.name}",
                supervisor=supervisor,
                writer=writer,
                on_remarks=lambda *_: None,
                alone=machine.alone,
                describe_trial=lambda outcome: self._record(outcome).to_json(),
            )
            rows = list(attempts.run([0]))
        if not rows:
            return None
        writer.commit()
        (row,) = rows
        return TrialReceipt.of_row(row)

    def _describe(self, keys: pa.Table, directory: str) -> OpenShard:
        """Return all rows as the only partition of a shard, with the settings as its params."""
        execution, record = self.assignment.execution, self.assignment.record
        (name,) = partition_ids(keys, TRIAL_KEY)
        params = os.path.join(directory, "params")
        write_params(params, [name], [""], [pickle.dumps(dict(record.settings))])
        return OpenShard(
            path=self.rows_path,
            is_spooled=True,
            keys=table_bytes(keys),
            # The rows have no key: none of their columns is left out of the features.
            key_columns=[],
            partition_ids=[name],
            offsets=[0, self.rows],
            # The same for all trials, which are to be scored on the same rows.
            seeds=[partition_seed(execution.seed, b"study")],
            params=params,
            models={},
            run_id=execution.run_id,
        )

    def _on_report(self, step: int, value: float) -> bool:
        self._reports[step] = value
        self._is_given_up = self.ask is not None and self.ask(step, value)
        return self._is_given_up

    def _record(self, outcome: Outcome) -> TrialRecord:
        record = self.assignment.record
        is_done = outcome.status is PartitionStatus.DONE
        return replace(
            record,
            value=outcome.metrics[record.metric] if is_done else None,
            pruned=outcome.status is PartitionStatus.SKIPPED and self._is_given_up,
            reports=tuple(sorted(self._reports.items())),
        )

    def _download(self, index: int, filename: str, run_id: str | None) -> bytes:  # noqa: ARG002
        execution, number = self.assignment.execution, self.assignment.number
        if run_id is None or run_id == execution.run_id:
            raise ArtifactNotFoundError(f"The trial {number} has no artifact {filename!r} yet.")
        with keys_of_blocks(count=execution.is_signed):
            run = open_run(execution.store, run_id, None, execution.token)
            return run.read_artifact(run.partition_id(number), filename)
