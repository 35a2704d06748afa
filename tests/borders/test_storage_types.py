"""Types of which Arrow carries only the storage: read as their values, or refused by name."""

from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, SourceError
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import key_columns

duckdb = pytest.importorskip("duckdb")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", ["Object", "Int128", "UInt128", "List(Int128)"])
def test_polars_types_that_arrow_lacks_are_refused_by_name(kind, lazy):
    inner = {"Object": pl.Object, "UInt128": pl.UInt128}.get(kind, pl.Int128)
    values = [[1], [2]] if "List" in kind else [1, 2]
    dtype = pl.List(inner) if "List" in kind else inner
    frame = pl.DataFrame({"n": [1, 2], "k": pl.Series(values, dtype=dtype)})
    word = kind.removeprefix("List(").removesuffix(")")
    message = (
        rf"^Column 'k' of the polars frame is of type .*, and Arrow has no form for {word}: cast"
    )
    with pytest.raises(ColumnError, match=message):
        open_source(frame.lazy() if lazy else frame)


@pytest.mark.parametrize("lazy", [False, True])
def test_polars_categories_and_fields_may_be_called_as_its_types_are(lazy):
    frame = pl.DataFrame(
        {
            "k": pl.Series(["Object", "b"], dtype=pl.Enum(["Object", "b"])),
            "n": [{"Int128": [1]}, None],
        }
    )
    opened = open_source(frame.lazy() if lazy else frame)
    found = [row for batch in opened.batches() for row in batch.to_pylist()]
    assert found == [{"k": "Object", "n": {"Int128": [1]}}, {"k": "b", "n": None}]
    nested = pl.Struct({"Object": pl.Array(pl.List(pl.Int128), 1)})
    with pytest.raises(ColumnError, match="Arrow has no form for Int128: cast it"):
        open_source(pl.DataFrame({"k": pl.Series([None], dtype=nested)}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("99999999999999999999999999999999999999::HUGEINT", Decimal("9" * 38)),
        ("18446744073709551616::UHUGEINT", Decimal(2**64)),
        ("18446744073709551615::UBIGINT", 2**64 - 1),
        ("'10:00:00+02'::TIMETZ", "10:00:00+02"),
        ("'0101'::BIT", "0101"),
    ],
)
def test_duckdb_gives_the_values_of_its_wide_types(expression, value):
    relation = duckdb.sql(f'SELECT {expression} AS "a ""k"" b"')
    assert DataConnector.from_sources(relation).to_arrow().column(0).to_pylist() == [value]


@pytest.mark.parametrize("expression", [f"{2**127 - 1}::HUGEINT", f"{2**128 - 1}::UHUGEINT"])
def test_duckdb_integers_of_39_digits_are_refused(expression):
    with pytest.raises(SourceError, match=r"^The DuckDB relation cannot be read: ConversionEx"):
        DataConnector.from_sources(duckdb.sql(f"SELECT {expression} AS k"))


def test_duckdb_types_within_lists_are_refused_by_name():
    with pytest.raises(ColumnError, match=r"^Column 'k' of .* type UHUGEINT\[\], .*: cast it"):
        open_source(duckdb.sql("SELECT [1::UHUGEINT] AS k"))


def test_duckdb_categories_and_fields_may_be_called_as_its_types_are():
    relation = duckdb.sql(
        "SELECT 'BIT'::ENUM('BIT', 'BYTE') AS k, {'HUGEINT': 1} AS f, MAP {'a': [2]} AS m, "
        "[3]::INTEGER[1] AS a, union_value(BIT := 4) AS u"
    )
    row = DataConnector.from_sources(relation.project("k, f, m, a")).to_arrow().to_pylist()[0]
    assert row == {"k": "BIT", "f": {"HUGEINT": 1}, "m": [("a", [2])], "a": [3]}
    assert open_source(relation).schema.names == ["k", "f", "m", "a", "u"]


@pytest.mark.parametrize(
    "expression",
    [
        "{'a': [1::UHUGEINT]}", "MAP {'a': '01'::BIT}", "[1::HUGEINT]::HUGEINT[1]",
        "union_value(a := '10:00:00+02'::TIMETZ)",
    ],
)  # fmt: skip
def test_duckdb_types_however_deep_are_refused_by_name(expression):
    with pytest.raises(ColumnError, match=r"^Column 'k' of .* other values than it has: cast it"):
        open_source(duckdb.sql(f"SELECT {expression} AS k"))


@pytest.mark.parametrize("deep", [False, True])
def test_opaque_columns_are_refused_where_they_are_read(deep):
    kind = pa.opaque(pa.binary(), "geometry", "PostGIS")
    shape = pa.list_(pa.struct([("x", kind)])) if deep else kind
    table = pa.table({"n": [1], "k": pa.nulls(1, shape)})
    with pytest.raises(ColumnError, match=r"^Column 'k' is of type geometry of PostGIS, and"):
        open_source(table)
    assert open_source(table, columns=["n"]).schema.names == ["n"]


def test_a_key_of_an_extension_type_that_is_not_registered_is_refused():
    marks = {b"ARROW:extension:name": b"pandas.period"}
    schema = pa.schema([pa.field("k", pa.int64(), metadata=marks)])
    with pytest.raises(ColumnError, match=r"extension type 'pandas\.period' cannot be a partition"):
        key_columns(schema, ["k"])
