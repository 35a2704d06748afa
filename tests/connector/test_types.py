"""What becomes of each Arrow type: every cell of docs/types.md, and the values themselves."""

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "types.md"
WHEN = dt.datetime(2020, 3, 1, 12, tzinfo=dt.UTC)
PLAIN = WHEN.replace(tzinfo=None)

# The type as the document names it, and two values.
SAMPLES = {
    "int8 ... int64": (pa.int32(), [1, -2]),
    "uint8 ... uint64": (pa.uint16(), [1, 2]),
    "float16": (pa.float16(), [np.float16(1), np.float16(2)]),
    "float32": (pa.float32(), [1.5, 2.5]),
    "float64": (pa.float64(), [1.5, 2.5]),
    "bool": (pa.bool_(), [True, False]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.50"), Decimal("-2.00")]),
    "timestamp, no zone": (pa.timestamp("us"), [PLAIN, PLAIN]),
    "timestamp, zone": (pa.timestamp("us", "Europe/Amsterdam"), [WHEN, WHEN]),
    "date32": (pa.date32(), [dt.date(2020, 3, 1), dt.date(1969, 1, 1)]),
    "time64": (pa.time64("us"), [dt.time(1, 2, 3), dt.time(0)]),
    "duration": (pa.duration("us"), [dt.timedelta(days=1), dt.timedelta(0)]),
    "string": (pa.string(), ["é", ""]),
    "large_string": (pa.large_string(), ["é", ""]),
    "string_view": (pa.string_view(), ["é", ""]),
    "binary": (pa.binary(), [b"\xff", b""]),
    "dictionary of text": (pa.dictionary(pa.int32(), pa.string()), ["b", "a"]),
    "dictionary of integers": (pa.dictionary(pa.int32(), pa.int64()), [7, 3]),
    "list of numbers": (pa.list_(pa.int64()), [[1, 2], []]),
    "list of text": (pa.list_(pa.string()), [["a"], []]),
    "fixed-size list": (pa.list_(pa.float32(), 2), [[1, 2], [3, 4]]),
    "fixed-size list of integers": (pa.list_(pa.int32(), 2), [[1, 2], [3, 4]]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": 2}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], []]),
    "null": (pa.null(), [None, None]),
}


def connector(name: str, *, nulls: bool) -> DataConnector:
    kind, values = SAMPLES[name]
    values = [*values, None] if nulls else values
    if pa.types.is_dictionary(kind):
        return DataConnector(pa.table({"x": pa.array(values, kind.value_type).dictionary_encode()}))
    return DataConnector(pa.table({"x": pa.array(values, kind)}))


def pandas_type(data: DataConnector) -> str:
    return str(data.to_pandas().dtypes["x"])


def arrow_pandas_type(data: DataConnector) -> str:
    dtype = data.to_pandas(types="arrow").dtypes["x"]
    return "its own" if dtype.pyarrow_dtype == data.schema.field("x").type else str(dtype)


def polars_type(data: DataConnector) -> str:
    return str(data.to_polars().dtypes[0])


def numpy_type(data: DataConnector) -> str:
    return str(data.to_numpy("x").dtype)


def tensor_form(data: DataConnector) -> str:
    (batch,) = data.to_torch_dataset(batch_size=10)
    values = batch["x"]
    if not isinstance(values, list):
        row = f" ({', '.join(map(str, values.shape[1:]))})" if values.ndim > 1 else ""
        return str(values.dtype).removeprefix("torch.") + row
    first = values[0]
    if hasattr(first, "dtype"):
        return f"list of {str(first.dtype).removeprefix('torch.')} tensors"
    return f"list of {type(first).__name__}"


def tensor_null(data: DataConnector) -> str:
    (batch,) = data.to_torch_dataset(batch_size=10)
    null = batch["x"][-1]
    if null is None:
        return "None"
    number = null.ravel()[0].item()
    return {-1: "-1", -(2**63): "NaT"}.get(number, "NaN" if number != number else str(number))


def tf_form(data: DataConnector) -> str:
    try:
        spec = data.to_tf_dataset(batch_size=10).element_spec["x"]
    except ColumnError:
        return "refused"
    if type(spec).__name__ == "RaggedTensorSpec":
        return f"ragged {spec.dtype.name}"
    row = tuple(spec.shape)[1:]
    return spec.dtype.name + (f" ({', '.join(map(str, row))})" if row else "")


def hf_type(data: DataConnector) -> str:
    try:
        feature = data.to_hf_dataset().features["x"]
    except ColumnError:
        return "refused"
    return str(getattr(feature, "dtype", feature))


COLUMNS = {
    "to_pandas()": pandas_type,
    '"arrow"': arrow_pandas_type,
    "to_polars()": polars_type,
    "to_numpy(name)": numpy_type,
    "to_torch_dataset()": tensor_form,
    "to_tf_dataset()": tf_form,
    "to_hf_dataset()": hf_type,
}


def documented_row(name: str) -> str:
    whole, holed = connector(name, nulls=False), connector(name, nulls=True)
    cells = [f"`{name}`"]
    for form in COLUMNS.values():
        without, with_nulls = form(whole), form(holed)
        cells.append(without if without == with_nulls else f"{without}; nulls: {with_nulls}")
    cells.insert(6, tensor_null(holed))
    return "| " + " | ".join(cells) + " |"


@pytest.fixture(autouse=True)
def own_warnings_of_libraries(recwarn):
    """TensorFlow warns of its own use of numpy."""


@pytest.mark.parametrize("name", SAMPLES)
def test_each_type_becomes_what_the_document_says(name):
    assert documented_row(name) in DOCUMENT.read_text().splitlines()


def test_the_document_has_no_other_rows():
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(SAMPLES)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_values_arrive_as_they_were(name, nulls):
    data = connector(name, nulls=nulls)
    table = data.to_arrow()
    values = table.column("x").to_pylist()
    frame = data.to_pandas(types="arrow")
    assert pa.array(frame["x"]).equals(table.column("x").combine_chunks())
    assert data.to_dask(2, types="arrow").compute()["x"].tolist() == frame["x"].tolist()
    if hf_type(data) != "refused":
        assert data.to_hf_dataset().data.column("x").to_pylist() == values
    assert pickle.loads(pickle.dumps(data)).to_arrow().equals(table)
    spooled = DataConnector.from_sources(table).to_arrow()
    assert spooled.column("x").to_pylist() == values
    if "view" not in name:
        assert spooled.schema == table.schema


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_polars_has_the_same_values(name, nulls):
    data = connector(name, nulls=nulls)
    found = data.to_polars()["x"].to_list()
    if name == "map":
        found = [None if row is None else list(row.items()) for row in found]
    assert found == data.to_arrow().column("x").to_pylist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal256(50, 2),
        pa.decimal128(5, -2),
        pa.list_(pa.float32(), 0),
        pa.binary(0),
        pa.month_day_nano_interval(),
        pa.list_view(pa.int64()),
        pa.list_(pa.list_view(pa.int64())),
        pa.struct([("f", pa.decimal256(50, 2))]),
        pa.map_(pa.string(), pa.month_day_nano_interval()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.dictionary(pa.int8(), pa.decimal256(50, 2)),
        pa.list_(pa.dictionary(pa.int8(), pa.decimal128(5, -2))),
    ],
    ids=str,
)
def test_what_polars_has_not_is_named(kind):
    with pytest.raises(ColumnError, match=r"Column 'x' of type .* has no form in polars"):
        DataConnector(pa.table({"x": pa.nulls(2, kind)})).to_polars()


@pytest.mark.parametrize(
    "kind",
    [pa.list_view(pa.string_view()), pa.list_(pa.binary_view()), pa.list_(pa.decimal32(5, 1))],
    ids=str,
)
def test_what_pandas_has_not_is_named(kind):
    data = DataConnector(pa.table({"k": [1, 2], "x": pa.nulls(2, kind)}))
    with pytest.raises(ColumnError, match=r"Column 'x' of type .* has no form in pandas"):
        data.to_pandas()
    assert data.to_pandas(types="arrow")["x"].isna().all()
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        with pytest.raises(ColumnError, match=r"column of type .* has no form in NumPy"):
            data.to_numpy("x")


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([1], pa.time64("ns")), "has non-zero nanoseconds"),
        (pa.array([5_000_000], pa.int32()).cast(pa.date32()), "year 15659 is out of range"),
        (pa.array([1.5], pa.float16()).dictionary_encode(), "float16"),
    ],
    ids=str,
)
def test_values_that_pandas_has_not_are_named(column, reason):
    data = DataConnector(pa.table({"k": [1], "x": column}))
    with pytest.raises(ColumnError, match=f"Column 'x' of type .* no form in pandas .*{reason}"):
        data.to_pandas()
    if pa.types.is_time(column.type):
        with pytest.raises(ColumnError, match=f"no form in NumPy .*{reason}"):
            data.to_numpy("x")


