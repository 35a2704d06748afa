"""The named inputs 61 to 74 of docs/inputs.md: odd values in labels, features and other columns."""

import datetime as dt
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.blocks import RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.errors import ColumnError
from partwise.flows import run_inference, train_models
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer
from tests.engine.shards import ShardOfRun
from tests.named_inputs import NAMED, Cases, NamedInput, names_between

COUNT = 40
TRAINER = LightGBMTrainer(
    label="y",
    features=["x", "color"],
    categorical=["color"],
    holdout=None,
    rounds=3,
    params={"min_data_in_leaf": 5},
)
ONCE = ExecutionOptions(n_shards=1, max_retries=0)
X = np.arange(COUNT, dtype=np.float64)
Y = np.where(X < COUNT / 2, 1.0, 5.0)
HALF_MISSING = np.where(X % 2, np.nan, Y)
ENDLESS = np.where(X == 3, math.inf, X)

cases = Cases()


def partition(key: str, x: Any = X, y: Any = Y, colors: tuple[str, ...] = ("red", "blue")) -> Any:
    """Rows of one key: a feature, a category and a label."""
    found = [colors[i % len(colors)] for i in range(len(x))]
    return pa.table({"key": [key] * len(x), "x": x, "color": found, "y": y})


ROWS = pa.concat_tables(
    [
        partition("plain"),
        partition("NaN label", y=HALF_MISSING),
        partition("inf label", y=ENDLESS),
        partition("inf feature", x=ENDLESS),
        partition("huge", x=np.where(X < COUNT / 2, -1e308, 1e308)),
        partition("single", x=X.astype(np.float32).astype(np.float64)),
        partition("doubled", x=np.repeat(X[::2], 2), y=np.repeat(Y[::2], 2)),
        partition("backwards", x=X[::-1], y=Y[::-1]),
    ]
)
LATER = pa.concat_tables(
    [
        partition("plain", y=np.full(COUNT, 99.0)),
        partition("single"),
        partition("backwards", colors=("green", "red")),
    ]
)


class Place:
    """Where a case runs: a training run and its inference that all share, and fresh stores."""

    def __init__(self, cluster: RemoteCluster, path: Path, trained: Run, inferred: Run) -> None:
        self.cluster = cluster
        self.path = path
        self.trained = trained
        self.inferred = inferred

    def train(self, data: Any, trainer: Any = TRAINER) -> Run:
        """Train into a fresh store, of which a refusal leaves nothing."""
        store = self.path / "store"
        try:
            return train_models(
                data, "key", trainer, store=store, cluster=self.cluster, execution=ONCE
            )
        except Exception:
            assert list(store.rglob("*")) == []
            raise

    def seen(self, data: Any) -> pa.Table:
        """The rows as a function that returns them got them, in a child process without a flow."""
        shard = ShardOfRun(self.path / "seen")
        _, run = shard.run(lambda data, context: data.to_arrow(), data)
        shard.host.close()
        assert set(run.counts) == {"DONE"}
        return run.predictions()

    def predictions(self, key: str) -> list[float]:
        """What the shared inference run predicted for a partition."""
        rows = self.inferred.predictions().to_pylist()
        return [row["prediction"] for row in rows if row["key"] == key]


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory) -> tuple[Run, Run]:
    options = {"store": tmp_path_factory.mktemp("values"), "cluster": cluster}
    trained = train_models(ROWS, "key", TRAINER, run_id="values", execution=ONCE, **options)
    later = LATER.set_column(1, "x", LATER["x"].cast(pa.float32()))
    return trained, run_inference(later, "key", "values", **options)


@pytest.fixture
def place(cluster, tmp_path, runs) -> Place:
    return Place(cluster, tmp_path, *runs)


def outcome(run: Run, key: str) -> dict[str, Any]:
    """The ledger row of a partition."""
    (row,) = (row for row in run.partitions.to_pylist() if row["key"] == key)
    return row


def has_model(run: Run, key: str) -> str:
    """The outcome of a partition that has a model."""
    row = outcome(run, key)
    assert row["status"] == "DONE", row["error_message"]
    assert run.model(key).num_trees() > 0
    return "accepted"


@cases("61-nan-label")
def nan_label(place: Place, row: NamedInput) -> str:
    found = outcome(place.trained, "NaN label")
    assert (found["train_rows"], found["null_label_rows"]) == (COUNT / 2, COUNT / 2)
    return has_model(place.trained, "NaN label")


@cases("62-infinite-label-or-feature")
def infinite(place: Place, row: NamedInput) -> str:
    assert has_model(place.trained, "inf feature") == "accepted"
    found = outcome(place.trained, "inf label")
    assert found["status"] == "FAILED"
    return row.fails(found["error_message"])


