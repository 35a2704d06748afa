"""The types of frames: of pandas, polars and DuckDB."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from tests.borders.exact_values import (
    IN_NS,
    Count,
    Draw,
    binaries,
    booleans,
    clocks,
    dates,
    decimals,
    durations,
    floats,
    instants,
    integers,
    nanoseconds,
    texts,
)
from tests.borders.type_cases import (
    ARROW,
    INTEGERS,
    LONG,
    ZONE,
    Case,
    arrow_array,
    lists,
    nan_is_null,
    structs,
    written_ns,
)


def pandas_cases() -> Iterator[Case]:
    """Frames of pandas: its own types, those of numpy and of Arrow, and Python's objects."""

    def case(name: str, kind: str, draw: Draw, make: Any = None, **more: Any) -> Case:
        made = make or (lambda values: pd.Series(values, dtype=name))
        return Case(
            library="pandas",
            type=name,
            kind=kind,
            draw=draw,
            is_frame=True,
            **more,
            write=lambda values, _: pd.DataFrame({"row": range(len(values)), "x": made(values)}),
        )

    for name, draw in INTEGERS.items():
        yield case(name, "integer", draw, nulls=False)
        yield case(name.replace("i", "I").replace("u", "U"), "integer", draw)
    for bits in (16, 32, 64):
        yield case(f"float{bits}", "float", floats(bits), read=nan_is_null)
    yield case("Float32", "float", floats(32), _masked("Float32"), read=nan_is_null)
    yield case("Float64", "float", floats(64), _masked("Float64"), read=nan_is_null)
    yield case("bool", "boolean", booleans, nulls=False)
    yield case("boolean", "boolean", booleans)
    for name in ("str", "string", "object"):
        yield case(name, "string", texts)
    objects = {
        "binary": binaries(),
        "decimal": decimals(18, 4),
        "date": dates,
        "time": clocks("us"),
        "boolean": booleans,
    }
    for kind, draw in objects.items():
        yield case(f"object of {kind}", kind, draw, lambda values: pd.Series(values, dtype=object))
    for unit in IN_NS:
        yield case(
            f"datetime64[{unit}]", "timestamp", instants(unit, None), _times("datetime64", unit)
        )
        yield case(
            f"datetime64[{unit}, {ZONE}]",
            "timestamp_tz",
            instants(unit, ZONE),
            lambda values, unit=unit: (
                _times("datetime64", unit)(values).dt.tz_localize("UTC").dt.tz_convert(ZONE)
            ),
        )
        yield case(f"timedelta64[{unit}]", "duration", durations(unit), _times("timedelta64", unit))
    yield case(
        "category of text", "string", texts, lambda values: pd.Series(values, dtype="category")
    )
    yield case(
        "category of int64",
        "integer",
        LONG,
        lambda values: pd.Series(pd.Categorical.from_codes(*_codes(values, "int64"))),
    )
    yield case(
        "category of datetime64[us]",
        "timestamp",
        instants("us", None),
        lambda values: pd.Series(pd.Categorical.from_codes(*_codes(values, "datetime64[us]"))),
    )
    yield case("Sparse[float64]", "float", floats(64), read=nan_is_null)
    yield case(
        "ordered category",
        "string",
        lambda random: random.choice("bac"),
        lambda values: pd.Series(values, dtype=pd.CategoricalDtype(["c", "a", "b"], ordered=True)),
    )
    for of in (
        pa.uint64(),
        pa.float64(),
        pa.decimal128(38, 0),
        pa.string(),
        pa.date32(),
        pa.time64("us"),
        pa.timestamp("us", ZONE),
    ):
        kind, draw = ARROW[of]
        yield case(
            f"ArrowDtype({of})",
            kind,
            draw,
            lambda values, of=of: pd.Series(pd.arrays.ArrowExtensionArray(arrow_array(values, of))),
        )
    yield case(
        "period[D]",
        "nested",
        lambda random: pd.Period(ordinal=random.randint(-(10**5), 10**5), freq="D"),
        read=lambda value: value.ordinal,
    )
    yield case(
        "interval[int64]",
        "nested",
        lambda random: pd.Interval(*sorted(random.sample(range(99), 2))),
        nulls=False,
        read=lambda value: {"left": value.left, "right": value.right},
    )
    yield case("complex128", "refused", lambda random: complex(1, random.random()), nulls=False)