@pytest.mark.parametrize("kind", ["list_view<item: int64>", "list", "map"])
def test_columns_of_list_views_may_have_no_chunks(kind):
    views = pa.list_view(pa.int64())
    kinds = {"list": pa.list_(views), "map": pa.map_(pa.string(), views)}
    column = pa.chunked_array([], kinds.get(kind, views))
    found = DataConnector(pa.table({"x": column, "k": pa.chunked_array([], pa.int32())}))
    for types in ("numpy", "arrow"):
        assert found.to_pandas(types=types).shape == (0, 2)
    assert found.to_pandas()["k"].dtype == np.int32


def test_tensors_of_times_are_counts_in_the_unit_of_the_column():
    table = pa.table(
        {
            "zone": pa.array([WHEN, None], pa.timestamp("ms", "Europe/Amsterdam")),
            "day": pa.array([dt.date(1970, 1, 11), None]),
            "clock": pa.array([dt.time(0, 1), None], pa.time32("s")),
            "long": pa.array([dt.timedelta(seconds=2), None], pa.duration("ns")),
        }
    )
    (batch,) = DataConnector(table).to_torch_dataset(batch_size=2)
    first = {name: values[0].item() for name, values in batch.items()}
    assert first == {
        "zone": int(WHEN.timestamp() * 1000),
        "day": 10,
        "clock": 60,
        "long": 2_000_000_000,
    }


