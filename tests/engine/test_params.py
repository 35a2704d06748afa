"""Per-partition parameters meet their partitions, whatever form they come in."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.engine.driver.params import shard_params
from partwise.engine.params_file import params_fingerprints, read_params
from partwise.errors import ColumnError, InputError, KeyClassError
from partwise.shuffle.plan import shard_rows
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import key_columns, partition_id

KEYS = {
    "integer": [1, -5, None, 2**40],
    "unsigned": pa.array([1, 2**64 - 1], pa.uint64()),
    "string": ["a", "é", "", None],
    "float": pa.array([1.0, -0.0, None, float("nan")], from_pandas=False),
    "boolean": [True, False],
    "timestamp": [dt.datetime(2014, 1, 1, 10), None],  # noqa: DTZ001
    "nanoseconds": pa.array([1, 2_000], pa.timestamp("ns")),
    "zone": [dt.datetime(2014, 1, 1, tzinfo=dt.UTC)],
    "date": [dt.date(2020, 1, 1), None],
    "time": [dt.time(1, 2)],
    "duration": [dt.timedelta(1), dt.timedelta(-1)],
    "decimal": [Decimal("1.50"), Decimal("-0.00"), None],
    "no decimal": pa.array([None], pa.decimal128(5, 2)),
    "binary": [b"a", b""],
    "null": pa.nulls(1),
}


def read_all(paths: dict[int, str]) -> dict[int, dict]:
    found = {number: read_params(path) for number, path in paths.items()}
    for number, path in paths.items():
        assert list(params_fingerprints(path)) == list(found[number])
    return found


@pytest.mark.parametrize("name", KEYS)
def test_tables_and_mappings_meet_the_partitions_of_every_class(tmp_path, name):
    keys = KEYS[name] if isinstance(KEYS[name], pa.Array) else pa.array(KEYS[name])
    table = pa.table({"k": keys, "rounds": range(len(keys))})
    columns = key_columns(table.schema, ["k"])
    source = open_source(table.select(["k"]))
    sharded = shard_rows(source, columns, 5, tmp_path / "rows", null_keys="keep")
    numbers = {
        partition_id(key, columns): shard.number
        for shard in sharded.shards
        for key in sharded.keys_of(shard.number).column(0).to_pylist()
    }
    mapping = {key: {"rounds": i} for i, key in enumerate(keys.to_pylist())}
    from_table = shard_params(table, columns, 5, tmp_path / "table")
    from_mapping = shard_params(mapping, columns, 5, tmp_path / "mapping")

    expected = {
        number: {
            partition_id(key, columns): values
            for key, values in mapping.items()
            if numbers[partition_id(key, columns)] == number
        }
        for number in set(numbers.values())
    }
    assert read_all(from_table) == read_all(from_mapping) == expected
    for number, path in from_table.items():
        assert params_fingerprints(path) == params_fingerprints(from_mapping[number])


def test_frames_and_composite_keys(tmp_path):
    frame = pd.DataFrame({"b": ["x", "y"], "rate": [0.5, 1.5], "a": [1, 2]})
    schema = pa.schema([("a", pa.int8()), ("b", pa.large_string())])
    columns = key_columns(schema, ["a", "b"])
    found = read_all(shard_params(frame, columns, 1, tmp_path))
    assert found == {
        0: {
            partition_id((1, "x"), columns): {"rate": 0.5},
            partition_id((2, "y"), columns): {"rate": 1.5},
        }
    }
    mapping = {(1, "x"): {"rate": 0.5}, (np.int64(2), "y"): {"rate": 1.5}}
    assert read_all(shard_params(mapping, columns, 1, tmp_path)) == found


COLUMNS = key_columns(pa.schema([("k", pa.int64())]), ["k"])


def test_values_may_be_any_object(tmp_path):
    offset = 5
    values = {"function": lambda x: x + offset, "array": np.arange(3), "none": None}
    (path,) = shard_params({1: values}, COLUMNS, 1, tmp_path).values()
    found = read_params(path)[partition_id(1, COLUMNS)]
    assert found["function"](1) == 6
    assert found["array"].tolist() == [0, 1, 2]
    assert found["none"] is None


def fingerprint_of(values: dict, folder) -> str:
    (path,) = shard_params({1: values}, COLUMNS, 1, folder).values()
    return params_fingerprints(path)[partition_id(1, COLUMNS)]


def test_fingerprints_see_values_and_order_and_never_match_without_canonical_bytes(tmp_path):
    base = fingerprint_of({"a": 1, "b": 2.0}, tmp_path)
    assert fingerprint_of({"a": 1, "b": 2.0}, tmp_path) == base
    # A function may go through `context.params` in their order.
    assert fingerprint_of({"b": 2.0, "a": 1}, tmp_path) != base
    others = [{"a": 1.0, "b": 2.0}, {"a": True, "b": 2.0}, {"a": "1", "b": 2.0}, {"a": 1}, {}]
    assert len({base, *(fingerprint_of(values, tmp_path) for values in others)}) == 6
    unknown = {"f": lambda: 0}
    assert fingerprint_of(unknown, tmp_path) != fingerprint_of(unknown, tmp_path)


def test_no_params_are_no_files(tmp_path):
    assert shard_params(None, COLUMNS, 5, tmp_path / "x") == {}
    assert shard_params({}, COLUMNS, 5, tmp_path / "x") == {}
    assert not (tmp_path / "x").exists()


BAD = [
    (5, InputError, "params of type int cannot be read: give a table or frame"),
    ({"1": {"a": 1}}, KeyClassError, "Key '1' is of type str, but the keys of column 'k'"),
    ({(1, 2): {"a": 1}}, KeyClassError, "has 2 values"),
    ({1: 5}, InputError, "params of key 1 are int: give a mapping"),
    ({1: {5: 5}}, InputError, "params of key 1 are dict: give a mapping from parameter names"),
    ({1: {}, (1,): {}}, InputError, "more than one entry for partition '1-6b1b72f7f6541442'"),
    (pd.DataFrame({"k": [1, 1], "a": [1, 2]}), InputError, "more than one entry for partition '1-"),
    (pd.DataFrame({"j": [1]}), ColumnError, "params has no column 'k', .*its columns are 'j'"),
    (pd.DataFrame({"k": ["1"]}), KeyClassError, "'k' of params is of class string, .* integer"),
    ({1: {"a": (i for i in ())}}, InputError, "'1-6b1b72f7f6541442' cannot be sent to a worker"),
]


@pytest.mark.parametrize(("params", "error", "message"), BAD, ids=range(len(BAD)))
def test_bad_params_are_refused_in_one_line(tmp_path, params, error, message):
    with pytest.raises(error, match=message) as caught:
        shard_params(params, COLUMNS, 5, tmp_path)
    assert "\n" not in str(caught.value)
