"""What a function may come to, and what then stands in the run; retries; failure budgets."""

import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import ModelNotFoundError, PartitionNotFoundError, RunFailedError
from partwise.flows import map_partitions, run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Result, RunStatus, Skip
from partwise.reports.next_command import next_command
from partwise.runs.bundle import SKETCH_FILENAME
from partwise.runs.run import Run

KEYS = [
    "a model",
    "a result",
    "a result without model",
    "a skip",
    "None",
    "bad 1",
    "bad 2",
    "bad 3",
    "worse",
    "long message",
    "metric that is not a number",
    "metrics like columns",
    "not a number",
    "second attempt",
    "interrupt",
    "exit",
    "unprintable",
    "unprintable skip",
    "unprintable metric",
    *(MADE := ["an upload", "an upload and a result without model", "a report"]),
    "an upload and a skip",
]


def raise_for(key: str) -> None:
    raise ValueError(f"nothing to be learned from {key!r}")


def make(context) -> None:
    if context.key.startswith("an upload"):
        context.upload("made", "note.txt")
    elif context.key == "a report":
        context.report(step=1, metric=0.5)


def behave(key: str, attempt: int):
    match key:
        case "an upload" | "a report":
            return None
        case "an upload and a result without model":
            return Result(None, metrics={"rmse": 8})
        case "an upload and a skip":
            return Skip("of no use")
        case "a model":
            return {"mean": 1.0}
        case "a result":
            return Result({"mean": 2.0}, metrics={"rmse": 0.5, "bias": -1})
        case "a result without model":
            return Result(None, metrics={"rmse": 7})
        case "a skip":
            return Skip("too few rows")
        case "None":
            return None
        case "bad 1" | "bad 2" | "bad 3":
            raise_for(key)
        case "worse":
            raise KeyError("price")
        case "long message":
            raise RuntimeError("x" * 100_000)
        case "metric that is not a number":
            return Result({}, metrics={"rmse": "low"})
        case "metrics like columns":
            names = ["status", "metric.status", "rows", "partition_id", "store", "artifacts", ""]
            return Result({}, metrics={name: i for i, name in enumerate(names)})
        case "not a number":
            return Result({}, metrics={"rmse": float("nan"), "bias": float("inf")})
        case "second attempt":
            if attempt == 1:
                raise ConnectionError("the weather service is away")
            return Result({"attempt": attempt}, metrics={"rmse": 1})
        case "interrupt":
            raise KeyboardInterrupt
        case "exit":
            raise SystemExit("enough")
        case "unprintable":
            raise OSError("cannot read 'caf\udce9.csv'")
        case "unprintable skip":
            return Skip("cannot read 'caf\udce9.csv'")
        case "unprintable metric":
            return Result({}, metrics={"caf\udce9": 1})
    return key


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("outcomes")


@pytest.fixture(scope="module")
def run(cluster, directory) -> Run:
    scratch = str(directory)

    def fit(data, context):
        with open(Path(scratch, "executed"), "a") as file:
            file.write(f"{context.key}|{context.attempt}\n")
        print(f"attempt {context.attempt} at {context.key}")
        make(context)
        return behave(context.key, context.attempt)

    table = pa.table({"store": KEYS * 2, "value": range(2 * len(KEYS))})
    return train_models(
        table,
        "store",
        fit,
        run_id="outcomes",
        store=directory,
        serde=PickleSerde(),
        execution=ExecutionOptions(n_shards=3, retry_backoff_s=0.01),
        cluster=cluster,
    )


def row(run: Run, key: str, column: str = "store") -> dict:
    [found] = run.partitions.filter(pc.equal(run.partitions[column], key)).to_pylist()
    return found


def test_every_partition_has_its_status(run) -> None:
    rows = run.partitions.select(["store", "status"]).to_pylist()
    statuses = {row["store"]: row["status"] for row in rows}
    skipped = {"a skip", "None", "a result without model", "unprintable skip"}
    skipped |= {"an upload and a skip"}
    done = {"a model", "a result", "metrics like columns", "not a number", "second attempt"}
    done |= {"unprintable metric", *MADE}
    assert statuses == {
        key: "SKIPPED" if key in skipped else "DONE" if key in done else "FAILED" for key in KEYS
    }
    assert run.status is RunStatus.PARTIAL_FAILURE
    assert run.counts == dict(Counter(statuses.values()))
    assert set(run.partitions["rows"].to_pylist()) == {2}


