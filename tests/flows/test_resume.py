"""Resume and overwrite: what runs again, what is kept, and what a run holds afterwards."""

import logging
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from partwise.blocks import RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError, IntegrityError, RunExistsError, RunFailedError
from partwise.flows import map_partitions, run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Result, RunStatus, Skip
from partwise.runs import view
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.garbage import collect_garbage
from partwise.runs.ledger import read_ledger
from partwise.runs.run import Run

pytestmark = pytest.mark.usefixtures("single_shard")

KEYS = list("abcdefgh")
NOWHERE = RemoteCluster(address="tcp://127.0.0.1:9", connect_timeout_s=1)
"""A run that needed a cluster would fail."""


def table_of(values: dict[str, float]) -> pa.Table:
    keys = [key for key in values for _ in range(3)]
    return pa.table({"key": keys, "y": [values[key] + i for key in values for i in range(3)]})


def write(path: Path, table: pa.Table) -> str:
    """Write a Parquet file whose age tells it from the one before."""
    older = path.stat().st_mtime_ns if path.exists() else 0
    pq.write_table(table, path)
    os.utime(path, ns=(older + 10**9, older + 10**9))
    return str(path)


VALUES = {key: float(i) for i, key in enumerate(KEYS)}


class Calls:
    """The keys for which a function was called, told by the function itself."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def take(self) -> str:
        path = Path(self.path)
        keys = sorted(path.read_text().split()) if path.exists() else []
        path.unlink(missing_ok=True)
        return "".join(keys)


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path / "calls")


def trainer(calls: Calls, offset: float = 0.0):
    path = calls.path

    def fit(data, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        mean = sum(data.to_numpy("y")) / len(data)
        return Result({"mean": mean + offset, "seed": context.seed, **context.params})

    return fit


def mapper(calls: Calls):
    path = calls.path

    def rows(data, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        return {"y": data.to_numpy("y"), "twice": 2 * data.to_numpy("y")}

    return rows


@pytest.fixture
def train(cluster: RemoteCluster, tmp_path: Path, calls: Calls):
    """Call train_models for one run, each time with what differs."""

    def train(data, fit=None, **arguments) -> Run:
        given = {
            "run_id": "resumed",
            "store": tmp_path / "store",
            "serde": PickleSerde(),
            "on_existing_artifacts": "resume",
            "execution": ExecutionOptions(max_retries=0),
            "cluster": cluster,
        }
        if "resumed" not in os.listdir(_runs(tmp_path)):
            given["execution"] = ExecutionOptions(max_retries=0, n_shards=3)
        return train_models(data, "key", fit or trainer(calls), **(given | arguments))

    return train


@pytest.fixture
def flow_log() -> Iterator[list[str]]:
    """What flow runs log; Prefect takes handlers that are not its own away."""
    lines: list[str] = []

    def take(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return True

    logger = logging.getLogger("prefect.flow_runs")
    logger.addFilter(take)
    yield lines
    logger.removeFilter(take)


def _runs(tmp_path: Path) -> Path:
    path = tmp_path / "store" / "runs"
    path.mkdir(parents=True, exist_ok=True)
    return path


def statuses(run: Run) -> dict[str, str]:
    rows = run.partitions.select(["key", "status"]).to_pydict()
    return dict(zip(rows["key"], rows["status"], strict=True))


def means(run: Run) -> dict[str, float]:
    return {key: run.model(key, PickleSerde())["mean"] for key in statuses(run)}


def test_a_ledger_is_read_once_where_nothing_changed_and_not_at_the_end_of_a_run(
    train, tmp_path, monkeypatch
) -> None:
    """It is most of a driver's memory: 10 million partitions took 13.8 GB for it, read thrice."""
    path = write(tmp_path / "rows.parquet", table_of(VALUES))
    read: list[str] = []

    def counted(content: bytes, where: str) -> pa.Table:
        read.append(where)
        return read_ledger(content, where)

    monkeypatch.setattr(view, "read_ledger", counted)
    run = train(path)
    assert run.status.value == "SUCCESS"
    # It is the one that was written: what a reader would find.
    held = run.ledger
    assert read == []
    assert held.equals(run.refresh().ledger)
    read.clear()
    assert train(path).kept == 8
    assert read == ["resumed/generations/0001.ledger.parquet"]


