"""The types of files that say none, or few: CSV, JSON, workbooks and SQLite."""

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import xlsxwriter

from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.sql.query import Query
from tests.borders.exact_values import (
    IN_NS,
    Count,
    Draw,
    binaries,
    booleans,
    clocks,
    dates,
    decimals,
    floats,
    instants,
    integers,
    texts,
)
from tests.borders.type_cases import (
    INTEGERS,
    LONG,
    ZONE,
    Case,
    as_it_is,
    lists,
    nan_is_null,
    structs,
    written_ns,
)


def csv_cases() -> Iterator[Case]:
    """CSV files: what their texts look like, and what they are declared to be."""

    def case(
        name: str,
        kind: str,
        draw: Draw,
        text: Callable[[Any], str] = str,
        *,
        types: str = "",
        nulls: bool = True,
        read: Callable[[Any], Any] = as_it_is,
        **options: Any,
    ) -> Case:
        def file(values: Sequence[Any], folder: Path) -> Any:
            with (folder / "x.csv").open("w", newline="") as out:
                writer = csv.writer(out, delimiter=options.get("delimiter", ","))
                writer.writerow(["row", "x"])
                writer.writerows(
                    (row, "" if v is None else text(v)) for row, v in enumerate(values)
                )
            return Files(
                folder / "x.csv", csv=CsvOptions(**options), types={"x": types} if types else {}
            )

        return Case(
            library="csv", type=name, kind=kind, draw=draw, write=file, nulls=nulls, read=read
        )

    def finite(random: Random) -> float:
        return floats(64, special=False)(random)

    small = decimals(15, 3)
    yield case("whole numbers", "integer", LONG)
    yield case("whole numbers to 2**64", "integer", INTEGERS["uint64"])
    yield case("whole numbers of 38 digits", "decimal", integers(-(10**37), 10**37), read=Decimal)
    yield case("doubles", "float", floats(64), repr, read=nan_is_null)
    yield case("decimals", "float", small, read=float)
    yield case("doubles with all their digits", "float", finite, lambda v: format(Decimal(v), "f"))
    yield case(
        "decimal comma",
        "float",
        finite,
        lambda v: repr(v).replace(".", ","),
        delimiter=";",
        decimal=",",
    )
    yield case("thousands", "integer", LONG, "{:,}".format, delimiter=";", thousands=",")
    yield case(
        "thousands and decimals",
        "float",
        small,
        "{:,.3f}".format,
        delimiter=";",
        thousands=",",
        read=float,
    )
    for name, draw in INTEGERS.items():
        yield case(f"declared {name}", "integer", draw, types=name)
    yield case("declared double", "float", floats(64), repr, types="double", read=nan_is_null)
    yield case("declared float", "float", floats(32), repr, types="float", read=nan_is_null)
    yield case("booleans", "boolean", booleans)
    yield case("text", "string", lambda random: "t" + texts(random), nulls=False)
    yield case("declared string", "string", texts, types="string", nulls=False)
    yield case(
        "declared binary",
        "binary",
        lambda random: texts(random).encode(),
        bytes.decode,
        types="binary",
        nulls=False,
    )
    yield case("dates", "date", dates, date.isoformat)
    yield case(
        "dates in words",
        "date",
        dates,
        lambda v: f"{v:%d}.{v:%m}.{v.year:04}",
        types="date32",
        date_formats=["%d.%m.%Y"],
    )
    yield case("times of the day", "time", clocks("s"), time.isoformat)
    yield case("time stamps", "timestamp", instants("s", None), datetime.isoformat)
    yield case(
        "time stamps with fractions",
        "timestamp",
        instants("us", None, 1700, 2200),
        lambda v: v.isoformat(timespec="microseconds"),
    )
    yield case(
        "time stamps in UTC", "timestamp_tz", instants("s", ZONE, 1700, 2200), datetime.isoformat
    )
    yield case(
        "time stamps with offsets",
        "timestamp_tz",
        instants("s", ZONE, 1980, 2200),
        lambda v: pd.Timestamp(v).tz_convert(ZONE).isoformat(),
    )
    for unit in IN_NS:
        years = (1678, 2261) if unit == "ns" else (1, 9999)
        yield case(
            f"declared timestamp[{unit}]",
            "timestamp",
            instants(unit, None, *years),
            written,
            types=f"timestamp[{unit}]",
        )
    yield case("declared time64[us]", "time", clocks("us"), time.isoformat, types="time64[us]")


def written(value: Any) -> str:
    """A time stamp without a zone as ISO text."""
    if isinstance(value, Count):
        return written_ns(value)
    digits = (
        "seconds"
        if not value.microsecond
        else "microseconds"
        if value.microsecond % 1000
        else "milliseconds"
    )
    return value.isoformat(sep=" ", timespec=digits)


