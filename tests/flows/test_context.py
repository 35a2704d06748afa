"""What a function finds in its context: artifacts, params, seeds, logs, its key."""

import datetime as dt
import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import ArtifactNotFoundError, InputError, KeyClassError
from partwise.flows import map_partitions
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import key_bytes, partition_seed
from tests.flows.context_functions import BLOB, act, describe_key, draw

ONE_SHARD = ExecutionOptions(n_shards=1, retry_backoff_s=0.01)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def run(cluster, store) -> Run:
    table = pa.table({"key": [number % 11 for number in range(110)], "value": range(110)})
    return map_partitions(
        table,
        "key",
        act,
        run_id="first",
        store=store,
        execution=ONE_SHARD,
        cluster=cluster,
    )


@pytest.fixture(scope="module")
def answers(run) -> dict:
    rows = run.predictions().to_pylist()
    return {row["key"]: json.loads(row["answer"]) for row in rows}


def row(run: Run, key) -> dict:
    [found] = run.partitions.filter(pc.equal(run.partitions["key"], key)).to_pylist()
    return found


def test_only_the_missing_artifact_is_a_failure(run) -> None:
    assert run.counts == {"DONE": 10, "FAILED": 1}


def test_artifacts_come_back_as_they_went(answers) -> None:
    assert answers[0] == {
        "blob": True,
        "notes": "grüße",
        "choice": {"best": [3, None]},
        "list": "1, 2",
    }


def test_artifacts_are_in_the_run(run) -> None:
    assert sorted(run.artifacts(0)) == ["blob.bin", "choice.json", "list.csv", "notes.txt"]
    assert run.artifact(0, "blob.bin") == BLOB
    assert run.artifact(0, "notes.txt") == "grüße"
    assert run.artifact(0, "choice.json") == {"best": [3, None]}
    assert run.artifact(0, "list.csv") == "[1, 2]"
    with pytest.raises(ArtifactNotFoundError, match=r"no artifact 'curve.png'; it has blob.bin"):
        run.artifact(0, "curve.png")


@pytest.mark.parametrize("key", [1, 2], ids=["raised", "died"])
def test_an_attempt_finds_what_the_one_before_uploaded(run, answers, key) -> None:
    assert answers[key] == {"state": {"epoch": 7}, "attempt": 2}
    assert row(run, key)["attempts"] == 2
    assert run.artifact(key, "state.json") == {"epoch": 7}


def test_a_missing_artifact_is_named_in_one_line(run) -> None:
    failed = row(run, 3)
    assert failed["error_type"].endswith("ArtifactNotFoundError")
    assert "'nothing.bin'" in failed["error_message"]
    assert "'first'" in failed["error_message"]
    assert "\n" not in failed["error_message"]


def test_names_that_are_no_file_names_are_refused(answers) -> None:
    assert answers[4] == {"refused": [0] * 7 + [True]}


def test_everything_written_is_in_the_log(run) -> None:
    log = run.logs(5)
    for source in (
        "print",
        "stderr",
        "the logger, 5",
        "another logger",
        "a warning",
        "a descriptor",
    ):
        assert f"from {source}" in log
    for source in ("a program", "a shell", "the end"):
        assert f"from {source}" in log
    assert "not from debug" not in log
    assert "from" not in run.logs(0)


@pytest.mark.parametrize("key", [6, 7, 9])
def test_what_one_partition_changed_does_not_reach_the_next(run, answers, key) -> None:
    assert answers[key] == answers[6]
    for line in ("logging works", "printing works", "on both", "from the same line"):
        assert line in run.logs(key)


def test_text_that_cannot_be_encoded_is_escaped(run) -> None:
    assert run.logs(8) == "file name \\udcff\n"


def test_a_data_loader_with_workers_runs_inside_a_partition(answers) -> None:
    assert answers[10] == {"sum": float(sum(range(10, 110, 11)))}


def test_artifacts_of_another_run_are_found_by_its_id(run, cluster, store) -> None:
    def function(data, context):
        if context.key == 0:
            return {"notes": [context.download("notes.txt", run_id="first")]}
        names = {1: "first", 2: "second-to-none", 3: "../first", 99: "first"}
        run_id = names[context.key]
        return context.download("notes.txt", run_id=run_id)

    second = map_partitions(
        pa.table({"key": [0, 1, 2, 3, 99]}),
        "key",
        function,
        store=store,
        execution=ExecutionOptions(n_shards=1, max_retries=0),
        cluster=cluster,
    )
    assert second.predictions()["notes"].to_pylist() == ["grüße"]
    messages = {key: row(second, key)["error_message"] for key in (1, 2, 3, 99)}
    assert "'first' has no artifact 'notes.txt'; it has state.json" in messages[1]
    assert "no run 'second-to-none'" in messages[2]
    assert "'../first' is not a safe name" in messages[3]
    assert "'first' has no partition" in messages[99]
    assert not any("\n" in message for message in messages.values())


