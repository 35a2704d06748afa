"""What the driver of a study calls on a Dask worker: load the rows, run a trial, end the study."""

import pickle
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from partwise.cluster_calls import this_worker
from partwise.engine.assignment import Execution
from partwise.engine.worker.shard_run import execution_folder
from partwise.engine.worker.tasks import DaskHost, end_execution, held_slot, task_of
from partwise.errors import ClusterError
from partwise.ranks.rows import SourceFragments
from partwise.shuffle.shared_folder import StagedFile, fetch
from partwise.store.store import Store
from partwise.studies.assignment import BEGUN, Question, TrialAssignment, TrialReceipt
from partwise.studies.host_rows import forget_rows, map_rows
from partwise.studies.trial_run import TrialRun

if TYPE_CHECKING:
    from distributed import Worker

ANSWER_S = 10.0
"""A trial goes on when the driver has not answered for so long."""


@dataclass(slots=True)
class _Asked:
    """A question that the driver has not answered."""

    answered: threading.Event = field(default_factory=threading.Event)
    gives_up: bool = False


_asked: dict[tuple[str, int, int], _Asked] = {}
"""By token, trial and step."""


def load_rows(rows: StagedFile, store: Store, token: str) -> int:
    """Have the rows of a study on this machine, and return how many there are."""
    with task_of(token, end_study):
        return map_rows(_read_fragments(rows, store, token), token)[1]


def _read_fragments(rows: StagedFile, store: Store, token: str) -> SourceFragments:
    folder = Path(execution_folder(DaskHost(this_worker()), token))
    folder.mkdir(parents=True, exist_ok=True)
    content = Path(fetch(rows, store, str(folder))).read_bytes()
    fragments: SourceFragments = pickle.loads(content)  # noqa: S301 (the driver's own)
    return fragments


def run_trial(assignment: TrialAssignment) -> TrialReceipt | None:
    """Work on one trial until its row is committed; None: the study is being stopped.

    Raises:
        StoreError: The store refused to take the segment.
        RunBusyError: The run ended without this execution.
        ClusterError: Child processes die here without running anything.
        SourceError: The rows cannot be read or written.
    """
    execution, worker = assignment.execution, this_worker()
    worker.log_event(execution.token, {BEGUN: assignment.number, "worker": worker.address})

    def ask(step: int, value: float) -> bool:
        return _ask(worker, execution, assignment.number, step, value)

    if assignment.rows is None:
        raise ClusterError("The trial has no rows here: a gang was to run it.")
    token = execution.token
    with task_of(token, end_study) as is_stopped, held_slot(execution, is_stopped) as gpus:
        path, count = map_rows(_read_fragments(assignment.rows, execution.store, token), token)
        run = TrialRun(
            assignment=assignment,
            host=DaskHost(worker),
            rows_path=path,
            rows=count,
            is_stopped=is_stopped,
            gpus=gpus,
            ask=ask if assignment.asks else None,
        )
        return run.run()


def _ask(worker: "Worker", execution: Execution, number: int, step: int, value: float) -> bool:
    """Ask the driver whether a trial is to be given up."""
    name = (execution.token, number, step)
    # Before it is asked: the answer may be here before log_event() returns.
    asked = _asked[name] = _Asked()
    question = Question(worker=worker.address, number=number, step=step, value=value)
    try:
        worker.log_event(execution.token, question.to_message())
        asked.answered.wait(ANSWER_S)
    finally:
        _asked.pop(name, None)
    return asked.gives_up


def answer(token: str, number: int, step: int, *, gives_up: bool) -> None:
    """Answer a question of a trial at work on this worker."""
    asked = _asked.get((token, number, step))
    if asked is not None:
        asked.gives_up = gives_up
        asked.answered.set()


def end_study(token: str, dask_worker: "Worker") -> None:
    """Forget a study on this worker: its children, its files, its rows."""
    end_execution(token, dask_worker)
    forget_rows(token)