def test_nothing_runs_when_nothing_changed_and_no_cluster_is_asked(train, tmp_path, calls) -> None:
    path = write(tmp_path / "rows.parquet", table_of(VALUES))
    first = train(path)
    assert calls.take() == "abcdefgh"
    assert (first.generation, first.executed, first.kept) == (1, 8, 0)
    for generation in (2, 3):
        again = train(path, cluster=NOWHERE)
        assert calls.take() == ""
        assert (again.generation, again.executed, again.kept) == (generation, 0, 8)
        assert again.status is RunStatus.SUCCESS
        assert means(again) == means(first)
    with pytest.raises(RunExistsError, match=r"'resumed' exists in .*SUCCESS.*'resume' or"):
        train(path, on_existing_artifacts="error", cluster=NOWHERE)
    write(tmp_path / "rows.parquet", table_of(VALUES | {"b": 50.0}))
    with pytest.raises(InputError, match="n_shards is 5, and the run 'resumed' needs 3"):
        train(path, execution=ExecutionOptions(n_shards=5))
    assert (first.refresh().generation, calls.take()) == (3, "")
    # What differs after such resumes is found all the same.
    changed = train(path)
    assert calls.take() == "b"
    assert (changed.generation, changed.executed, changed.kept) == (4, 1, 7)
    assert means(changed) == means(first) | {"b": 51.0}


def test_only_changed_and_new_partitions_run_and_vanished_ones_are_gone(train, calls) -> None:
    first = train(table_of(VALUES))
    calls.take()
    now = {key: value for key, value in VALUES.items() if key not in "cd"}
    now |= {"a": 10.0, "x": 11.0, "y": 12.0}
    run = train(table_of(now))
    assert calls.take() == "axy"
    assert (run.executed, run.kept) == (3, 5)
    assert means(run) == {key: value + 1 for key, value in now.items()}
    assert statuses(run) == dict.fromkeys("abefghxy", "DONE")
    assert statuses(first.refresh()) == statuses(run)
    # And back to what it was: what vanished was made of the same rows.
    run = train(table_of(VALUES))
    assert means(run) == {key: value + 1 for key, value in VALUES.items()}
    assert calls.take() == "a"