@pytest.mark.slow
def test_a_damaged_artifact_fails_its_partition_alone(cluster, tmp_path) -> None:
    table = pa.table({"key": [1, 2]})
    options = {"store": tmp_path, "cluster": cluster}
    execution = ExecutionOptions(n_shards=1, max_retries=0)
    first = map_partitions(
        table,
        "key",
        lambda data, context: context.upload(f"number {context.key}", "note.txt"),
        run_id="damaged",
        execution=execution,
        **options,
    )
    [bundle] = Path(first.path, "bundles").iterdir()
    bundle.write_bytes(bundle.read_bytes().replace(b"number 2", b"number 3"))
    second = map_partitions(
        table,
        "key",
        lambda data, context: {"note": [context.download("note.txt", run_id="damaged")]},
        execution=execution,
        **options,
    )
    assert second.predictions()["note"].to_pylist() == ["number 1"]
    assert "differs from its checksum" in row(second, 2)["error_message"]


@pytest.mark.slow
def test_chance_comes_from_run_seed_and_key_alone(cluster, store) -> None:
    import torch

    keys = "abcdefgh"
    run = map_partitions(
        pa.table({"key": list(keys)}),
        "key",
        draw,
        store=store,
        seed=5,
        execution=ExecutionOptions(n_shards=6),
        cluster=cluster,
    )
    for drawn in run.predictions().to_pylist():
        seed = partition_seed(5, key_bytes(drawn["key"], run.key_columns))
        assert drawn["seed"] == seed
        assert drawn["random"] == random.Random(seed).random()
        assert drawn["numpy"] == np.random.RandomState(seed).random_sample()
        generator = torch.Generator().manual_seed(seed)
        assert drawn["torch"] == float(torch.rand((), generator=generator))
    assert len(set(run.predictions()["random"].to_pylist())) == len(keys)
    assert len(set(run.predictions()["order_of_a_set"].to_pylist())) == 1


DAY = dt.date(2026, 11, 21)
KEYS = {
    "integer": (pa.array([7, 7], pa.int16()), 7, {7: {"rounds": 3}, 8: {}}),
    "string": (pa.array(["ä/b", "ä/b"]).dictionary_encode(), "ä/b", {"ä/b": {"rounds": 3}}),
    "date": (pa.array([DAY, DAY]), DAY, {DAY: {"rounds": 3}}),
}


def described(table: pa.Table, by, cluster, store, **options) -> dict:
    run = map_partitions(
        table, by, describe_key, store=store, execution=ONE_SHARD, cluster=cluster, **options
    )
    assert run.counts == {
        "DONE": table.select(run.document.partition_by)
        .group_by(run.document.partition_by)
        .aggregate([])
        .num_rows
    }
    return {row["shown"]: row for row in run.predictions().to_pylist()}


@pytest.mark.parametrize("kind", KEYS)
def test_a_single_key_is_a_plain_value(cluster, store, kind) -> None:
    column, key, params = KEYS[kind]
    [found] = described(pa.table({"key": column}), "key", cluster, store, params=params).values()
    assert found["shown"] == repr(key)
    assert found["kind"] == type(key).__name__
    assert found["columns"] == "key"
    assert found["params"] == "{'rounds': 3}"


def test_a_composite_key_is_a_tuple_and_params_find_it(cluster, store) -> None:
    table = pa.table(
        {
            "shop": ["a", "a", "b", "b"],
            "day": [DAY, DAY, DAY, None],
            "number": pa.array([1, 2, 3, 3], pa.uint8()),
        }
    )
    by = ["shop", "day", "number"]
    params = {
        ("a", DAY, 1): {"rounds": 10, "function": len},
        ("b", None, 3): {"rounds": 20},
        ("nowhere", DAY, 9): {"rounds": 30},
    }
    found = described(table, by, cluster, store, null_keys="keep", params=params)
    first = found[repr(("a", DAY, 1))]
    assert first["kind"] == "tuple"
    assert first["kinds"] == "str,date,int"
    assert first["columns"] == "shop,day,number"
    assert first["params"] == repr({"rounds": 10, "function": len})
    assert found[repr(("b", None, 3))]["params"] == "{'rounds': 20}"
    assert found[repr(("a", DAY, 2))]["params"] == "{}"
    assert len(found) == 4


def test_params_may_be_a_table(cluster, store) -> None:
    params = pd.DataFrame({"number": [3, 1, 9], "shop": ["b", "a", "z"], "rounds": [30, 10, 90]})
    table = pa.table({"shop": ["a", "b", "c"], "number": pa.array([1, 3, 5], pa.int32())})
    found = described(table, ["shop", "number"], cluster, store, params=params)
    assert {key: row["params"] for key, row in found.items()} == {
        "('a', 1)": "{'rounds': 10}",
        "('b', 3)": "{'rounds': 30}",
        "('c', 5)": "{}",
    }


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"1": {"rounds": 3}}, KeyClassError, "'1'"),
        ({1: 3}, InputError, "params of key 1"),
        (pa.table({"key": [1, 1], "rounds": [3, 4]}), InputError, "more than one entry"),
        (pa.table({"rounds": [3, 4]}), InputError, "no column 'key'"),
    ],
    ids=["other class", "no mapping", "twice", "no key column"],
)
def test_params_that_fit_no_partition_are_refused(cluster, tmp_path, params, error, match) -> None:
    with pytest.raises(error, match=match) as caught:
        map_partitions(
            pa.table({"key": [1, 2]}),
            "key",
            describe_key,
            store=tmp_path,
            params=params,
            execution=ONE_SHARD,
            cluster=cluster,
        )
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