@cases("63-1e308")
def huge(place: Place, row: NamedInput) -> str:
    model = place.trained.model("huge")
    low, high = model.predict(np.array([[-1e308, 0], [1e308, 0]]))
    assert 1 < low < high < 5
    return has_model(place.trained, "huge")


@cases("64-single-and-double-precision")
def precision(place: Place, row: NamedInput) -> str:
    model = place.trained.model("single")
    matrix = np.column_stack([X, np.arange(COUNT) % 2])
    assert place.predictions("single")[-1] > place.predictions("single")[0]
    np.testing.assert_allclose(sorted(place.predictions("single")), sorted(model.predict(matrix)))
    return has_model(place.trained, "single")


@cases("65-text-labels")
def text_labels(place: Place, row: NamedInput) -> str:
    texts = ROWS.set_column(3, "y", pa.array(["no"] * len(ROWS)))
    return row.is_refused(lambda: place.train(texts))


@cases("66-labels-unseen-in-training")
def unseen_labels(place: Place, row: NamedInput) -> str:
    assert outcome(place.inferred, "plain")["status"] == "DONE"
    assert max(place.predictions("plain")) < 6
    return "accepted"


@cases("67-booleans-among-other-objects")
def mixed_objects(place: Place, row: NamedInput) -> str:
    objects = pd.Series([True, "yes"], dtype=object)
    frame = pd.DataFrame({"key": ["a", "a"], "flag": objects})
    return row.is_refused(lambda: place.train(frame))


@cases("68-dicts-in-an-object-column")
def dicts(place: Place, row: NamedInput) -> str:
    objects = pd.Series([{"a": 1}, {"b": "x"}], dtype=object)
    found = place.seen(pd.DataFrame({"key": ["k", "k"], "d": objects}))
    assert found["d"].to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    return "accepted"


@cases("69-odd-weights")
def weights(place: Place, row: NamedInput) -> str:
    given = [-1.0, 0.0, math.nan, None, math.inf]
    found = place.seen(pa.table({"key": [1] * 5, "weight": given}))
    assert repr(found["weight"].to_pylist()) == repr(given)
    return "accepted"


@cases("70-duplicate-rows-and-index")
def duplicates(place: Place, row: NamedInput) -> str:
    assert outcome(place.trained, "doubled")["train_rows"] == COUNT
    frame = pd.DataFrame({"key": ["a"] * 3, "x": [1, 1, 1]}, index=[7, 7, 7])
    assert place.seen(frame).to_pylist() == [{"key": "a", "x": 1}] * 3
    return has_model(place.trained, "doubled")


@cases("71-time-that-runs-backwards")
def backwards(place: Place, row: NamedInput) -> str:
    found = place.seen(
        ROWS.filter(pa.array([key == "backwards" for key in ROWS["key"].to_pylist()]))
    )
    assert found["x"].to_pylist() == X[::-1].tolist()
    return has_model(place.trained, "backwards")


@cases("72-the-years-1677-and-9999")
def far_years(place: Place, row: NamedInput) -> str:
    years = [dt.datetime(year, 12, 31, 23, 59, 59, tzinfo=dt.UTC) for year in (1, 1677, 9999)]
    keys, beyond = pa.array(years, pa.timestamp("us", "UTC")), pa.array([10**12] * 3)
    table = pa.table({"key": keys, "day": keys, "far": beyond.cast(pa.timestamp("s"))})
    found = place.seen(table)
    assert found["day"].to_pylist() == found["key"].to_pylist() == years
    assert found["far"].cast(pa.timestamp("s")).cast(pa.int64()).to_pylist() == [10**12] * 3
    far = table.select(["far"]).rename_columns(["key"])
    with pytest.raises(ColumnError, match=r"'key' .* a year is not from 1 to 9999"):
        place.train(far, lambda data, context: None)
    return "accepted"


@cases("73-categories-that-drift")
def drift(place: Place, row: NamedInput) -> str:
    assert outcome(place.inferred, "backwards")["status"] == "DONE"
    assert all(math.isfinite(value) for value in place.predictions("backwards"))
    return "accepted"


@cases("74-the-label-among-the-features")
def leaked(place: Place, row: NamedInput) -> str:
    trainer = LightGBMTrainer(label="y", features=["x", "y"], rounds=2)
    return row.is_refused(lambda: place.train(ROWS, trainer))


@pytest.mark.parametrize("name", cases)
def test_value(place, name):
    assert cases[name](place, NAMED[name]) == NAMED[name].outcome


def test_every_row_of_the_page_has_a_test():
    assert set(cases) == names_between(61, 74)