def test_models_are_there_for_the_done_and_explained_for_the_others(run) -> None:
    assert run.model("a model", PickleSerde()) == {"mean": 1.0}
    assert run.model("a result", PickleSerde()) == {"mean": 2.0}
    for key, why in {"a skip": "SKIPPED.*too few rows", "bad 1": "FAILED.*'bad 1'"}.items():
        with pytest.raises(ModelNotFoundError, match=why):
            run.model(key, PickleSerde())
    with pytest.raises(PartitionNotFoundError, match="'outcomes' has no partition 'bad 4'"):
        run.model("bad 4")


def test_what_is_made_is_the_result_where_none_is_returned(run) -> None:
    assert run.artifact("an upload", "note.txt") == "made"
    assert row(run, "an upload and a result without model")["rmse"] == 8.0
    for key in MADE:
        with pytest.raises(ModelNotFoundError, match="is DONE and has no model: it wrote none"):
            run.model(key)


def test_inference_finds_no_model_where_a_function_made_something_else(
    run, directory, cluster
) -> None:
    def predict(data, model, context):
        context.upload(str(model["mean"]), "seen.txt")

    table = pa.table({"store": ["a model", "an upload"], "value": [1, 2]})
    used = run_inference(
        table,
        "store",
        "outcomes",
        predict=predict,
        serde=PickleSerde(),
        store=directory,
        cluster=cluster,
        on_missing_model="skip",
    )
    assert row(used, "a model")["status"] == "DONE"
    assert used.artifact("a model", "seen.txt") == "1.0"
    assert row(used, "an upload")["status"] == "SKIPPED"
    assert used.predictions().num_rows == 0
    assert f"runs export {used.run_id} --what artifacts" in next_command(used)[0]


@pytest.mark.slow
def test_a_model_that_cannot_be_kept_ends_the_run(cluster, tmp_path) -> None:
    def fit(data, context):
        Path(scratch, context.partition_id).touch()
        time.sleep(0.01)
        return ["no", "model"] if context.key == 2 else Result(None, {"rmse": 1})

    scratch = tmp_path / "seen"
    scratch.mkdir()
    table = pa.table({"key": range(2_000)})
    place = {"store": tmp_path, "cluster": cluster}
    options = ExecutionOptions(n_shards=4, first_segment_s=0.01)
    with pytest.raises(
        RunFailedError, match=r"type builtins.list: pass serde=PickleSerde"
    ) as caught:
        train_models(table, "key", fit, run_id="unkept", execution=options, **place)
    run = caught.value.run
    assert run.status is RunStatus.FAILURE
    assert (run.counts["FAILED"], row(run, 2, "key")["attempts"]) == (1, 1)
    assert run.counts["CANCELLED"] > 200
    assert len(list(scratch.iterdir())) < 1_800
    # What was done stands.
    assert run.counts["SKIPPED"] > 0


def test_metrics_are_columns(run) -> None:
    assert row(run, "a result")["rmse"] == 0.5
    assert row(run, "a result")["bias"] == -1.0
    assert row(run, "a model")["rmse"] is None
    assert row(run, "a result without model")["rmse"] == 7.0
    assert run.partitions.schema.field("rmse").type == pa.float64()


def test_metrics_that_are_not_finite_stay_what_they_are(run) -> None:
    metrics = row(run, "not a number")
    assert metrics["rmse"] != metrics["rmse"]
    assert metrics["bias"] == float("inf")


def test_metrics_named_like_columns_lose_nothing(run) -> None:
    assert len(set(run.partitions.column_names)) == run.partitions.num_columns
    found = row(run, "metrics like columns")
    assert found["status"] == "DONE"
    assert found["rows"] == 2
    values = {name: value for name, value in found.items() if isinstance(value, float)}
    del values["seconds"]
    assert sorted(values.values()) == [0, 1, 2, 3, 4, 5, 6]
    assert values["metric.rows"] == 2
    assert values["metric.store"] == 4


def test_skips_say_why(run) -> None:
    assert row(run, "a skip")["reason"] == "too few rows"
    assert "None" in row(run, "None")["reason"]
    assert "None" in row(run, "a result without model")["reason"]


def test_a_failure_is_told_by_type_message_and_traceback(run) -> None:
    failed = row(run, "bad 2")
    assert failed["error_type"] == "ValueError"
    assert failed["error_message"] == "nothing to be learned from 'bad 2'"
    assert failed["reason"] == "exception"
    log = run.logs("bad 2")
    assert "attempt 2 at bad 2" in log
    assert "Traceback (most recent call last)" in log
    assert "in raise_for" in log
    assert "ValueError: nothing to be learned from 'bad 2'" in log


def test_a_skip_or_failure_keeps_no_model_but_its_log(run) -> None:
    assert run.artifacts("bad 1") == ["log.txt"]
    assert run.artifacts("a skip") == ["log.txt"]
    assert sorted(run.artifacts("a model")) == ["log.txt", "model.pkl", SKETCH_FILENAME]


