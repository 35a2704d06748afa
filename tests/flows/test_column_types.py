"""What a column is in a function, and in predictions, is what docs/inputs.md says."""

# ruff: noqa: DTZ001 (times without a zone are values as well)

import datetime as dt
import json
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import ColumnError
from partwise.flows import map_partitions, run_inference, train_models
from partwise.models.serdes import PickleSerde
from tests.named_inputs import PAGE

NOON = dt.datetime(2026, 11, 21, 12, 0, 1)
DAY = NOON.date()
PAIR = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
UNITS = ("s", "ms", "us", "ns")
TEXT = pa.string()


class Weight(pa.ExtensionType):
    """A type of the user's own, which this process knows and others do not."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.weight")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> "Weight":
        return cls()


def encoded(values: list[Any], kind: pa.DataType, index: pa.DataType, ordered: bool) -> pa.Array:
    """A dictionary column in which the last value is not used."""
    codes = pa.array([0, 1, None, 0], index)
    return pa.DictionaryArray.from_arrays(codes, pa.array(values, kind), ordered=ordered)


def examples() -> dict[str, pa.Array]:
    """Four rows of each type, by Arrow's name of the type."""
    plain: list[tuple[pa.DataType, list[Any]]] = [
        *((getattr(pa, f"{sign}int{bits}")(), [1, None, 0, 127]) for sign in ("", "u")
          for bits in (8, 16, 32, 64)),
        (pa.float32(), [0.5, None, float("nan"), -0.0]),
        (pa.float64(), [0.5, None, float("nan"), -0.0]),
        (pa.bool_(), [True, None, False, True]),
        (pa.string(), ["a", None, "", "é"]),
        (pa.large_string(), ["a", None, "", "é"]),
        (pa.string_view(), ["a", None, "", "x" * 20]),
        (pa.binary(), [b"a", None, b"", b"\x00\xff"]),
        (pa.large_binary(), [b"a", None, b"", b"\x00\xff"]),
        (pa.binary_view(), [b"a", None, b"", b"x" * 20]),
        (pa.binary(2), [b"ab", None, b"\x00\xff", b"cd"]),
        (pa.decimal32(9, 2), [Decimal("1.50"), None, Decimal("-0.01"), Decimal(0)]),
        (pa.decimal64(18, 2), [Decimal("1.50"), None, Decimal("-0.01"), Decimal(0)]),
        (pa.decimal128(38, 10), [Decimal("1.5"), None, Decimal("-0.01"), Decimal(0)]),
        (pa.decimal256(76, 10), [Decimal("1.5"), None, Decimal("-0.01"), Decimal(0)]),
        (pa.decimal128(5, -2), [Decimal(1500), None, Decimal(-300), Decimal(0)]),
        (pa.date32(), [DAY, None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (pa.date64(), [DAY, None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (pa.time32("s"), [dt.time(3, 25), None, dt.time(0), dt.time(23, 59, 59)]),
        (pa.time32("ms"), [dt.time(3, 25), None, dt.time(0), dt.time(23, 59, 59)]),
        (pa.time64("us"), [dt.time(3, 25), None, dt.time(0), dt.time(23, 59, 59, 1)]),
        (pa.time64("ns"), [1, None, 0, 86_399_999_999_999]),
        *((pa.timestamp(unit), [NOON, None, dt.datetime(1970, 1, 1), NOON]) for unit in UNITS),
        *((pa.timestamp(unit, "Europe/Zurich"), [1, None, 0, -1]) for unit in UNITS),
        (pa.timestamp("us", "+05:30"), [1, None, 0, -1]),
        *((pa.duration(unit), [1, None, 0, -1]) for unit in UNITS),
        (pa.null(), [None] * 4),
        (pa.list_(pa.int64()), [[1, None], None, [], [2]]),
        (pa.large_list(pa.int8()), [[1, None], None, [], [2]]),
        (pa.list_(pa.int8(), 2), [[1, None], None, [3, 4], [5, 6]]),
        (pa.list_(TEXT), [["a", None], None, [], ["b"]]),
        (pa.list_(pa.string_view()), [["a", None], None, [], ["b"]]),
        (pa.list_(pa.dictionary(pa.int8(), TEXT)), [["a", None], None, [], ["b"]]),
        (PAIR, [{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": 3, "b": "y"}]),
        (pa.list_(PAIR), [[{"a": 1, "b": "x"}], None, [], [{"a": 2, "b": None}]]),
        (pa.map_(TEXT, pa.int64()), [[("a", 1)], None, [], [("b", None)]]),
        (pa.month_day_nano_interval(), [(1, 2, 3), None, (0, 0, 0), (-1, 0, 0)]),
        (pa.json_(), ['{"a": 1}', None, "1", "[]"]),
    ]  # fmt: skip
    arrays = [pa.array(values, kind, from_pandas=False) for kind, values in plain]
    half = np.array([0.5, 0, np.nan, -0.0], np.float16)
    arrays += [
        pa.array(half, mask=np.array([False, True, False, False])),
        pa.array([uuid.UUID(int=1).bytes, None, uuid.UUID(int=2).bytes, b"x" * 16], pa.uuid()),
        pa.ListArray.from_arrays([0, 1, 1, 2, 2], pa.array([b"x" * 16, b"y" * 16], pa.uuid())),
        encoded(["s", "m", "l"], TEXT, pa.int8(), True),
        encoded(["s", "m", "l"], TEXT, pa.int64(), False),
        encoded(["s", "m", "l"], pa.large_string(), pa.uint16(), False),
        encoded([7, 8, 9], pa.int16(), pa.int32(), False),
        encoded([1, 2, 3], pa.duration("s"), pa.int32(), False),
        encoded([1, 2, 3], pa.timestamp("us", "UTC"), pa.int32(), False),
        encoded([Decimal(1), Decimal(2), None], pa.decimal32(9, 2), pa.int32(), False),
        encoded([{"a": 1}, {"a": 2}, None], pa.struct([("a", pa.int64())]), pa.int32(), False),
        pa.ExtensionArray.from_storage(Weight(), pa.array([0.5, None, 1, 2])),
        pc.run_end_encode(pa.array([NOON, NOON, None, NOON], pa.timestamp("us", "UTC"))),
    ]
    return {str(array.type): array for array in arrays}


EXAMPLES = examples()
ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = 8


def said() -> dict[str, tuple[str, str]]:
    """The types in a function and in predictions that the page says, by the type in the source."""
    found = {}
    for names, shown, kept in ROW.findall(PAGE.read_text()):
        for name in re.findall("`([^`]+)`", names):
            in_function = name if shown == "the same" else shown.strip("`")
            found[name] = (in_function, in_function if kept == "the same" else kept.strip("`"))
    return found


SAID = said()
UNKEPT = {name for name, (_, kept) in SAID.items() if kept == "refused"}


def source() -> pa.Table:
    """All examples twice, the second time in batches with dictionaries of another order.

    Ordered ones have the same twice: with two orders they would have none.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name, array in EXAMPLES.items():
        again = array
        if isinstance(array, pa.DictionaryArray) and not array.type.ordered:
            again = array.take(pa.array([3, 2, 1, 0]))
            values = again.dictionary.take(pa.array([1, 0, 2]))
            codes = pc.if_else(pc.less(again.indices, 2), pc.subtract(1, again.indices), 2)
            again = pa.DictionaryArray.from_arrays(codes.cast(array.indices.type), values)
        columns[name] = pa.chunked_array([array, again])
    table = pa.table({"key": [1, 2, 1, 2] * 2, **columns})
    fields = [field.with_metadata({"unit": field.name[:4]}) for field in table.schema]
    fields[0] = fields[0].with_nullable(False)
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields, metadata={"own": "1"}))


def type_name(data_type: pa.DataType) -> str:
    """Arrow's name of a type, whatever Parquet calls what is inside of lists and maps."""
    return re.sub(r" \('[^']*'\)", "", str(data_type).replace("<element: ", "<item: "))


def shown(table: pa.Table, name: str) -> list[str]:
    # 15E+2 plus 0 is 1500.
    values = table.column(name).to_pylist()
    return [repr(value + 0 if isinstance(value, Decimal) else value) for value in values]


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory) -> Iterator[tuple[dict[int, dict[str, Any]], pa.Table, Path]]:
    """What the function saw of each partition, the predictions, and the store."""

    def predict(data, model, context):
        table = data.to_arrow()
        seen = {
            "types": {field.name: str(field.type) for field in table.schema},
            "values": {
                name: [repr(v) for v in table[name].to_pylist()] for name in table.schema.names
            },
            "metadata": {
                f.name: (f.metadata or {}).get(b"unit", b"").decode() for f in table.schema
            },
            "own": (table.schema.metadata or {}).get(b"own", b"").decode(),
            "nullable": table.schema.field("key").nullable,
        }
        return {"seen": [json.dumps(seen)] * len(data)}

    pa.register_extension_type(Weight())
    table = source()
    store = tmp_path_factory.mktemp("types")
    options = {"store": store, "cluster": cluster}
    execution = ExecutionOptions(n_shards=1, max_retries=0)
    train_models(
        table.select(["key"]), "key", lambda data, context: 1, run_id="types",
        serde=PickleSerde(), execution=execution, **options,
    )  # fmt: skip
    kept = [name for name in EXAMPLES if name not in UNKEPT]
    options |= {"serde": PickleSerde(), "keep_columns": kept}
    run = run_inference(table, "key", "types", predict, **options)
    rows = run.predictions()
    seen = zip(rows["key"].to_pylist(), rows["seen"].to_pylist(), strict=True)
    yield {key: json.loads(text) for key, text in seen}, rows, store
    pa.unregister_extension_type("tests.weight")


def test_every_example_is_on_the_page_and_every_row_has_an_example():
    assert set(SAID) == set(EXAMPLES)
    assert UNKEPT


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_column_is_what_the_page_says(runs, name):
    seen, rows, _ = runs
    in_function, in_predictions = SAID[name]
    for key in (1, 2):
        # The keys of the rows take turns.
        expected = shown(source(), name)[key - 1 :: 2]
        assert seen[key]["types"][name] == in_function
        assert seen[key]["values"][name] == expected
        assert seen[key]["metadata"][name] == name[:4]
        if name not in UNKEPT:
            kept = rows.filter(pc.equal(rows["key"], key))
            assert type_name(kept.schema.field(name).type) == in_predictions
            assert shown(kept, name) == expected


def test_metadata_and_marks_of_the_schema_reach_the_function(runs):
    for seen in runs[0].values():
        assert (seen["own"], seen["nullable"]) == ("1", False)


def test_what_parquet_lacks_is_refused_before_any_work(runs, cluster):
    (name,) = UNKEPT
    store = runs[2]
    with pytest.raises(
        ColumnError, match=r"^keep_columns names column 'month_day.* Parquet cannot"
    ):
        run_inference(
            source(), "key", "types", run_id="kept", keep_columns=[name], store=store,
            serde="pickle",
            cluster=cluster,
        )  # fmt: skip
    assert not (store / "runs" / "kept").exists()


def test_a_returned_column_that_parquet_lacks_fails_its_own_partition(cluster, tmp_path):
    def unite(data, context):
        if context.key == 1:
            return {"x": [1]}
        ones = pa.array([0], pa.int8())
        return pa.table({"x": pa.UnionArray.from_sparse(ones, [pa.array([1])])})

    once = ExecutionOptions(n_shards=1, max_retries=0)
    table = pa.table({"key": [1, 2]})
    run = map_partitions(table, "key", unite, store=tmp_path, execution=once, cluster=cluster)
    assert run.counts == {"DONE": 1, "FAILED": 1}
    (message,) = run.partitions["error_message"].drop_null().to_pylist()
    assert message.startswith("The function returned column 'x' of type sparse_union<")
    assert "which Parquet cannot hold" in message
