"""The named inputs 47 to 60 of docs/inputs.md: partitions of odd sizes and shapes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.blocks import RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.flows import map_partitions, train_models
from partwise.runs.run import Run
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import key_columns
from partwise.trainers import LightGBMTrainer
from tests.named_inputs import NAMED, Cases, NamedInput, names_between

TRAINER = LightGBMTrainer(label="y", rounds=2, min_rows=1, params={"min_data_in_leaf": 1})
ONCE = ExecutionOptions(n_shards=1, max_retries=0)
MANY_FEATURES = [f"x{i}" for i in range(60)]
MIB = 2**20

cases = Cases()


class Place:
    """Where a case runs: a training run that all share, and fresh stores."""

    def __init__(self, cluster: RemoteCluster, path: Path, trained: Run) -> None:
        self.cluster = cluster
        self.path = path
        self.trained = trained

    def train(self, data: Any, trainer: Any = TRAINER, **options: Any) -> Run:
        """Train into a fresh store, of which a refusal leaves nothing."""
        try:
            return train_models(
                data,
                "key",
                trainer,
                store=self.path / "store",
                cluster=self.cluster,
                execution=ONCE,
                **options,
            )
        except Exception:
            assert not list(self.path.rglob("store/*/*"))
            raise


def partition(key: str, count: int, **columns: Any) -> pa.Table:
    """Rows of one key: a label, 60 features, and what differs."""
    random = np.random.default_rng(count)
    values = {name: random.random(count) for name in ("y", *MANY_FEATURES)}
    return pa.table({"key": [key] * count, **values, **columns})


ROWS = pa.concat_tables(
    [
        partition("plain", 40),
        partition("one row", 1),
        partition("one class", 40, y=np.zeros(40)),
        partition("constant", 40, **{name: np.ones(40) for name in MANY_FEATURES}),
        partition("empty feature", 40, x0=pa.nulls(40, pa.float64())),
        partition("wide", 12),
        partition("giant", 20_000),
    ]
)


@pytest.fixture(scope="module")
def trained(cluster, tmp_path_factory) -> Run:
    return train_models(
        ROWS,
        "key",
        TRAINER,
        store=tmp_path_factory.mktemp("shapes"),
        params={"one class": {"objective": "binary"}},
        execution=ONCE,
        cluster=cluster,
    )


@pytest.fixture
def place(cluster, tmp_path, trained) -> Place:
    return Place(cluster, tmp_path, trained)


def has_model(run: Run, key: str) -> str:
    """The outcome of a partition that has a model of its own."""
    row = run.partitions.to_pylist()[run.partitions["key"].to_pylist().index(key)]
    assert row["status"] == "DONE", row["error_message"]
    assert row["rows"] == ROWS["key"].to_pylist().count(key)
    assert math.isfinite(run.model(key).predict(np.ones((1, len(MANY_FEATURES))))[0])
    return "accepted"


@cases("47-zero-partitions")
def zero_partitions(place: Place, row: NamedInput) -> str:
    table = ROWS.slice(0, 3).set_column(0, "key", pa.nulls(3, pa.string()))
    return row.is_refused(lambda: place.train(table, null_keys="drop"))


@cases("48-only-a-schema")
def only_a_schema(place: Place, row: NamedInput) -> str:
    return row.is_refused(lambda: place.train(ROWS.slice(0, 0)))


@cases("49-a-partition-that-the-filter-empties")
def emptied(place: Place, row: NamedInput) -> str:
    run = place.train(ROWS.slice(0, 41), filter=[("key", "!=", "one row")])
    assert run.partitions["key"].to_pylist() == ["plain"]
    return "accepted"


@cases("50-one-row")
def one_row(place: Place, row: NamedInput) -> str:
    return has_model(place.trained, "one row")


@cases("51-one-class")
def one_class(place: Place, row: NamedInput) -> str:
    return has_model(place.trained, "one class")


@cases("52-fewer-rows-than-folds")
def fewer_rows_than_folds(place: Place, row: NamedInput) -> str:
    def fit(data, context):
        folds = 5
        if data.num_rows < folds:
            raise ValueError(f"Cannot have {folds} folds of {data.num_rows} rows.")
        return {"rows": data.to_arrow()["y"]}

    run = map_partitions(
        ROWS.slice(0, 41),
        "key",
        fit,
        store=place.path,
        execution=ONCE,
        cluster=place.cluster,
    )
    assert run.counts == {"DONE": 1, "FAILED": 1}
    failed = {part["key"]: part["error_message"] for part in run.partitions.to_pylist()}
    assert failed["plain"] is None
    return row.fails(failed["one row"])


@cases("53-constant-features")
def constant(place: Place, row: NamedInput) -> str:
    return has_model(place.trained, "constant")


@cases("54-a-feature-without-values")
def empty_feature(place: Place, row: NamedInput) -> str:
    return has_model(place.trained, "empty feature")


@cases("55-one-partition-of-99-percent")
def giant(place: Place, row: NamedInput) -> str:
    assert ROWS["key"].to_pylist().count("giant") / len(ROWS) > 0.99
    assert place.trained.status == "SUCCESS"
    return has_model(place.trained, "giant")


def sharded(table: pa.Table, path: Path) -> tuple[int, list[pa.Table]]:
    """Shard a table: the partitions counted, and the first partition of each shard."""
    source = open_source(table)
    sharded = shard_rows(source, key_columns(source.schema, ["key"]), 8, path / "sharded")
    first = []
    for shard in sharded.shards:
        done = sort_shard(shard, sharded.key_columns, path / "sorted")
        first.append(ShardReader(done.path).partition(*done.offsets[:2]))
    return sharded.partitions, first


@cases("56-more-than-100-000-partitions")
def many_partitions(place: Place, row: NamedInput) -> str:
    table = pa.table({"key": np.arange(200_002) % 100_001, "x": np.arange(200_002)})
    count, first = sharded(table, place.path)
    assert count == 100_001
    assert all(rows.num_rows == 2 for rows in first)
    return "accepted"


@cases("57-a-million-keys-by-mistake")
def million_keys(place: Place, row: NamedInput) -> str:
    count, first = sharded(pa.table({"key": np.arange(1_000_000)}), place.path)
    assert count == 1_000_000
    assert all(rows.num_rows == 1 for rows in first)
    return "accepted"


@cases("58-10-000-columns")
def many_columns(place: Place, row: NamedInput) -> str:
    columns = {f"x{i}": [float(i), -float(i)] for i in range(10_000)}
    count, first = sharded(pa.table({"key": ["a", "b"], **columns}), place.path)
    assert count == 2
    assert sorted(rows["x9999"][0].as_py() for rows in first) == [-9999.0, 9999.0]
    return "accepted"


@cases("59-larger-than-a-worker-s-memory")
def larger_than_memory(place: Place, row: NamedInput) -> str:
    limit, count = 192 * MIB, 16 * MIB
    table = pa.table({"key": pa.repeat(1, count), "x": pa.repeat(0.5, count)})

    def add_up(data, context):
        assert data.to_arrow().nbytes > limit
        return {"sum": [sum(batch.column("x").to_numpy().sum() for batch in data.batches(MIB))]}

    run = map_partitions(
        table,
        "key",
        add_up,
        store=place.path,
        execution=ExecutionOptions(n_shards=1, max_retries=0, memory_bytes=limit),
        cluster=place.cluster,
    )
    assert run.predictions()["sum"].to_pylist() == [count / 2]
    return "accepted"


@cases("60-more-features-than-rows")
def wide(place: Place, row: NamedInput) -> str:
    return has_model(place.trained, "wide")


@pytest.mark.parametrize("name", cases)
def test_shape(place, name):
    assert cases[name](place, NAMED[name]) == NAMED[name].outcome


def test_every_row_of_the_page_has_a_test():
    assert set(cases) == names_between(47, 60)
