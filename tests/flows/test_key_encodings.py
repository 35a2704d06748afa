"""A run's keys are found again by an inference whose columns are of other widths and encodings."""

# ruff: noqa: DTZ001 (times without a zone are keys as well)

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.engine.options import ExecutionOptions
from partwise.flows import run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.sources.files.file_set import Files

NOON = dt.datetime(2026, 11, 21, 12)
UTC_NOON = NOON.replace(tzinfo=dt.UTC)
COLUMNS: dict[str, tuple[list[Any], pa.DataType, pa.DataType]] = {
    "int8": ([-1, 7], pa.int8(), pa.int64()),
    "int16": ([-1, 7], pa.int16(), pa.int32()),
    "int64": ([-(2**63), 7], pa.int64(), pa.int64()),
    "uint8": ([0, 7], pa.uint8(), pa.uint64()),
    "uint16": ([0, 7], pa.uint16(), pa.uint32()),
    "uint64": ([2**63, 2**64 - 1], pa.uint64(), pa.uint64()),
    "float32": ([0.5, -0.0], pa.float32(), pa.float64()),
    "bool": ([True, False], pa.bool_(), pa.bool_()),
    "string": (["", "é"], pa.string(), pa.large_string()),
    "view": (["a text that is longer than 12", "b"], pa.string_view(), pa.string()),
    "binary": ([b"ab", b"\x00\xff"], pa.binary(2), pa.large_binary()),
    "binary_view": ([b"", b"x" * 13], pa.binary_view(), pa.binary()),
    "date": ([NOON.date(), dt.date(1, 1, 1)], pa.date32(), pa.date64()),
    "time": ([dt.time(3), dt.time(23, 59)], pa.time32("s"), pa.time64("ns")),
    "timestamp": ([NOON, dt.datetime(1677, 9, 22)], pa.timestamp("s"), pa.timestamp("ns")),
    "zoned": ([UTC_NOON, UTC_NOON], pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
    "duration": ([dt.timedelta(-1), dt.timedelta(1)], pa.duration("s"), pa.duration("us")),
    "decimal32": ([Decimal("1.50"), None], pa.decimal32(5, 2), pa.decimal256(60, 20)),
    "decimal128": ([Decimal("-0.1"), None], pa.decimal128(38, 10), pa.decimal64(12, 3)),
    "null": ([None, None], pa.null(), pa.null()),
}  # fmt: skip


def table(second: bool) -> pa.Table:
    """Two rows, in the types of training, or in others, encoded."""
    arrays: dict[str, Any] = {"half": pa.array(np.array([0.5, 1], np.float16))}
    for number, (name, (values, *types)) in enumerate(COLUMNS.items()):
        array = pa.array(values, types[second])
        if second and number % 3 == 0:
            array = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), array)
        elif second and number % 3 == 1:
            array = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), array)
        arrays[name] = array
    return pa.table({**arrays, "row": [0, 1]})


def test_keys_of_every_type_go_from_training_to_inference(cluster, tmp_path):
    names = ["half", *COLUMNS]
    options = {"store": tmp_path, "cluster": cluster, "null_keys": "keep", "serde": PickleSerde()}

    def fit(data, context):
        return context.key, data.to_numpy("row").tolist()

    def predict(data, model, context):
        return {"is_own": [model == (context.key, data.to_numpy("row").tolist())]}

    once = ExecutionOptions(n_shards=2, max_retries=0)
    trained = train_models(table(False), names, fit, run_id="keys", execution=once, **options)
    inferred = run_inference(table(True), names, "keys", predict, **options)

    expected = list(zip([0.5, 1.0], *(values for values, *_ in COLUMNS.values()), strict=True))
    for run in (trained, inferred):
        assert run.counts == {"DONE": 2}
        rows = [tuple(row[name] for name in names) for row in run.partitions.to_pylist()]
        assert sorted(rows) == sorted(expected)
        assert {run.partition_id(key) for key in expected} == {
            *run.partitions["partition_id"].to_pylist()
        }
    for row, key in enumerate(expected):
        assert trained.model(key, PickleSerde()) == (key, [row])
    assert inferred.predictions()["is_own"].to_pylist() == [True, True]


def test_a_run_with_integer_keys_goes_on_where_its_csv_has_codes(cluster, tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("code,y\n01,1\n02,2\n")
    options = {"store": tmp_path / "store", "cluster": cluster, "serde": PickleSerde()}

    def fit(data, context):
        return context.key

    # As an earlier release has read such a file without a word.
    declared = Files(str(path), types={"code": "int64"})
    first = train_models(declared, "code", fit, run_id="codes", version="1", **options)
    again = train_models(
        str(path), "code", fit, run_id="codes", version="1", on_existing_artifacts="resume",
        **options,
    )  # fmt: skip
    assert (first.executed, again.executed) == (2, 0)
    assert again.model(1, serde="pickle") == 1
    used = run_inference(
        str(path), "code", "codes", lambda data, model, context: [model], run_id="used", **options
    )
    assert used.predictions()["prediction"].to_pylist() == [1, 2]
    new = train_models(str(path), "code", fit, run_id="new", **options)
    assert new.model("01", serde="pickle") == "01"
