"""A trial in this process: a real child, a real store, no Dask, no Prefect."""

import errno
import os
import signal
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.assignment import Execution, work_file
from partwise.engine.driver.payload import pack_work
from partwise.engine.options import ExecutionOptions
from partwise.engine.worker import scratch
from partwise.engine.worker.child import discard_child, end_marked
from partwise.engine.worker.machine_slots import SharedMachine
from partwise.engine.works import TrainWork
from partwise.errors import ScratchError
from partwise.evaluation import HoldoutFraction
from partwise.models.serdes import PickleSerde
from partwise.outcomes import PartitionStatus, Result, Skip
from partwise.ranks.staging import rank_source
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.run import Run
from partwise.runs.trials import TRIAL_KEY, TrialRecord
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.opening import open_source
from partwise.studies import trial_run
from partwise.studies.assignment import TrialAssignment
from partwise.studies.host_rows import forget_rows, map_rows
from partwise.studies.trial_run import TrialRun
from partwise.studies.work import ScoredTrainer, TrialWork
from partwise.trainers import LightGBMTrainer
from tests.engine.shards import TestHost

TABLE = pa.table({"trial": [1.0, 2.0, 3.0], "y": [1, 2, 3]})


@pytest.fixture
def try_settings(tmp_path, local_store, monkeypatch):
    """Run trials of a function, one after another, and return their receipts and the run."""
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    host = TestHost(tmp_path / "host")
    token = "trialruntest"

    def call(function, *settings, ask=None, is_stopped=lambda: False, **options):
        (tmp_path / "shared").mkdir(exist_ok=True)
        folder = SharedFolder(tmp_path / "shared", local_store, "run", token, shared=True)
        given = ExecutionOptions(**{"retry_backoff_s": 0.01, **options})
        work = TrialWork(train=TrainWork(function=function, serde=PickleSerde()), metric="loss")
        rows = rank_source(open_source(TABLE), folder, None)
        path, count = map_rows(rows, token)
        identity = Identity(run_id="run", kind="tune", key_columns=TRIAL_KEY)
        intent = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")
        with Claim(local_store, identity, "resume") as claim:
            claim.begin(n_shards=1, intent=intent)
            execution = Execution(
                token=token,
                run_id="run",
                kind="tune",
                generation=claim.generation,
                store=local_store,
                key_columns=TRIAL_KEY,
                seed=0,
                compatible=(),
                options=given,
                limits=given.limits_on(()),
                work=folder.write(work_file(token), pack_work(work, "work")),
            )
            receipts = [
                TrialRun(
                    assignment=TrialAssignment(
                        execution=execution,
                        rows=folder.write(f"rows-{number}", b""),
                        number=number,
                        record=TrialRecord(settings=each, metric="loss", maximized=False),
                        fingerprint="s",
                        asks=ask is not None,
                    ),
                    host=host,
                    rows_path=path,
                    rows=count,
                    is_stopped=is_stopped,
                    ask=ask,
                ).run()
                for number, each in enumerate(settings)
            ]
        return receipts, Run.open("run", local_store)

    yield call
    discard_child()
    end_marked(token)
    forget_rows(token)
    host.close()


def test_a_trial_has_all_rows_its_settings_and_a_model(try_settings) -> None:
    def train(data, context):
        table = data.to_arrow()
        context.report(step=1, metric=0.5)
        print("at work", context.key)
        total = sum(table["y"].to_pylist())
        return Result((total, os.getpid(), context.seed), {"loss": context.params["x"] * total})

    receipts, run = try_settings(train, {"x": 2.0}, {"x": 1.0, "word": "é"})
    assert [receipt.status for receipt in receipts] == ["DONE", "DONE"]
    assert receipts[0].record.value == 12.0
    assert receipts[0].record.reports == ((1, 0.5),)
    assert (run.best.number, run.best.value, run.best.settings) == (
        1,
        6.0,
        {"x": 1.0, "word": "é"},
    )
    models = [run.model(number, serde=PickleSerde()) for number in (0, 1)]
    assert models[0] == models[1], "one child runs both, and both have the seed of the study"
    assert run.model(serde=PickleSerde())[0] == 6
    assert "at work 1" in run.logs(1)
    assert run.partitions["trial"].to_pylist() == [0, 1]
    assert run.trials["word"].to_pylist() == [None, "é"]