def test_equal_failures_are_one_group(run) -> None:
    fingerprints = {key: row(run, key)["error_fingerprint"] for key in KEYS}
    assert fingerprints["bad 1"] == fingerprints["bad 2"] == fingerprints["bad 3"]
    others = [fingerprints[key] for key in ("bad 1", "worse", "interrupt", "exit", "long message")]
    assert len(set(others)) == 5
    failures = run.failures().to_pylist()
    assert failures[0]["count"] == 3
    assert failures[0]["error_type"] == "ValueError"
    assert sorted(failures[0]["sample"]) == sorted(
        map(run.partition_id, ("bad 1", "bad 2", "bad 3"))
    )
    assert sum(group["count"] for group in failures) == run.counts["FAILED"]


def test_a_long_message_is_cut(run) -> None:
    message = row(run, "long message")["error_message"]
    assert len(message) < 3000
    assert message.endswith("(100000 characters)")


def test_text_that_cannot_be_encoded_is_escaped(run) -> None:
    assert row(run, "unprintable")["error_message"] == r"cannot read 'caf\udce9.csv'"
    assert row(run, "unprintable skip")["reason"] == r"cannot read 'caf\udce9.csv'"
    assert row(run, "unprintable metric")[r"caf\udce9"] == 1


def test_a_metric_that_is_no_number_fails_its_partition_by_name(run) -> None:
    assert "'rmse' is 'low'" in row(run, "metric that is not a number")["error_message"]


def test_failures_are_tried_again_and_successes_are_not(run, directory) -> None:
    executed = Counter(Path(directory, "executed").read_text().splitlines())
    failed = {key for key in KEYS if row(run, key)["status"] == "FAILED"} | {"second attempt"}
    expected = {f"{key}|1": 1 for key in KEYS} | {f"{key}|2": 1 for key in failed}
    assert executed == expected
    attempts = {key: row(run, key)["attempts"] for key in KEYS}
    assert attempts == {key: 2 if key in failed else 1 for key in KEYS}
    assert run.model("second attempt", PickleSerde()) == {"attempt": 2}


def test_the_log_of_a_retried_success_tells_of_both_attempts(run) -> None:
    log = run.logs("second attempt")
    assert "attempt 1 at" in log
    assert "the weather service is away" in log
    assert "attempt 2 at" in log


def test_another_process_sees_the_same(run, directory) -> None:
    opened = Run.open("outcomes", directory)
    columns = ["store", "partition_id", "status", "reason", "attempts", "error_message"]
    assert opened.partitions.select(columns).equals(run.partitions.select(columns))
    assert opened.status is RunStatus.PARTIAL_FAILURE


def test_key_columns_named_like_ledger_columns(cluster, tmp_path) -> None:
    table = pa.table(
        {
            "status": ["DONE", "FAILED", "FAILED"],
            "rows": [7, 8, 8],
            "partition_id": ["x", "y", "y"],
            "key.rows": [1.5, 2.5, 2.5],
            "value": [1.0, 2.0, 3.0],
        }
    )
    run = map_partitions(
        table,
        ["status", "rows", "partition_id", "key.rows"],
        lambda data, context: Result({"sum": [len(data)]}, metrics={"status": 9}),
        store=tmp_path,
        execution=ExecutionOptions(n_shards=2),
        cluster=cluster,
    )
    assert run.counts == {"DONE": 2}
    shown = run.partitions
    assert len(set(shown.column_names)) == shown.num_columns
    assert shown["key.status"].to_pylist() == ["DONE", "FAILED"]
    assert shown["status"].to_pylist() == ["DONE", "DONE"]
    assert shown["rows"].to_pylist() == [1, 2]
    assert sorted(value for row in shown.to_pylist() for value in row.values() if value == 2.5)
    assert shown["metric.status"].to_pylist() == [9.0, 9.0]
    assert run.logs(("DONE", 7, "x", 1.5)) == ""
    assert run.predictions().to_pylist()[-1] == {
        "status": "FAILED",
        "rows": 8,
        "partition_id": "y",
        "key.rows": 2.5,
        "sum": 2,
    }


def numbers(partitions: int) -> pa.Table:
    return pa.table({"key": range(partitions), "value": range(partitions)})


def fail_from(first: int, seconds: float):
    """A function that fails for the keys from `first` on."""

    def function(data, context):
        time.sleep(seconds)
        if context.key >= first:
            raise ValueError("too large\nby far")
        return {"key_seen": [context.key]}

    return function