def test_a_code_names_a_category_in_every_chunk():
    chunks = [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    data = DataConnector(pa.table({"x": pa.chunked_array(chunks)}))
    (batch,) = data.to_torch_dataset(batch_size=4)
    assert data.categories("x").take(pa.array(batch["x"].numpy())).to_pylist() == list("baca")


def test_a_dictionary_with_repetitions_and_nulls_has_each_category_once():
    codes = pa.array([0, 1, 2, 3, None])
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["a", None, "a", "b"]))
    data = DataConnector(pa.table({"x": column}))
    (batch,) = data.to_torch_dataset(batch_size=5)
    assert data.categories("x").to_pylist() == ["a", "b"]
    assert batch["x"].tolist() == [0, -1, 0, 1, -1]


def test_only_dictionaries_have_categories():
    with pytest.raises(ColumnError, match="'x' is of type int64: only dictionaries"):
        DataConnector(pa.table({"x": [1]})).categories("x")


def test_nested_fixed_size_lists_are_tensors_of_more_dimensions():
    kind = pa.list_(pa.list_(pa.int8(), 3), 2)
    rows = np.arange(24, dtype=np.int8).reshape(4, 2, 3)
    column = pa.array([*rows.tolist(), None], kind)
    (batch,) = DataConnector(pa.table({"x": column.slice(1, 3)})).to_torch_dataset(batch_size=9)
    assert batch["x"].numpy().dtype == np.int8
    np.testing.assert_array_equal(batch["x"].numpy(), rows[1:])
    (batch,) = DataConnector(pa.table({"x": column})).to_torch_dataset(batch_size=9)
    np.testing.assert_array_equal(batch["x"].numpy()[:4], rows)
    assert np.isnan(batch["x"].numpy()[4]).all()


def test_lists_of_any_length_keep_their_nulls():
    column = pa.array([[1, 2], None, [], [3]], pa.large_list(pa.int16()))
    (batch,) = DataConnector(pa.table({"x": column.slice(1)})).to_torch_dataset(batch_size=3)
    assert [None if row is None else row.tolist() for row in batch["x"]] == [None, [], [3]]


def test_large_integers_with_nulls_need_arrow_types():
    data = DataConnector(pa.table({"x": [2**53 + 1, None]}))
    assert int(data.to_pandas()["x"][0]) == 2**53
    assert data.to_pandas(types="arrow")["x"][0] == 2**53 + 1
    with pytest.raises(InputError, match="types='nullable' is unknown"):
        data.to_pandas(types="nullable")


def test_slices_of_dask_have_the_types_of_all_rows():
    table = pa.table({"x": [1, 2, 3, None], "flag": [True, False, None, True], "y": [1, 2, 3, 4]})
    data = DataConnector(table)
    frame = data.to_dask(2)
    assert dict(frame.dtypes) == dict(data.to_pandas().dtypes)
    for part in frame.partitions:
        assert dict(part.compute().dtypes) == dict(frame.dtypes)
    assert frame.compute().reset_index(drop=True).equals(data.to_pandas())


if __name__ == "__main__":
    for sample in SAMPLES:
        print(documented_row(sample))