@pytest.mark.slow
def test_changed_code_runs_all_again_and_the_log_says_why(train, calls, flow_log) -> None:
    data = table_of({"a": 1.0, "b": 2.0})
    path, unknown = calls.path, random.Random(1)

    def fit(data, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        return {"mean": 1.0, "chance": unknown.random()}

    def told() -> str:
        [line] = [line for line in flow_log if "run again" in line]
        flow_log.clear()
        return line

    assert means(train(data)) == {"a": 2.0, "b": 3.0}
    assert calls.take() == "ab"
    run = train(data, trainer(calls, 10.0))
    assert calls.take() == "ab"
    assert (run.executed, run.kept) == (2, 0)
    assert means(run) == {"a": 12.0, "b": 13.0}
    assert "all partitions run again: trainer= has changed." in told()
    # One that is the same but for its seed, and the versions of what it imports.
    train(data, trainer(calls, 10.0), seed=4)
    assert calls.take() == "ab"
    assert "all partitions run again: seed= has changed." in told()
    for _ in range(2):
        run = train(data, fit)
        assert calls.take() == "ab"
        assert (run.executed, run.kept) == (2, 0)
        line = told()
        assert "unknown (random.Random)" in line
        assert "version=" in line


def test_only_what_failed_runs_again_though_code_and_rows_have_changed(
    train, calls, tmp_path, flow_log
) -> None:
    path = write(tmp_path / "rows.parquet", table_of(VALUES))
    done, with_mended_function = trainer(calls), trainer(calls, 10.0)

    def fit(data, context):
        return done(data, context) if context.key != "c" else 1 / 0

    first = train(path, fit)
    assert calls.take() == "abdefgh"
    assert statuses(first)["c"] == "FAILED"
    kept = {key: VALUES[key] + 1 for key in "abdefgh"}
    write(tmp_path / "rows.parquet", table_of(VALUES | {"b": 50.0, "new": 7.0}))
    run = train(path, with_mended_function, on_existing_artifacts="resume-failed")
    assert sorted(calls.take()) == sorted("cnew")
    assert (run.executed, run.kept, run.status) == (2, 7, RunStatus.SUCCESS)
    assert means(run) == kept | {"c": 13.0, "new": 18.0}
    [line] = [line for line in flow_log if "kept as they are" in line]
    said = "partitions that were DONE before are kept as they are, though trainer= has changed."
    assert said in line
    # The run says so too, and the next resume sees the rows that have changed.
    assert run.summary is not None
    assert run.summary.remark == said
    assert run.read_generation_document().compatible == (1,)
    again = train(path, with_mended_function)
    assert calls.take() == "b"
    assert means(again) == means(run) | {"b": 61.0}
    # Nothing has failed, and no code has changed: there is nothing to say.
    flow_log.clear()
    settled = train(path, with_mended_function, on_existing_artifacts="resume-failed")
    assert (settled.executed, settled.kept) == (0, 9)
    assert not [line for line in flow_log if "kept as they are" in line]


def test_what_fails_after_it_was_done_is_not_taken_from_an_older_generation(
    train, calls, tmp_path
) -> None:
    path = write(tmp_path / "rows.parquet", table_of(VALUES))
    other = trainer(calls, 10.0)

    def fit(data, context):
        return other(data, context) if context.key != "c" else 1 / 0

    train(path, trainer(calls))
    assert statuses(train(path, fit))["c"] == "FAILED"
    calls.take()
    run = train(path, trainer(calls, 20.0), on_existing_artifacts="resume-failed")
    assert calls.take() == "c"
    assert (run.executed, run.kept, run.status) == (1, 7, RunStatus.SUCCESS)
    assert means(run) == {key: value + 11 for key, value in VALUES.items()} | {"c": 23.0}


def test_a_changed_file_of_inputs_runs_all_again_and_a_missing_one_is_refused(
    train, calls, tmp_path, flow_log
) -> None:
    data = write(tmp_path / "rows.parquet", table_of(VALUES))
    folder = tmp_path / "words"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(name)
    missing = tmp_path / "missing.txt"
    with pytest.raises(InputError, match=r"files= names '.*missing.txt', which cannot be read"):
        train(data, files=[missing])
    train(data, files=[folder / "a.txt", f"{folder}/*.txt"])
    calls.take()
    assert train(data, files=[folder / "a.txt", f"{folder}/*.txt"], cluster=NOWHERE).executed == 0
    (folder / "b.txt").write_text("c.txt")
    again = train(data, files=[folder / "a.txt", f"{folder}/*.txt"])
    assert (again.executed, calls.take()) == (8, "abcdefgh")
    [line] = [line for line in flow_log if "run again" in line]
    assert f"the file {folder}/*.txt: b.txt of files= has changed." in line
    call = again.read_generation_document().call_known
    assert call["arguments"]["files"] == [str(folder / "a.txt"), f"{folder}/*.txt"]


@pytest.mark.slow
def test_changed_params_run_their_partitions_again(train, calls, tmp_path) -> None:
    path = write(tmp_path / "rows.parquet", table_of(VALUES))
    train(path, params={"a": {"depth": 1}, "b": {"depth": 2}})
    calls.take()
    same = {"b": {"depth": 2}, "a": {"depth": 1}}
    assert train(path, params=same, cluster=NOWHERE).executed == 0
    # What cannot be compared counts as changed, each time.
    changed = {"a": {"depth": 1}, "c": {"depth": 4}, "h": {"loss": lambda value: value}}
    run = train(path, params=changed)
    assert calls.take() == "bch"
    assert run.model("c", PickleSerde())["depth"] == 4
    assert "depth" not in run.model("b", PickleSerde())
    run = train(path, params=changed)
    assert calls.take() == "h"
    assert (run.executed, run.kept) == (1, 7)


@pytest.mark.slow
def test_a_changed_policy_for_null_keys_is_no_unchanged_run(train, calls, tmp_path) -> None:
    table = pa.table({"key": ["a", None, "b"], "y": [1.0, 2.0, 3.0]})
    path = write(tmp_path / "rows.parquet", table)
    assert train(path, null_keys="drop").summary.dropped_rows == 1
    calls.take()
    run = train(path, null_keys="keep")
    assert calls.take() == "None"
    assert (run.executed, run.kept) == (1, 2)
    assert run.model(None, PickleSerde())["mean"] == 2.0


def test_failed_and_skipped_partitions_run_again(train, calls, tmp_path) -> None:
    path, cure = calls.path, tmp_path / "cure"
    cured = str(cure)

    def fit(data, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        if os.path.exists(cured) or context.key not in "bc":
            return {"mean": 1.0}
        if context.key == "b":
            raise ValueError("not yet")
        return Skip("not yet")

    data = write(tmp_path / "rows.parquet", table_of(VALUES))
    assert train(data, fit).status is RunStatus.PARTIAL_FAILURE
    calls.take()
    cure.touch()
    run = train(data, fit)
    assert calls.take() == "bc"
    assert run.status is RunStatus.SUCCESS
    assert (run.executed, run.kept) == (2, 6)
    assert train(data, fit, cluster=NOWHERE).kept == 8


@pytest.mark.slow
def test_a_run_of_failures_only_can_be_resumed(train, calls, tmp_path) -> None:
    cure = str(tmp_path / "cure")

    def fit(data, context):
        if not os.path.exists(cure):
            raise ValueError("not yet")
        return {"mean": 1.0}

    with pytest.raises(RunFailedError, match="not yet") as failed:
        train(table_of(VALUES), fit)
    assert failed.value.run.counts == {"FAILED": 8}
    Path(cure).touch()
    assert train(table_of(VALUES), fit).counts == {"DONE": 8}


@pytest.mark.slow
def test_an_overwrite_replaces_all_and_nothing_older_is_ever_kept(train, calls, tmp_path) -> None:
    bad = str(tmp_path / "bad")
    path = calls.path

    def fit(data, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        if os.path.exists(bad) and context.key in "ab":
            raise ValueError("bad")
        return {"mean": os.path.exists(bad)}

    data = table_of(VALUES)
    train(data, fit)
    calls.take()
    Path(bad).touch()
    run = train(data, fit, on_existing_artifacts="overwrite")
    assert calls.take() == "abcdefgh"
    assert (run.generation, run.executed, run.kept) == (2, 8, 0)
    assert statuses(run)["a"] == "FAILED"
    # The first generation has models of a and b, of the same rows and code; they are overwritten.
    run = train(data, fit)
    assert calls.take() == "ab"
    assert (run.executed, run.kept) == (2, 6)
    assert statuses(run)["a"] == "FAILED"


def rows_of(run: Run, folder: str) -> list[dict[str, object]]:
    """Read the folder of output rows as anybody would who knows nothing of ledgers."""
    dataset = pyarrow.dataset.dataset(f"{run.path}/{folder}", format="parquet")
    return dataset.to_table().sort_by([("key", "ascending"), ("y", "ascending")]).to_pylist()


def expected_rows(values: dict[str, float]) -> list[dict[str, object]]:
    return [
        {"key": key, "y": values[key] + i, "twice": 2 * (values[key] + i)}
        for key in sorted(values)
        for i in range(3)
    ]


@pytest.fixture
def map_rows(cluster: RemoteCluster, tmp_path: Path, calls: Calls):
    def map_rows(data, function=None, **arguments) -> Run:
        given = {
            "run_id": "mapped",
            "store": tmp_path / "store",
            "on_existing_artifacts": "resume",
            "cluster": cluster,
        }
        if "mapped" not in os.listdir(_runs(tmp_path)):
            given["execution"] = ExecutionOptions(n_shards=2)
        return map_partitions(data, "key", function or mapper(calls), **(given | arguments))

    return map_rows


def check_rows(run: Run, values: dict[str, float]) -> None:
    assert rows_of(run, "outputs") == expected_rows(values)
    ours = run.predictions().sort_by([("key", "ascending"), ("y", "ascending")])
    assert ours.to_pylist() == expected_rows(values)


@pytest.mark.slow
def test_output_files_hold_exactly_the_current_rows_through_many_resumes(map_rows, calls) -> None:
    values = dict(VALUES)
    check_rows(map_rows(table_of(values)), values)
    for changed in ("a", "bcdefgh"):
        calls.take()
        values |= {key: values[key] + 20 for key in changed}
        run = map_rows(table_of(values))
        assert calls.take() == changed
        check_rows(run, values)
    del values["c"]
    calls.take()
    run = map_rows(table_of(values))
    assert calls.take() == ""
    check_rows(run, values)


@pytest.mark.slow
def test_rows_come_back_with_the_code_or_data_that_made_them(map_rows, calls) -> None:
    path = calls.path

    def other(data, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        return {"y": data.to_numpy("y"), "twice": data.to_numpy("y")}

    check_rows(map_rows(table_of(VALUES)), VALUES)
    assert map_rows(table_of(VALUES), other).executed == 8
    # The files of the first generation are gone by now.
    run = map_rows(table_of(VALUES))
    check_rows(run, VALUES)
    run = map_rows(table_of(VALUES | {"a": 99.0}))
    check_rows(run, VALUES | {"a": 99.0})


@pytest.mark.slow
def test_inference_follows_the_models_that_were_trained_again(
    train, cluster, tmp_path, calls
) -> None:
    path = calls.path

    def predict(data, model, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        return {"y": data.to_numpy("y"), "twice": [model["mean"]] * len(data)}

    def infer(**arguments) -> Run:
        given = {
            "run_id": "inferred",
            "store": tmp_path / "store",
            "serde": PickleSerde(),
            "on_existing_artifacts": "resume",
            "cluster": cluster,
        }
        return run_inference(rows, "key", "resumed", predict, **(given | arguments))

    rows = write(tmp_path / "rows.parquet", table_of(VALUES))
    train(table_of(VALUES))
    calls.take()
    assert infer().executed == 8
    calls.take()
    assert infer(cluster=NOWHERE).executed == 0
    train(table_of(VALUES | {"c": 40.0, "d": 50.0}))
    assert calls.take() == "cd"
    run = infer()
    assert calls.take() == "cd"
    assert (run.executed, run.kept) == (2, 6)
    found = {row["key"]: row["twice"] for row in rows_of(run, "predictions")}
    assert found == {key: value + 1 for key, value in VALUES.items()} | {"c": 41.0, "d": 51.0}
    assert len(rows_of(run, "predictions")) == 24
    # A training that found nothing to do leaves nothing to infer.
    train(table_of(VALUES | {"c": 40.0, "d": 50.0}), cluster=NOWHERE)
    assert infer(cluster=NOWHERE).executed == 0


@pytest.mark.slow
def test_a_damaged_ledger_is_written_anew_by_a_resume(train, calls, tmp_path) -> None:
    path = write(tmp_path / "rows.parquet", table_of(VALUES))
    run = train(path)
    ledger = Path(run.path, "generations/0001.ledger.parquet")
    ledger.write_bytes(ledger.read_bytes()[:-9] + b"lost bytes")
    with pytest.raises(IntegrityError, match=r"'resumed' differs .* resume the run"):
        _ = run.refresh().partitions
    calls.take()
    run = train(path)
    assert (run.executed, run.kept, calls.take()) == (0, 8, "")
    assert means(run) == {key: value + 1 for key, value in VALUES.items()}


@pytest.mark.slow
def test_what_is_gone_from_the_store_is_made_again_by_a_resume(map_rows, calls) -> None:
    run = map_rows(table_of(VALUES))
    calls.take()
    lost = sorted(Path(run.path, "outputs").iterdir())[0]
    keys = "".join(sorted(set(pq.read_table(lost)["key"].to_pylist())))
    lost.unlink()
    run = map_rows(table_of(VALUES | {"a": 7.0}))
    assert set(calls.take()) == {*keys, "a"}
    check_rows(run, VALUES | {"a": 7.0})


@pytest.mark.slow
def test_models_gone_from_the_store_are_trained_again_by_a_resume(train, calls) -> None:
    run = train(table_of(VALUES))
    calls.take()
    rows = run.ledger.select(["key.key", "artifacts"]).to_pylist()
    lost = rows[0]["artifacts"][0]["bundle"]
    keys = [row["key.key"] for row in rows if row["artifacts"][0]["bundle"] == lost]
    Path(run.path, lost).unlink()
    with pytest.raises(IntegrityError, match="is gone"):
        run.model("a", PickleSerde())
    # Nothing changed, and yet there is something to do.
    run = train(table_of(VALUES))
    assert calls.take() == "".join(keys)
    assert (run.executed, run.kept) == (len(keys), 8 - len(keys))
    assert means(run) == {key: value + 1 for key, value in VALUES.items()}


def test_readers_and_inference_go_on_while_a_run_is_made_anew(train, calls, tmp_path) -> None:
    """A reader loops over all keys during an overwrite: all models of one code, at all times."""
    rows = table_of(VALUES)
    train(rows)
    store = tmp_path / "store"
    held = Run.open("resumed", store)
    old = {key: value + 1 for key, value in VALUES.items()}
    new = {key: value + 1001 for key, value in VALUES.items()}
    assert means(held) == old
    seen, failed, is_over = [], [], threading.Event()

    def read_on() -> None:
        while not is_over.is_set():
            try:
                seen.append(means(Run.open("resumed", store)))
            except Exception as error:
                failed.append(error)
                return

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        train(rows, trainer(calls, 1000.0), on_existing_artifacts="overwrite")
    finally:
        is_over.set()
        reader.join()
    assert failed == []
    assert seen[0] == old
    switch = seen.index(new) if new in seen else len(seen)
    assert seen == [old] * switch + [new] * (len(seen) - switch)
    assert means(held) == old
    # A collection in cron, and the handle still reads.
    collect_garbage(held.store, "resumed", dry_run=False)
    assert means(held) == old
    assert means(held.refresh()) == new
    assert means(Run.open("resumed", store, generation=1)) == old


def test_a_killed_resume_with_other_params_hides_nothing(train, calls, cluster, tmp_path) -> None:
    """All can be read, by inference too, after a resume died before its first commit."""
    rows = table_of(VALUES)
    run = train(rows)
    identity = Identity(run_id="resumed", kind="train", key_columns=run.key_columns)
    with Claim(run.store, identity, "resume") as claim:
        intent = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="other")
        claim.begin(n_shards=3, intent=intent, partitions=len(VALUES))
    after = Run.open("resumed", tmp_path / "store")
    assert after.status is RunStatus.IN_PROGRESS
    assert means(after) == {key: value + 1 for key, value in VALUES.items()}
    inferred = run_inference(
        rows,
        "key",
        "resumed",
        lambda data, model, context: {"mean": [model["mean"]] * len(data)},
        run_id="inferred",
        store=tmp_path / "store",
        serde=PickleSerde(),
        cluster=cluster,
    )
    assert inferred.counts == {"DONE": len(VALUES)}