@pytest.mark.parametrize(
    ("options", "budget"),
    [({"max_failed": 2}, 2), ({"max_failed_fraction": 0.05}, 3)],
    ids=["max_failed", "max_failed_fraction"],
)
def test_an_exceeded_budget_stops_the_run_and_keeps_what_is_done(
    cluster, tmp_path, options, budget
) -> None:
    with pytest.raises(RunFailedError, match="failure budget") as caught:
        map_partitions(
            numbers(60),
            "key",
            fail_from(5, 0.1),
            run_id="budget",
            store=tmp_path,
            execution=ExecutionOptions(n_shards=6, max_retries=0, **options),
            cluster=cluster,
        )
    run = caught.value.run
    assert run.status is RunStatus.FAILURE
    assert run.summary.counts == run.counts
    assert sum(run.counts.values()) == 60
    assert run.counts["CANCELLED"] > 20
    assert run.counts["FAILED"] > budget
    assert f"the failure budget is {budget}" in str(caught.value)
    assert "ValueError: too large" in str(caught.value)
    done = run.partitions.filter(pc.equal(run.partitions["status"], "DONE"))["key"].to_pylist()
    assert sorted(run.predictions()["key_seen"].to_pylist() if done else []) == done
    cancelled = run.partitions.filter(pc.equal(run.partitions["status"], "CANCELLED"))
    assert all("failure budget" in reason for reason in cancelled["reason"].to_pylist())


def test_fail_fast_does_not_wait_for_the_partition_at_work(cluster, tmp_path) -> None:
    def function(data, context):
        if context.key == 1:
            raise ValueError("no")
        if context.key == 2:
            time.sleep(6000)

    with pytest.raises(RunFailedError, match="1 CANCELLED, 1 DONE, 1 FAILED") as caught:
        map_partitions(
            numbers(3),
            "key",
            function,
            store=tmp_path,
            execution=ExecutionOptions(n_shards=1, max_retries=0, fail_fast=True),
            cluster=cluster,
        )
    assert caught.value.run.partitions["status"].to_pylist() == ["DONE", "FAILED", "CANCELLED"]


def test_failures_within_the_budget_do_not_stop_the_run(cluster, tmp_path) -> None:
    run = map_partitions(
        numbers(20),
        "key",
        fail_from(18, 0.0),
        store=tmp_path,
        execution=ExecutionOptions(n_shards=1, max_retries=0, max_failed=2),
        cluster=cluster,
    )
    assert run.counts == {"DONE": 18, "FAILED": 2}
    assert run.status is RunStatus.PARTIAL_FAILURE


def test_a_run_of_which_nothing_is_done_has_failed(cluster, tmp_path) -> None:
    with pytest.raises(
        RunFailedError, match=r"4 FAILED.*4 x ValueError: too large by far"
    ) as caught:
        map_partitions(
            numbers(4),
            "key",
            fail_from(0, 0.0),
            store=tmp_path,
            execution=ExecutionOptions(n_shards=1, max_retries=0),
            cluster=cluster,
        )
    assert "\n" not in str(caught.value)
    assert caught.value.run.counts == {"FAILED": 4}


def test_a_store_that_refuses_in_mid_run_is_named_as_the_cause(cluster, tmp_path) -> None:
    def function(data, context):
        """Put a file where the workers want a folder."""
        Path(tmp_path, "runs", "refused", "ledger").write_text("")

    with pytest.raises(
        RunFailedError, match=r"2 x INTERNAL_ERROR: StoreError: Cannot.*ledger"
    ) as caught:
        map_partitions(
            numbers(2),
            "key",
            function,
            run_id="refused",
            store=tmp_path,
            execution=ExecutionOptions(n_shards=1),
            cluster=cluster,
        )
    assert "\n" not in str(caught.value)
    assert caught.value.run.counts == {"INTERNAL_ERROR": 2}


def test_dropped_rows_are_counted_and_told(cluster, tmp_path) -> None:
    run = map_partitions(
        pa.table({"key": [1, None, 2, None, None]}),
        "key",
        lambda data, context: None,
        store=tmp_path,
        null_keys="drop",
        execution=ExecutionOptions(n_shards=1),
        cluster=cluster,
    )
    assert run.counts == {"DONE": 2}
    assert (run.summary.rows, run.summary.dropped_rows) == (2, 3)
    assert run.summary.message.endswith(" 3 rows with a null key were dropped.")


def test_a_lambda_that_returns_nothing_is_done_when_mapping(cluster, tmp_path) -> None:
    run = map_partitions(
        numbers(3),
        "key",
        lambda data, context: None,
        store=tmp_path,
        execution=ExecutionOptions(n_shards=1),
        cluster=cluster,
    )
    assert run.counts == {"DONE": 3}
    assert run.predictions().num_rows == 0