def json_cases() -> Iterator[Case]:
    """Lines of JSON."""

    def case(
        name: str,
        kind: str,
        draw: Draw,
        text: Callable[[Any], str] = json.dumps,
        read: Callable[[Any], Any] = as_it_is,
    ) -> Case:
        def file(values: Sequence[Any], folder: Path) -> str:
            lines = (
                f'{{"row": {row}, "x": {"null" if v is None else text(v)}}}\n'
                for row, v in enumerate(values)
            )
            (folder / "x.jsonl").write_text("".join(lines))
            return str(folder / "x.jsonl")

        return Case(library="json", type=name, kind=kind, draw=draw, write=file, read=read)

    def quoted(value: Any) -> str:
        return json.dumps(value.isoformat())

    yield case("whole numbers", "integer", LONG)
    yield case("whole numbers to 2**64", "integer", INTEGERS["uint64"])
    yield case(
        "whole numbers of 38 digits", "decimal", integers(-(10**38) + 1, 10**38 - 1), read=Decimal
    )
    yield case("doubles", "float", floats(64, special=False))
    yield case(
        "whole numbers and doubles",
        "float",
        lambda random: random.choice([LONG, floats(64, special=False)])(random),
        read=float,
    )
    yield case("booleans", "boolean", booleans)
    yield case("text", "string", lambda random: "t" + texts(random))
    yield case("dates", "timestamp", dates, quoted, lambda v: datetime.combine(v, time()))
    yield case("time stamps", "timestamp", instants("s", None), quoted)
    yield case(
        "time stamps with offsets",
        "timestamp_tz",
        instants("s", ZONE, 1980, 9998),
        lambda v: json.dumps(pd.Timestamp(v).as_unit("s").tz_convert(ZONE).isoformat()),
    )
    yield case("lists", "nested", lists(LONG))
    yield case("structs", "nested", structs)


def excel_cases() -> Iterator[Case]:
    """Workbooks, in which numbers have 16 digits and no null is apart from an empty cell."""

    def case(
        name: str, kind: str, draw: Draw, form: str = "", read: Callable[[Any], Any] = as_it_is
    ) -> Case:
        def file(values: Sequence[Any], folder: Path) -> str:
            with xlsxwriter.Workbook(str(folder / "x.xlsx")) as book:
                sheet, cells = (
                    book.add_worksheet(),
                    book.add_format({"num_format": form or "General"}),
                )
                sheet.write_row(0, 0, ["row", "x"])
                for row, value in enumerate(values):
                    sheet.write_number(row + 1, 0, row)
                    if isinstance(value, str):
                        sheet.write_string(row + 1, 1, value)
                    elif value is not None:
                        sheet.write(row + 1, 1, value, cells)
            return str(folder / "x.xlsx")

        return Case(library="excel", type=name, kind=kind, draw=draw, write=file, read=read)

    days = lambda random: date.fromordinal(random.randint(693_961, 3_652_059))  # noqa: E731 (1901 to 9999)
    seconds = instants("s", None, 1901, 9999)
    yield case("whole numbers", "integer", integers(-(10**15), 10**15))
    yield case("numbers", "float", floats(64, special=False), read=lambda v: float(f"{v:.16G}"))
    yield case("booleans", "boolean", booleans)
    yield case("text", "string", lambda random: "t" + texts(random))
    yield case("dates", "date", days, "yyyy-mm-dd")
    yield case("time stamps", "timestamp", seconds, "yyyy-mm-dd hh:mm:ss")
    yield case("times of the day", "time", clocks("s"), "hh:mm:ss")
    yield case(
        "durations",
        "duration",
        lambda random: timedelta(seconds=random.randint(86_400, 10**8)),
        "[h]:mm:ss",
    )


def sqlite_cases() -> Iterator[Case]:
    """Queries of SQLite."""

    def case(declared: str, kind: str, draw: Draw, read: Callable[[Any], Any] = as_it_is) -> Case:
        def query(values: Sequence[Any], folder: Path) -> Query:
            with closing(sqlite3.connect(folder / "x.db")) as connection:
                connection.execute(f"create table t (row integer, x {declared})")
                connection.executemany("insert into t values (?, ?)", enumerate(values))
                connection.commit()
            return Query("t", str(folder / "x.db"), order_by=["row"])

        return Case(library="sqlite", type=declared, kind=kind, draw=draw, write=query, read=read)

    yield case("integer", "integer", LONG)
    # It stores -0.0 as the integer 0.
    yield case("real", "float", floats(64), read=lambda value: nan_is_null(value + 0.0))
    yield case("text", "string", lambda random: texts(random).replace("\0", ""))
    yield case("blob", "binary", binaries())