def test_what_has_no_score_fails_with_its_reason(try_settings) -> None:
    def train(data, context):
        kind = context.params["kind"]
        if kind == "raise":
            raise ValueError("no way")
        if kind == "skip":
            return Skip("too few")
        return Result(1, {} if kind == "none" else {"loss": float("nan"), "other": 1})

    kinds = ["raise", "skip", "none", "nan"]
    receipts, run = try_settings(train, *({"kind": kind} for kind in kinds), max_retries=0)
    assert [receipt.status for receipt in receipts] == ["FAILED", "SKIPPED", "FAILED", "FAILED"]
    reasons = [receipt.reason for receipt in receipts]
    assert reasons[:2] == ["no way", "too few"]
    assert "the trainer returned none: return Result" in reasons[2]
    assert "'loss' of the trial is nan" in reasons[3]
    assert run.best is None
    assert not any(receipt.record.pruned for receipt in receipts)


def test_limits_retries_and_deaths_are_those_of_a_partition(try_settings) -> None:
    def train(data, context):
        kind = context.params["kind"]
        if kind == "once" and context.attempt == 1:
            raise ValueError("not yet")
        if kind == "dies":
            os._exit(3)
        if kind == "long":
            time.sleep(60)
        return Result(1, {"loss": 1.0})

    kinds = ["once", "dies", "long", "well"]
    settings = [{"kind": kind} for kind in kinds]
    _, run = try_settings(train, *settings, timeout_s=1.0)
    rows = run.partitions.select(["status", "attempts", "error_type"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("DONE", 2, None),
        ("FAILED", 2, "ProcessDied"),
        ("FAILED", 1, "PartitionTimeout"),
        ("DONE", 1, None),
    ]


def test_a_trial_that_was_killed_runs_again_when_it_is_alone_on_its_machine(
    try_settings, tmp_path
) -> None:
    killed = tmp_path / "killed"

    def train(data, context):
        if context.attempt == 1:
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Result(time.monotonic(), {"loss": 1.0})

    def neighbour() -> None:
        with SharedMachine("trialruntest", lambda: False):
            there.set()
            while not killed.exists():
                time.sleep(0.01)
            time.sleep(0.5)
            left.append(time.monotonic())

    left: list[float] = []
    there = threading.Event()
    thread = threading.Thread(target=neighbour)
    thread.start()
    there.wait()
    _, run = try_settings(train, {})
    thread.join()
    assert run.partitions["attempts"].to_pylist() == [2]
    assert run.model(serde=PickleSerde()) > left[0]


def test_a_trial_that_is_given_up_ends_at_that_step(try_settings) -> None:
    asked = []

    def ask(step: int, value: float) -> bool:
        asked.append((step, value))
        return step == 3

    def train(data, context):
        for step in range(10):
            context.report(step=step, metric=step / 2)
        return Result(1, {"loss": 1.0})

    (receipt,), run = try_settings(train, {}, ask=ask)
    assert (receipt.status, receipt.record.pruned) == (PartitionStatus.SKIPPED, True)
    assert asked == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)]
    assert receipt.record.reports == tuple(asked)
    assert run.trials["reason"].to_pylist() == ["the study gave it up at step 3, with 1.5"]


def test_a_stop_commits_nothing(try_settings) -> None:
    def train(data, context):
        time.sleep(60)

    began = time.monotonic()
    (receipt,), run = try_settings(train, {}, is_stopped=lambda: time.monotonic() - began > 0.5)
    assert receipt is None
    assert run.partitions.num_rows == 0


def test_rounds_report_the_metric_of_the_study_be_it_a_function_or_built_in(monkeypatch):
    def mae(labels, predictions):
        return 7.0

    reports = []
    monkeypatch.setattr(PartitionContext, "report", lambda self, **report: reports.append(report))
    rows = pa.table({"x": [float(x) for x in range(60)], "y": [float(x % 7) for x in range(60)]})
    for metric in (mae, "mae"):
        reports.clear()
        trainer = ScoredTrainer(
            trainer=LightGBMTrainer(label="y", rounds=3),
            evaluation=HoldoutFraction(),
            metric=metric,
            direction="",
            fit_on="auto",
        )
        trainer(DataConnector(rows), PartitionContext(seed=1))
        assert [report["step"] for report in reports] == [1, 2, 3]
        assert ({report["metric"] for report in reports} == {7.0}) == (metric is mae)


def test_a_trial_that_meets_a_full_disk_says_so(try_settings, monkeypatch) -> None:
    """And not that it failed itself: the study then begins no other."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(scratch, "ROOM_BYTES", 1 << 62)
    monkeypatch.setattr(trial_run, "write_params", refuse)
    with pytest.raises(ScratchError, match=r"scratch folder .* cannot be used: .*No space left"):
        try_settings(lambda data, context: Result(1, {"loss": 1.0}), {"x": 2.0})
