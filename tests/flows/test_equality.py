"""Models and predictions equal those of a plain loop over pandas groups, to the last bit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.connector.context import PartitionContext
from partwise.engine.options import ExecutionOptions
from partwise.flows import map_partitions, run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus, Skip
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn, key_bytes, partition_seed
from tests.flows.bike_models import fit_booster, fit_bootstrap, predict_booster, predict_bootstrap

SEED = 20_261_121
FEW_TRIPS = [("trip_id", ">=", 400_000), ("trip_id", "<", 404_000)]


@dataclass(frozen=True)
class Case:
    by: list[str]
    fit: Callable[[pd.DataFrame, PartitionContext], Any]
    predict: Callable[[pd.DataFrame, Any, PartitionContext], np.ndarray]
    serde: PickleSerde | None
    n_shards: int
    other_n_shards: int
    few_trips: bool = False


CASES = {
    "stations": Case(["start_station"], fit_booster, predict_booster, None, 5, 1),
    "routes": Case(
        ["start_station", "end_station"], fit_bootstrap, predict_bootstrap, PickleSerde(), 7, 64
    ),
    "three columns and nulls": Case(
        ["subscription_type", "start_station", "zip_code"],
        fit_bootstrap,
        predict_bootstrap,
        PickleSerde(),
        3,
        1,
        few_trips=True,
    ),
}


@dataclass(frozen=True)
class Outcome:
    case: Case
    frame: pd.DataFrame
    training: Run
    inference: Run


def train(path: Path, case: Case, **options: Any) -> Run:
    fit = case.fit
    return train_models(
        str(path),
        case.by if len(case.by) > 1 else case.by[0],
        lambda data, context: fit(data.to_pandas(), context),
        serde=case.serde,
        filter=FEW_TRIPS if case.few_trips else None,
        null_keys="keep",
        seed=SEED,
        **options,
    )


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def outcome(request, cluster, bike_trips, tmp_path_factory) -> Outcome:
    case = CASES[request.param]
    store = tmp_path_factory.mktemp("equality")
    execution = ExecutionOptions(n_shards=case.n_shards)
    training = train(
        bike_trips, case, run_id="train", store=store, execution=execution, cluster=cluster
    )
    predict = case.predict
    inference = run_inference(
        str(bike_trips),
        case.by,
        "train",
        lambda data, model, context: predict(data.to_pandas(), model, context),
        store=store,
        serde=case.serde,
        filter=FEW_TRIPS if case.few_trips else None,
        null_keys="keep",
        keep_columns=["trip_id"],
        on_missing_model="skip",
        cluster=cluster,
    )
    frame = pd.read_parquet(bike_trips)
    if case.few_trips:
        frame = frame[(frame.trip_id >= 400_000) & (frame.trip_id < 404_000)]
    return Outcome(case, frame, training, inference)


def groups(case: Case, frame: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame]]:
    by: Any = case.by if len(case.by) > 1 else case.by[0]
    for key, group in frame.groupby(by, sort=False, dropna=False):
        values = key if isinstance(key, tuple) else (key,)
        plain = tuple(None if pd.isna(value) else value for value in values)
        yield (plain if len(plain) > 1 else plain[0]), group


def loop(case: Case, frame: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame, Any, Any]]:
    """What anybody would write without partwise."""
    columns = [KeyColumn(name=name, key_class=KeyClass.STRING) for name in case.by]
    for key, group in groups(case, frame):
        seed = partition_seed(SEED, key_bytes(key, columns))
        context = PartitionContext(key=key, seed=seed)
        np.random.seed(seed)
        model = case.fit(group, context)
        yield key, group, model, context


def test_predictions_equal_those_of_a_plain_loop(outcome) -> None:
    case = outcome.case
    expected = [
        pd.DataFrame({"trip_id": group.trip_id, "value": case.predict(group, model, context)})
        for _, group, model, context in loop(case, outcome.frame)
        if not isinstance(model, Skip)
    ]
    wanted = pd.concat(expected).sort_values("trip_id")
    found = outcome.inference.predictions().to_pandas().sort_values("trip_id")
    assert found["trip_id"].tolist() == wanted["trip_id"].tolist()
    bits = found["prediction"].to_numpy().view(np.uint64) ^ wanted["value"].to_numpy().view(
        np.uint64
    )
    assert not bits.any()
    assert wanted["value"].nunique() > 100


def test_there_is_one_partition_per_distinct_key_and_none_is_dropped(outcome) -> None:
    case, frame = outcome.case, outcome.frame
    sizes = {key: len(group) for key, group in groups(case, frame)}
    small = {key for key, size in sizes.items() if size < 3 and case.serde is not None}
    for run in (outcome.training, outcome.inference):
        assert run.status is RunStatus.SUCCESS
        rows = run.partitions.to_pylist()
        keys = [tuple(row[name] for name in case.by) for row in rows]
        found = {key if len(key) > 1 else key[0]: row for key, row in zip(keys, rows, strict=True)}
        assert len(found) == len(rows) == len(frame[case.by].drop_duplicates())
        assert {key: row["rows"] for key, row in found.items()} == sizes
        assert {key for key, row in found.items() if row["status"] == "SKIPPED"} == small
        assert run.counts.get("DONE") == len(sizes) - len(small)
        assert run.summary.rows == len(frame)
        assert run.summary.dropped_rows == 0
        assert len(set(run.partitions["partition_id"].to_pylist())) == len(rows)
    if case.by == ["start_station", "end_station"]:
        assert len(sizes) == 1863
        assert min(sizes.values()) == 1


def test_partitions_are_sorted_by_key_with_nulls_last(outcome) -> None:
    order = [(name, "ascending") for name in outcome.case.by]
    table = outcome.training.partitions
    assert table.take(pc.sort_indices(table, sort_keys=order)).equals(table)


def test_a_model_is_found_by_its_key(outcome) -> None:
    case = outcome.case
    columns = [KeyColumn(name=name, key_class=KeyClass.STRING) for name in case.by]
    key, group = next((key, group) for key, group in groups(case, outcome.frame) if len(group) > 9)
    context = PartitionContext(key=key, seed=partition_seed(SEED, key_bytes(key, columns)))
    np.random.seed(context.seed)
    model = outcome.training.model(key, case.serde)
    mine = case.fit(group, context)
    assert list(case.predict(group, model, context)) == list(case.predict(group, mine, context))


def checksums(run: Run) -> dict[str, str]:
    return {
        row["partition_id"]: artifact["sha256"]
        for row in run.ledger.select(["partition_id", "artifacts"]).to_pylist()
        for artifact in row["artifacts"]
        if artifact["serde"]
    }


def test_shards_and_workers_change_no_byte_of_a_model(
    outcome, bike_trips, cluster, tmp_path
) -> None:
    again = train(
        bike_trips,
        outcome.case,
        store=tmp_path,
        execution=ExecutionOptions(n_shards=outcome.case.other_n_shards),
        cluster=cluster,
    )
    assert checksums(again) == checksums(outcome.training)
    assert len(checksums(again)) == again.counts["DONE"]


def test_the_ledger_is_a_file_that_anybody_reads(outcome, tmp_path) -> None:
    path = Path(outcome.training.path, "generations/0001.ledger.parquet")
    table = pq.read_table(path)
    assert table.num_rows == outcome.training.partitions.num_rows
    assert table["status"].equals(outcome.training.partitions["status"])


def frame_of_all_types() -> pd.DataFrame:
    size = 50
    place = np.arange(size)
    moments = pd.date_range("2026-01-01", periods=size, freq="h", tz="Europe/Berlin")
    columns = {
        "key": place * 7 % 4,
        "category": pd.Categorical([*"abcab"] * 10, categories=[*"cab"], ordered=True),
        "integer": pd.array([None if i % 7 == 0 else i for i in place], dtype="Int64"),
        "boolean": pd.array([None if i % 5 == 0 else i % 2 == 0 for i in place], dtype="boolean"),
        "moment": moments,
        "nanosecond": pd.date_range("2026-01-01", periods=size, freq="ns"),
        "duration": pd.to_timedelta(place, unit="s"),
        "date": [moment.date() for moment in moments],
        "decimal": [Decimal(int(i)) / 4 for i in place],
        "list": [list(range(i % 4)) for i in place],
        "struct": [{"a": int(i)} for i in place],
        "bytes": [bytes([i]) for i in place],
        "float": (place / 7).astype(np.float32),
        "missing": np.where(place % 3 == 0, np.nan, 1.0),
        "small": place.astype(np.uint8),
        "text": [None if i % 6 == 0 else f"text {i}" for i in place],
    }
    return pd.DataFrame(columns)


@pytest.mark.parametrize("index", [None, pd.RangeIndex(0, 100, 2, name="place")])
def test_a_function_gets_the_frame_that_groupby_gives(cluster, tmp_path, index) -> None:
    frame = frame_of_all_types()
    frame = frame if index is None else frame.set_index(index)

    def keep(data, context):
        context.upload(data.to_pandas(), "frame.pkl", write=lambda obj, path: obj.to_pickle(path))

    run = map_partitions(
        frame,
        "key",
        keep,
        store=tmp_path,
        execution=ExecutionOptions(n_shards=2),
        cluster=cluster,
    )
    for key, group in frame.groupby("key"):
        found = run.artifact(key, "frame.pkl", read=pd.read_pickle)
        expected = group.reset_index(drop=True) if index is None else group
        pd.testing.assert_frame_equal(found, expected)
