"""Codes of dictionary columns through flows: training, resumes, inference and exports agree."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.blocks import RemoteCluster
from partwise.connector.data_connector import DataConnector
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError
from partwise.evaluation import HoldoutByTime
from partwise.flows import export_models, run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.runs.bundle import CATEGORIES_FILENAME
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer

pytestmark = pytest.mark.usefixtures("single_shard")

SETTINGS = {"num_threads": 1, "verbosity": -1, "min_data_in_leaf": 2, "deterministic": True}
SIZES = ["small", "medium", "large"]


def group(key: str, values: str, seed: int = 0) -> pd.DataFrame:
    """Rows of one key, whose column `kind` has values of one letter, in their order."""
    count = 40
    random = np.random.default_rng([seed, *key.encode()])
    kinds = [values[i % len(values)] for i in range(count)]
    return pd.DataFrame(
        {
            "key": key,
            "kind": kinds,
            "size": [SIZES[2 * (i % 2)] for i in range(count)],
            "x": random.normal(size=count).round(3),
            "y": [float(ord(kind) % 7) for kind in kinds] + random.normal(size=count).round(3),
        }
    )


def coded(*groups: pd.DataFrame, kinds: str = "", sizes: list[str] = SIZES) -> pa.Table:
    """The rows, with a dictionary of the kinds, in this order, and an ordered one of the sizes."""
    frame = pd.concat(groups, ignore_index=True)
    known = list(kinds) or sorted(set(frame["kind"]))
    frame["kind"] = pd.Categorical(frame["kind"], known)
    frame["size"] = pd.Categorical(frame["size"], sizes, ordered=True)
    return pa.Table.from_pandas(frame, preserve_index=False)


def fit(data: DataConnector, context: Any) -> Any:
    """Train on bare codes, as a network with an embedding would."""
    import lightgbm

    return lightgbm.train(
        SETTINGS, lightgbm.Dataset(matrix(data), data.to_numpy("y"), categorical_feature=[0]), 5
    )


def matrix(data: DataConnector) -> np.ndarray:
    frame = data.to_pandas()
    codes = [frame[name].cat.codes.to_numpy(np.float64) for name in ("kind", "size")]
    return np.column_stack([*codes, data.to_numpy("x")])


def guess(data: DataConnector, model: Any, context: Any) -> np.ndarray:
    found: np.ndarray = model.predict(matrix(data))
    return found


class Flows:
    """Flows on one store and cluster."""

    def __init__(self, store: Path, cluster: RemoteCluster) -> None:
        self.given: dict[str, Any] = {"store": store, "cluster": cluster}

    def train(self, data: Any, run_id: str, function: Any = fit, **arguments: Any) -> Run:
        options: dict[str, Any] = {"on_existing_artifacts": "resume", **self.given, **arguments}
        return train_models(data, "key", function, run_id=run_id, **options)

    def infer(
        self, data: Any, training: str, predict: Any = guess, **arguments: Any
    ) -> dict[str, list[float]]:
        run = run_inference(data, "key", training, predict=predict, **self.given, **arguments)
        assert set(run.counts) == {"DONE"}
        table = run.predictions()
        return {
            key: table.filter(pc.equal(table["key"], key))["prediction"].to_pylist()
            for key in table["key"].unique().to_pylist()
        }


@pytest.fixture
def flows(tmp_path: Path, cluster: RemoteCluster) -> Flows:
    return Flows(tmp_path / "store", cluster)


def models(run: Run) -> dict[str, str]:
    keys = run.partitions["key"].to_pylist()
    return {key: run.model(key).model_to_string() for key in keys}


@pytest.mark.slow
def test_a_neighbours_categories_change_no_model_that_is_kept(flows: Flows) -> None:
    a, b, new = group("a", "mn"), group("b", "npm"), group("c", "azm")
    shards = {"execution": ExecutionOptions(n_shards=8)}
    first = flows.train(coded(a, b), "resumed", **shards)
    assert first.executed == 2
    # What sorts before comes first, and what sorts after last; the order of sizes is as it was.
    everything = coded(new, a, b, kinds="zpnma", sizes=["tiny", *SIZES, "huge"])
    resumed = flows.train(everything, "resumed")
    assert (resumed.executed, resumed.kept) == (1, 2)
    one = {"execution": ExecutionOptions(n_shards=1)}
    fresh = flows.train(everything, "fresh", **one)
    assert models(resumed) == models(fresh)
    frame = everything.to_pandas()
    for key, rows in frame.groupby("key", observed=True):
        alone = DataConnector.from_dataframe(rows)
        assert fit(alone, None).model_to_string() == models(fresh)[str(key)]
        plain = rows.assign(**{n: rows[n].cat.remove_unused_categories() for n in ("size",)})
        plain["kind"] = plain["kind"].astype(str).astype("category")
        np.testing.assert_array_equal(matrix(DataConnector.from_dataframe(plain)), matrix(alone))
    found = flows.infer(everything, "resumed")
    assert found == flows.infer(everything, "fresh")
    for key, rows in frame.groupby("key", observed=True):
        expected = fresh.model(key).predict(matrix(DataConnector.from_dataframe(rows)))
        assert found[str(key)] == expected.tolist()
    assert flows.train(everything, "resumed").executed == 0


@pytest.mark.slow
def test_an_encoding_or_an_order_that_the_function_sees_runs_again(flows: Flows) -> None:
    a, b = group("a", "mn"), group("b", "npm")
    flows.train(coded(a, b), "resumed")
    unordered = coded(a, b).to_pandas()
    unordered["size"] = unordered["size"].cat.as_unordered()
    assert flows.train(pa.Table.from_pandas(unordered), "resumed").executed == 2
    assert flows.train(coded(a, b, sizes=SIZES[::-1]), "resumed").executed == 2
    assert flows.train(coded(a, b, sizes=[*SIZES[::-1], "other"]), "resumed").executed == 0


def count_by_code(data: DataConnector, context: Any) -> list[float]:
    """A model that is indexed by codes."""
    codes = np.asarray(data.to_arrow()["kind"].combine_chunks().indices)
    return [float(n) for n in np.bincount(codes)]


def look_up(data: DataConnector, model: list[float], context: Any) -> np.ndarray:
    known = data.categories("kind").to_pylist()
    assert len(known) == len(set(known))
    codes = next(iter(data.to_torch_dataset(batch_size=1000, columns=["kind"])))["kind"]
    return np.array([model[code] if code < len(model) else -1.0 for code in codes.tolist()])


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["zqpnma", "amnpqz"])
def test_inference_hands_the_codes_of_training_to_a_model(flows: Flows, kinds: str) -> None:
    trained = coded(group("a", "mmn"), group("b", "npp"), group("c", "q"))
    run = flows.train(trained, "trained", count_by_code, serde=PickleSerde())
    assert CATEGORIES_FILENAME in run.artifacts("a")
    counts = pd.DataFrame(trained.to_pandas()).groupby(["key", "kind"], observed=True).size()
    # Less, more and other values than in training, before and after those that were there.
    rows = coded(group("a", "nz"), group("b", "apn"), group("c", "m"), kinds=kinds)
    found = flows.infer(rows, "trained", look_up, serde=PickleSerde())
    for key, table in rows.to_pandas().groupby("key", observed=True):
        assert found[str(key)] == [float(counts.get((key, kind), -1)) for kind in table["kind"]]


@pytest.mark.slow
def test_stations_that_come_later_leave_real_models_as_a_fresh_run_makes_them(
    flows: Flows, bike_trips: str
) -> None:
    table = pq.read_table(bike_trips, columns=["start_station", "end_station", "duration"])
    columns = {
        "key": table["start_station"],
        "kind": table["end_station"].dictionary_encode(),
        "size": table["end_station"].dictionary_encode(),
        "x": pc.cast(range_of(table), pa.float64()),
        "y": pc.cast(table["duration"], pa.float64()),
    }
    everything = pa.table(columns)
    names = sorted(everything["key"].unique().to_pylist())
    later = everything.filter(pc.is_in(everything["key"], value_set=pa.array(names[::2])))
    # By itself, a table has the values of its own rows in its dictionary.
    plain = later.set_column(1, "kind", later["kind"].cast(pa.string()).dictionary_encode())
    assert flows.train(plain, "resumed").counts == {"DONE": 37}
    resumed = flows.train(everything, "resumed")
    assert (resumed.executed, resumed.kept) == (37, 37)
    assert models(resumed) == models(flows.train(everything, "fresh"))
    assert flows.infer(everything, "resumed") == flows.infer(everything, "fresh")


def range_of(table: pa.Table) -> pa.Array:
    return pa.array(range(table.num_rows))


def as_dataset(data: DataConnector, context: Any) -> Any:
    import lightgbm

    rows = data.to_lightgbm("y", columns=["kind", "size", "x"], params=SETTINGS)
    return lightgbm.train(SETTINGS, rows, 5)


@pytest.mark.slow
def test_an_export_gives_what_the_model_gives(flows: Flows) -> None:
    rows = coded(group("a", "mno"), group("b", "npm"))
    flows.train(rows, "trained", as_dataset)
    export_models("trained", data=rows, run_id="exported", format="onnx", **flows.given)
    later = coded(group("a", "zom"), group("b", "pan"), kinds="zponma")
    for predict in ("", as_frame):
        native = flows.infer(later, "trained", predict)
        if not predict:
            exported = flows.infer(later, "exported", predict)
            assert list(native) == list(exported)
            for key, values in native.items():
                np.testing.assert_allclose(exported[key], values, rtol=1e-12)
    run = Run.open("exported", str(flows.given["store"]))
    assert CATEGORIES_FILENAME in run.artifacts("a")
    assert flows.infer(later, "exported", codes_of) == flows.infer(later, "trained", codes_of)


def as_frame(data: DataConnector, model: Any, context: Any) -> np.ndarray:
    found: np.ndarray = model.predict(data.to_pandas()[["kind", "size", "x"]])
    return found


def codes_of(data: DataConnector, model: Any, context: Any) -> np.ndarray:
    return data.to_pandas()["kind"].cat.codes.to_numpy(np.float64)


def test_the_name_of_the_categories_is_taken(flows: Flows) -> None:
    def upload(data: DataConnector, context: Any) -> None:
        with pytest.raises(InputError, match=r"is that of the model's categories"):
            context.upload(b"", CATEGORIES_FILENAME)

    flows.train(coded(group("a", "m")), "named", upload)


def replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


CHANGES: Mapping[str, Callable[[pa.Table], pa.Table]] = {
    "added": lambda t: t.append_column("more", pa.array(range(t.num_rows))),
    "changed": lambda t: replaced(t, "note", pa.array(["new"] * t.num_rows)),
    "encoded": lambda t: replaced(t, "note", t["note"].dictionary_encode()),
    "reordered": lambda t: t.select(t.column_names[::-1]),
    "key encoded": lambda t: replaced(t, "key", t["key"].dictionary_encode()),
    "gone": lambda t: t.drop_columns(["note"]),
}


def noted(*groups: pd.DataFrame) -> pa.Table:
    """Rows with a note, which no trainer reads, and a day."""
    table = coded(*groups)
    table = table.append_column("note", pa.array([f"n{i % 3}" for i in range(table.num_rows)]))
    return table.append_column("day", pa.array(range(table.num_rows)))


TRAINER = LightGBMTrainer(
    label="y",
    features=("x", "kind"),
    rounds=3,
    holdout=HoldoutByTime(column="day", fraction=0.2),
)


@pytest.mark.parametrize(
    "names", [[*CHANGES], *(pytest.param([name], marks=pytest.mark.slow) for name in CHANGES)]
)
def test_columns_that_a_trainer_does_not_read_are_not_compared(
    flows: Flows, names: list[str]
) -> None:
    table = changed = noted(group("a", "mn"), group("b", "npm"))
    first = flows.train(table, "resumed", TRAINER)
    for name in names:
        changed = CHANGES[name](changed)
    again = flows.train(changed, "resumed", TRAINER)
    assert (again.executed, again.kept) == (0, 2)
    assert models(again) == models(first)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["x", "kind", "y", "day"])
def test_columns_that_a_trainer_reads_are_compared(flows: Flows, column: str) -> None:
    table = noted(group("a", "mn"), group("b", "npm"))
    flows.train(table, "resumed", TRAINER)
    place = table.column_names.index(column)
    other = pa.array([float(i) for i in range(table.num_rows)])
    assert flows.train(table.set_column(place, column, other), "resumed", TRAINER).executed == 2