def _masked(name: str) -> Callable[[Sequence[Any]], Any]:
    return lambda values: pd.Series([pd.NA if v is None else v for v in values], dtype=name)


def _times(name: str, unit: str) -> Callable[[Sequence[Any]], Any]:
    def make(values: Sequence[Any]) -> Any:
        counts = [-(2**63) if v is None else nanoseconds(v) // IN_NS[unit] for v in values]
        return pd.Series(np.array(counts, np.int64).astype(f"{name}[{unit}]"))

    return make


def _codes(values: Sequence[Any], dtype: str) -> tuple[list[int], Any]:
    known = list(dict.fromkeys(value for value in values if value is not None))
    return [-1 if value is None else known.index(value) for value in values], pd.Index(
        known, dtype=dtype
    )


def polars_cases() -> Iterator[Case]:
    """Frames of polars."""

    def case(name: str, kind: str, draw: Draw, dtype: Any, **more: Any) -> Case:
        def frame(values: Sequence[Any], _: Path) -> Any:
            column = [int(v) if isinstance(v, Count) else v for v in values]
            series = (
                pl.Series("x", column, dtype=pl.Int64)
                if any(isinstance(v, Count) for v in values)
                else None
            )
            series = pl.Series("x", column, dtype=dtype) if series is None else series.cast(dtype)
            rows = pl.Series("row", range(len(values)), dtype=pl.Int32)
            whole = pl.DataFrame([rows, series])
            return whole.lazy() if more.get("library") == "polars lazy" else whole

        return Case(
            **{"library": "polars", "is_frame": True, **more},
            type=name,
            kind=kind,
            draw=draw,
            write=frame,
        )

    for library in ("polars", "polars lazy"):
        own: dict[str, Any] = {"library": library, "is_frame": library == "polars"}
        for name, draw in INTEGERS.items():
            yield case(
                name, "integer", draw, getattr(pl, name.replace("i", "I").replace("u", "U")), **own
            )
        for bits in (16, 32, 64):
            yield case(f"Float{bits}", "float", floats(bits), getattr(pl, f"Float{bits}"), **own)
        for precision, scale in ((9, 2), (38, 0), (38, 10)):
            yield case(
                f"Decimal({precision}, {scale})",
                "decimal",
                decimals(precision, scale),
                pl.Decimal(precision, scale),
                **own,
            )
        yield case("Boolean", "boolean", booleans, pl.Boolean, **own)
        yield case("String", "string", texts, pl.String, **own)
        yield case("Categorical", "string", texts, pl.Categorical, **own)
        yield case(
            "Enum", "string", lambda random: random.choice("bac"), pl.Enum(["c", "a", "b"]), **own
        )
        yield case("Binary", "binary", binaries(), pl.Binary, **own)
        yield case("Date", "date", dates, pl.Date, **own)
        yield case("Time", "time", clocks("ns"), pl.Time, **own)
        for unit in ("ms", "us", "ns"):
            yield case(
                f"Datetime({unit})", "timestamp", instants(unit, None), pl.Datetime(unit), **own
            )
            yield case(
                f"Datetime({unit}, {ZONE})",
                "timestamp_tz",
                instants(unit, ZONE),
                pl.Datetime(unit, ZONE),
                **own,
            )
            yield case(f"Duration({unit})", "duration", durations(unit), pl.Duration(unit), **own)
        yield case("List(Int64)", "nested", lists(LONG), pl.List(pl.Int64), **own)
        yield case(
            "Array(Int16)", "nested", lists(INTEGERS["int16"], 2), pl.Array(pl.Int16, 2), **own
        )
        yield case("Struct", "nested", structs, pl.Struct({"a": pl.Int64, "b": pl.String}), **own)
        yield case("Null", "null", lambda _: None, pl.Null, **own)
        yield case(
            "Object", "refused", lambda random: Decimal(random.randint(0, 9)), pl.Object, **own
        )
        yield case("Int128", "refused", integers(-(2**127), 2**127 - 1), pl.Int128, **own)
        yield case("UInt128", "refused", integers(0, 2**127), pl.UInt128, **own)


def duckdb_cases() -> Iterator[Case]:
    """Relations of DuckDB, which casts texts of Python's values to its types."""

    def case(
        kind: str, draw: Draw, sql: str, text: Callable[[Any], str] = str, **more: Any
    ) -> Case:
        def relation(values: Sequence[Any], _: Path) -> Any:
            texts = pa.table(
                {
                    "row": pa.array(range(len(values)), pa.int32()),
                    "x": pa.array([None if v is None else text(v) for v in values], pa.string()),
                }
            )
            made = "unhex(x)" if sql == "BLOB" else f"CAST(x AS {sql})"
            return duckdb.connect().from_arrow(texts).project(f"row, {made} AS x")

        named = {"library": "duckdb", "type": sql, "is_frame": True, **more}
        return Case(**named, kind=kind, draw=draw, write=relation)

    names = {
        "int8": "TINYINT",
        "int16": "SMALLINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "uint8": "UTINYINT",
        "uint16": "USMALLINT",
        "uint32": "UINTEGER",
        "uint64": "UBIGINT",
    }
    for name, sql in names.items():
        yield case("integer", INTEGERS[name], sql)
    most = 10**38 - 1
    yield case("decimal", integers(-most, most), "HUGEINT", read=Decimal)
    yield case("decimal", integers(0, most), "UHUGEINT", read=Decimal)
    yield case(
        "refused", integers(10**38, 2**127 - 1), "HUGEINT", type="HUGEINT of 39 digits", nulls=False
    )
    yield case("float", floats(32), "FLOAT", repr)
    yield case("float", floats(64), "DOUBLE", repr)
    for precision, scale in ((4, 1), (9, 2), (18, 6), (38, 0), (38, 10)):
        yield case(
            "decimal",
            decimals(precision, scale),
            f"DECIMAL({precision}, {scale})",
            lambda value: format(value, "f"),
        )
    yield case("boolean", booleans, "BOOLEAN")
    yield case("string", lambda random: texts(random).replace("\0", ""), "VARCHAR")
    yield case("string", lambda random: random.choice("bac"), "ENUM('c', 'a', 'b')")
    yield case("binary", binaries(), "BLOB", bytes.hex)
    yield case("date", dates, "DATE", date.isoformat)
    yield case("time", clocks("us"), "TIME", time.isoformat)
    yield case("timestamp", instants("s", None), "TIMESTAMP_S", datetime.isoformat)
    yield case("timestamp", instants("ms", None), "TIMESTAMP_MS", datetime.isoformat)
    yield case("timestamp", instants("us", None), "TIMESTAMP", datetime.isoformat)
    yield case("timestamp", instants("ns", None, 1700, 2200), "TIMESTAMP_NS", written_ns)
    yield case("timestamp_tz", instants("us", ZONE), "TIMESTAMPTZ", datetime.isoformat)
    yield case("string", integers(0, 2**200), "BIGNUM", read=str)
    yield case("string", lambda random: f"{random.getrandbits(20):b}", "BIT")
    yield case("nested", lists(LONG), "BIGINT[]", json.dumps)
    yield case("nested", lists(INTEGERS["int16"], 2), "SMALLINT[2]", json.dumps)
