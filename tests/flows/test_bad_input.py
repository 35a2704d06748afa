"""What cannot work is refused in one line that names it, before anything is written."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.blocks import RemoteCluster, StoreBlock
from partwise.calls.partitions import TrainCall
from partwise.engine.options import ExecutionOptions
from partwise.errors import (
    ClusterError,
    ColumnError,
    FunctionError,
    InputError,
    NullKeyError,
    PartwiseError,
    RunExistsError,
    RunFailedError,
    RunIdError,
    RunNotFoundError,
    SourceError,
    StoreError,
)
from partwise.flows import map_partitions, run_inference, train_models
from partwise.flows.running.connections import open_rows_of
from partwise.planning.partitions import prepare_training
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer, XGBoostTrainer

TABLE = pa.table(
    {
        "key": [1, 1, 2],
        "x": [1.0, 2.0, 3.0],
        "value": [1.0, 2.0, 3.0],
        "nothing": pa.nulls(3, pa.float64()),
        "text": ["a", "b", "c"],
        "list": [[1], [2], [3]],
        "maybe": ["a", None, "c"],
    }
)
TRAINER = LightGBMTrainer(label="value", features=["x"], rounds=2)


def fit(data, context):
    return None


def with_lock() -> Callable[..., Any]:
    lock = threading.Lock()
    return lambda data, context: lock.locked()


def with_megabytes() -> Callable[..., Any]:
    megabytes = bytes(11 << 20)
    return lambda data, context: len(megabytes)


def with_file_of(path: Path, name: str, content: bytes) -> Path:
    (path / name).write_bytes(content)
    return path / name


def twice(name: str) -> pa.Table:
    return pa.Table.from_arrays([TABLE["key"], TABLE["x"], TABLE["x"]], ["key", name, name])


Refused = tuple[Callable[[Path], dict[str, Any]], type[Exception], str]

PREPARED: dict[str, Refused] = {
    # The key columns
    "a missing key column": (
        lambda path: {"partition_by": "store"}, ColumnError, "'store'.*'key', 'x'"
    ),
    "no key column": (lambda path: {"partition_by": []}, ColumnError, "partition_by"),
    "the same key column twice": (
        lambda path: {"partition_by": ["key", "key"]}, ColumnError, "'key'.*twice"
    ),
    "a key column of lists": (lambda path: {"partition_by": "list"}, ColumnError, "'list'"),
    "a key column that is not read": (
        lambda path: {"columns": ["x", "value"]}, ColumnError, "'key'"
    ),
    # The rows
    "no such file": (
        lambda path: {"data": str(path / "rows.parquet")}, SourceError, "rows.parquet"
    ),
    "a glob without matches": (
        lambda path: {"data": str(path / "*.parquet")}, SourceError, r"\*.parquet"
    ),
    "an empty folder": (lambda path: {"data": path}, SourceError, "."),
    "a file that is not Parquet": (
        lambda path: {"data": with_file_of(path, "rows.parquet", b"no rows here")},
        SourceError, "rows.parquet",
    ),
    "a file of an unknown kind": (
        lambda path: {"data": with_file_of(path, "rows.xlsx", b"no rows here")},
        SourceError, "rows.xlsx",
    ),
    "an empty table": (lambda path: {"data": TABLE.slice(0, 0)}, SourceError, "no rows"),
    "a filter of a missing column": (
        lambda path: {"filter": [("date", ">", 7)]}, ColumnError, "'date'"
    ),
    "a filter that is none": (lambda path: {"filter": [("key", "~", 7)]}, InputError, "'~'"),
    "duplicate columns": (lambda path: {"data": twice("x")}, ColumnError, "'x'"),
    "duplicate columns of pandas": (
        lambda path: {"data": pd.DataFrame([[1, 2, 3]], columns=["key", "x", "x"])},
        ColumnError, "'x'",
    ),
    # The trainer
    "a missing label": (
        lambda path: {"trainer": LightGBMTrainer(label="sales")}, ColumnError, "'sales'"
    ),
    "a missing label for XGBoost": (
        lambda path: {"trainer": XGBoostTrainer(label="sales")}, ColumnError, "'sales'"
    ),
    "a label of texts": (
        lambda path: {"trainer": LightGBMTrainer(label="text", features=["x"])},
        ColumnError, "'text'",
    ),
    "an unknown parameter": (
        lambda path: {"trainer": TRAINER.model_copy(update={"params": {"leafs": 3}})},
        InputError, "'leafs'",
    ),
    "a name without function": (lambda path: {"trainer": "lightgmb"}, FunctionError, "'lightgmb'"),
    "a module that is not there": (
        lambda path: {"trainer": "no.such.module:fit"}, FunctionError, "no.such.module"
    ),
    "a function that is not there": (
        lambda path: {"trainer": "json:fit"}, FunctionError, "'json'.*'fit'"
    ),
    "a private function": (lambda path: {"trainer": "os:_exit"}, FunctionError, "os:_exit"),
    "something that is not a function": (
        lambda path: {"trainer": "math:pi"}, FunctionError, "math:pi"
    ),
}  # fmt: skip
"""What is refused where Prefect, a cluster and the store have no part in it."""

REFUSED: dict[str, Refused] = {
    # Some of those that any flow begins with
    **{name: PREPARED[name] for name in (
        "a file that is not Parquet", "a missing key column", "a module that is not there",
    )},
    # The key columns
    "a null key": (lambda path: {"partition_by": "maybe"}, NullKeyError, "'maybe'.*null_keys"),
    # The rows
    "no rows after the filter": (
        lambda path: {"filter": [("key", ">", 7)]}, SourceError, "filter.*none of the 3 rows"
    ),
    "only null keys, which are dropped": (
        lambda path: {
            "data": TABLE.slice(1, 1), "partition_by": "maybe", "null_keys": "drop"
        },
        SourceError, "null_keys|null key",
    ),
    "data that is none": (lambda path: {"data": 5}, InputError, "int"),
    "no data": (lambda path: {"data": None}, InputError, "NoneType|None"),
    "an empty list": (lambda path: {"data": []}, InputError, "empty"),
    # The trainer
    "a label that is all null": (
        lambda path: {"trainer": LightGBMTrainer(label="nothing", features=["x"])},
        ColumnError, "'nothing'",
    ),
    "a trainer's class": (lambda path: {"trainer": LightGBMTrainer}, InputError, "LightGBMTrainer"),
    "a number": (lambda path: {"trainer": 5}, InputError, "trainer|5"),
    "a function with a lock": (
        lambda path: {"trainer": with_lock()}, FunctionError, "with_lock.*lock"
    ),
    "a function with megabytes": (
        lambda path: {"trainer": with_megabytes()}, FunctionError, "with_megabytes.*1[12] MB"
    ),
    # The run and the store
    "a path as run ID": (lambda path: {"run_id": "../x"}, RunIdError, "'../x'"),
    "a long run ID": (lambda path: {"run_id": "x" * 10_000}, RunIdError, "xxx'?\\.\\.\\."),
    "a run ID with a line break": (lambda path: {"run_id": "x\n"}, RunIdError, r"'x\\n'"),
    "a run ID that is a number": (lambda path: {"run_id": 7}, InputError, "run_id"),
    "a store below a file": (
        lambda path: {"store": with_file_of(path, "file", b"") / "store"}, StoreError, "file/store"
    ),
    "a store that nobody may write": (
        lambda path: {"store": "/proc/1/store"}, StoreError, "/proc/1"
    ),
    "an unsupported URL": (lambda path: {"store": "ftp://host/x"}, InputError, "ftp"),
    "a chained URL": (lambda path: {"store": "simplecache::s3://bucket/x"}, InputError, "::"),
    "a URL with a password": (
        lambda path: {"store": "s3://user:secret@bucket/x"}, InputError, "@|password|user"
    ),
    "a store without a name": (lambda path: {"store": ""}, InputError, "store"),
    "a block with an unsupported URL": (
        lambda path: {"store": StoreBlock(url="ftp://host/x")}, InputError, "ftp"
    ),
    "a cluster that is away": (
        lambda path: {"cluster": RemoteCluster(address="tcp://127.0.0.1:9", connect_timeout_s=0.2)},
        ClusterError, "127.0.0.1:9",
    ),
    # Choices
    "an unknown policy for null keys": (
        lambda path: {"null_keys": "maybe"}, InputError, "null_keys 'maybe'.*'keep'"
    ),
    "an unknown policy for existing runs": (
        lambda path: {"on_existing_artifacts": "retry"},
        InputError, "on_existing_artifacts 'retry'.*'resume'",
    ),
    "an unknown option": (
        lambda path: {"execution": {"n_shard": 3}}, InputError, "n_shard"
    ),
    "a seed that is not a number": (lambda path: {"seed": "tomorrow"}, InputError, "seed"),
}  # fmt: skip


@pytest.mark.parametrize("case", PREPARED)
def test_a_call_that_contradicts_itself_or_its_rows_is_refused_before_a_run(tmp_path, case) -> None:
    change, error, match = PREPARED[case]
    given = {"data": TABLE, "partition_by": "key", "trainer": TRAINER, **change(tmp_path)}
    before = sorted(tmp_path.rglob("*"))
    call = TrainCall(**given, run_id="refused", store=str(tmp_path / "store"))
    with pytest.raises(error, match=match) as caught:
        prepare_training(call, open_rows_of(call))
    check_message(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("case", REFUSED)
def test_a_call_that_cannot_work_is_refused_and_nothing_is_written(cluster, tmp_path, case) -> None:
    change, error, match = REFUSED[case]
    (tmp_path / "input").mkdir()
    arguments = {
        "data": TABLE,
        "partition_by": "key",
        "trainer": TRAINER,
        "store": tmp_path / "store",
        "cluster": cluster,
        **change(tmp_path / "input"),
    }
    before = sorted((tmp_path / "input").rglob("*"))
    with pytest.raises(error, match=match) as caught:
        train_models(**arguments)
    check_message(caught.value)
    assert not isinstance(caught.value, RunFailedError)
    assert sorted((tmp_path / "input").rglob("*")) == before
    assert [*tmp_path.glob("store/**/*")] == []


def test_a_function_with_an_open_file_is_refused(cluster, tmp_path) -> None:
    with (tmp_path / "notes").open("w") as file:

        def take_notes(data, context):
            file.write("done")

        with pytest.raises(FunctionError, match=r"take_notes.*open files") as caught:
            map_partitions(TABLE, "key", take_notes, store=tmp_path / "store", cluster=cluster)
    check_message(caught.value)
    assert not (tmp_path / "store").exists()


def check_message(error: BaseException) -> None:
    message = str(error)
    assert isinstance(error, PartwiseError)
    assert "\n" not in message
    assert 20 < len(message) < 500
    assert "secret" not in message


@pytest.mark.parametrize(
    ("run_id", "error", "match"),
    [
        ("../x", RunIdError, "'../x'"),
        ("", RunIdError, "''"),
        (".", RunIdError, "'.'"),
        ("x" * 10_000, RunIdError, r"xxx'?\.\.\."),
        (None, RunIdError, "None"),
        ("sales-1", RunNotFoundError, "'sales-1'.*none"),
    ],
    ids=["path", "empty", "dot", "long", "None", "unknown"],
)
def test_a_run_that_cannot_be_opened_is_named(tmp_path, run_id, error, match) -> None:
    with pytest.raises(error, match=match) as caught:
        Run.open(run_id, tmp_path / "store")
    check_message(caught.value)
    assert not (tmp_path / "store").exists()


def test_inference_without_a_run_is_refused(cluster, tmp_path) -> None:
    with pytest.raises(InputError, match="training_run_id is missing"):
        run_inference(TABLE, "key", store=tmp_path / "store", cluster=cluster)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("training_run_id", ["../x", "sales-1"])
def test_inference_with_an_unknown_run_is_refused(cluster, tmp_path, training_run_id) -> None:
    with pytest.raises((RunIdError, RunNotFoundError), match=repr(training_run_id)) as caught:
        run_inference(TABLE, "key", training_run_id, store=tmp_path / "store", cluster=cluster)
    check_message(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.fixture(scope="module")
def existing(cluster, tmp_path_factory) -> Run:
    store = tmp_path_factory.mktemp("existing")
    return map_partitions(
        TABLE,
        "key",
        lambda data, context: None,
        run_id="taken",
        store=store,
        execution=ExecutionOptions(n_shards=1),
        cluster=cluster,
    )


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({}, RunExistsError, r"'taken' exists.*SUCCESS.*another run_id"),
        (
            {"partition_by": "text", "on_existing_artifacts": "overwrite"},
            InputError,
            "partition_by",
        ),
        ({"partition_by": "x", "on_existing_artifacts": "resume"}, InputError, "partition_by"),
        (
            {
                "data": TABLE.set_column(0, "key", [["a", "b", "c"]]),
                "on_existing_artifacts": "overwrite",
            },
            InputError,
            "'key'",
        ),
        (
            {"execution": ExecutionOptions(n_shards=2), "on_existing_artifacts": "resume"},
            InputError,
            "n_shards",
        ),
    ],
    ids=["exists", "overwritten by other columns", "resumed by others", "other class", "shards"],
)
def test_an_existing_run_is_left_alone(existing, cluster, options, error, match) -> None:
    store = Path(existing.store.url)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    call: Any = map_partitions
    arguments = {"data": TABLE, "partition_by": "key", "function": fit, **options}
    with pytest.raises(error, match=match) as caught:
        call(**arguments, run_id="taken", store=store, cluster=cluster)
    check_message(caught.value)
    after = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    leases = [path for path in after if "lease" in path.parts]
    assert {path: after[path] for path in after if path not in leases} == {
        path: before[path] for path in before if path not in leases
    }


def test_a_run_of_another_kind_is_left_alone(existing, cluster) -> None:
    with pytest.raises(InputError, match=r"'taken' exists with kind 'map'.*'train'") as caught:
        train_models(
            TABLE,
            "key",
            fit,
            run_id="taken",
            store=existing.store.url,
            on_existing_artifacts="overwrite",
            cluster=cluster,
        )
    check_message(caught.value)


def test_a_model_without_serde_fails_with_the_two_ways_out(cluster, tmp_path) -> None:
    with pytest.raises(RunFailedError) as caught:
        train_models(
            TABLE,
            "key",
            lambda data, context: {"a": 1},
            store=tmp_path,
            execution=ExecutionOptions(n_shards=1, max_retries=0),
            cluster=cluster,
        )
    assert caught.value.run.counts == {"FAILED": 2}
    message = caught.value.run.partitions["error_message"][0].as_py()
    assert "builtins.dict" in message
    # The ledger is read by both.
    assert "pass serde=PickleSerde() (--pickle on the command line)" in message
    assert "LightGBM, XGBoost, PyTorch or Keras" in message
    check_message(caught.value)


def test_files_that_differ_are_named(cluster, tmp_path) -> None:
    (tmp_path / "input").mkdir()
    pq.write_table(TABLE.select(["key", "x"]), tmp_path / "input" / "1.parquet")
    pq.write_table(TABLE.select(["key"]), tmp_path / "input" / "2.parquet")
    with pytest.raises(ColumnError, match=r"2\.parquet.*'x'|'x'.*2\.parquet") as caught:
        map_partitions(tmp_path / "input", "key", fit, store=tmp_path / "store", cluster=cluster)
    check_message(caught.value)
    assert not (tmp_path / "store").exists()
