"""A type of a library, its values and how they are written; those of Arrow's tables and files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tests.borders.exact_values import (
    EPOCH,
    IN_NS,
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

ZONE = "Europe/Amsterdam"
_NULLS = 0.07
_AGAIN = 0.2
"""How often a value is null, and how often one that came before: so that keys have several rows."""


def as_it_is(value: Any) -> Any:
    """A value that the source gives as it was written."""
    return value


def nan_is_null(value: Any) -> Any:
    """Of libraries that know no null besides NaN."""
    return None if value != value else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A type of a library."""

    library: str
    type: str
    kind: str
    """What its values are: a class of keys; "nested", of what is none; "refused", of what no source
    may give, since it would be something else."""
    draw: Draw
    write: Callable[[Sequence[Any], Path], Any]
    """Makes what a source takes: of a column "x" of the values, and one "row" that counts them."""
    read: Callable[[Any], Any] = as_it_is
    """What Python's value of a source's value is, where writing has changed it."""
    nulls: bool = True
    is_frame: bool = False
    """Whether what is written is what a function can return as well."""
    is_ordered: bool = True
    """Whether the source gives rows in the order in which they were written."""
    most: int = 1_000_000
    """Values at most, where each takes long to write."""

    @property
    def name(self) -> str:
        """The library and the type."""
        return f"{self.library}: {self.type}"

    def drawn(self, count: int) -> list[Any]:
        """As many values, the same ones at each call."""
        random = Random(crc32(self.name.encode()))
        values: list[Any] = []
        for _ in range(min(count, self.most)):
            which = random.random()
            if self.nulls and which < _NULLS:
                values.append(None)
            elif values and which < _NULLS + _AGAIN:
                values.append(random.choice(values))
            else:
                values.append(self.draw(random))
        return values


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as a plain array of Arrow's."""
    if pa.types.is_float16(kind):
        return pa.array([None if value is None else np.float16(value) for value in values], kind)
    if hasattr(kind, "unit") and not pa.types.is_date(kind):
        unit = IN_NS[kind.unit]
        return pa.array([None if v is None else nanoseconds(v) // unit for v in values], kind)
    return pa.array(values, kind)


def encoded(values: Sequence[Any], kind: pa.DataType, *, ordered: bool = False) -> pa.Array:
    """Values as codes into a dictionary of Arrow's, in which some stand twice."""
    codes = pa.array([None if value is None else place for place, value in enumerate(values)])
    return pa.DictionaryArray.from_arrays(codes, arrow_array(values, kind), ordered=ordered)


def table(column: Any) -> pa.Table:
    """A column as the table that is written; in two chunks, the second of them sliced."""
    whole = pa.table({"row": pa.array(range(len(column)), pa.int32()), "x": column})
    cut = len(column) // 3
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


def lists(of: Draw, length: int | None = None) -> Draw:
    """Lists of values, some of them null."""

    def draw(random: Random) -> list[Any]:
        count = random.randint(0, 3) if length is None else length
        return [None if random.random() < 0.1 else of(random) for _ in range(count)]

    return draw


def structs(random: Random) -> dict[str, Any]:
    """Structs of a number and a text."""
    return {"a": integers(-(2**63), 2**63 - 1)(random), "b": texts(random)}


INTEGERS = {
    f"{sign}int{bits}": integers(
        *((0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    )
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
LONG = INTEGERS["int64"]

ARROW: dict[pa.DataType, tuple[str, Draw]] = {
    **{getattr(pa, name)(): ("integer", draw) for name, draw in INTEGERS.items()},
    pa.float16(): ("float", floats(16)),
    pa.float32(): ("float", floats(32)),
    pa.float64(): ("float", floats(64)),
    pa.bool_(): ("boolean", booleans),
    **{
        make(*digits): ("decimal", decimals(*digits))
        for make, digits in [
            (pa.decimal32, (9, 2)),
            (pa.decimal64, (18, 6)),
            (pa.decimal128, (1, 0)),
            (pa.decimal128, (12, 4)),
            (pa.decimal128, (38, 0)),
            (pa.decimal128, (38, 38)),
            (pa.decimal128, (5, -2)),
            (pa.decimal256, (76, 38)),
            (pa.decimal256, (76, 0)),
        ]
    },
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), ("string", texts)),
    **{kind: ("binary", binaries()) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
    pa.binary(3): ("binary", binaries(3)),
    pa.date32(): ("date", dates),
    pa.date64(): ("date", dates),
    **{
        kind: ("time", clocks(kind.unit))
        for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    },
    **{pa.timestamp(unit): ("timestamp", instants(unit, None)) for unit in IN_NS},
    **{
        pa.timestamp(unit, zone): ("timestamp_tz", instants(unit, zone))
        for unit, zone in [
            ("s", ZONE),
            ("ms", "America/New_York"),
            ("us", ZONE),
            ("ns", ZONE),
            ("us", "UTC"),
            ("us", "+05:30"),
            ("us", "Australia/Lord_Howe"),
            ("s", "Asia/Kathmandu"),
        ]
    },
    **{pa.duration(unit): ("duration", durations(unit)) for unit in IN_NS},
    pa.list_(pa.int64()): ("nested", lists(LONG)),
    pa.large_list(pa.string()): ("nested", lists(texts)),
    pa.list_(pa.int16(), 2): ("nested", lists(INTEGERS["int16"], 2)),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): ("nested", structs),
    pa.map_(pa.string(), pa.int64()): ("nested", lambda random: [(texts(random), LONG(random))]),
}
ENCODED = (
    pa.int16(),
    pa.uint64(),
    pa.float64(),
    pa.float32(),
    pa.bool_(),
    pa.decimal32(9, 2),
    pa.decimal128(12, 4),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", ZONE),
    pa.duration("ms"),
)
RUNS = (pa.int32(), pa.string(), pa.string_view(), pa.timestamp("ns", ZONE), pa.decimal128(12, 4))


def arrow_cases() -> Iterator[Case]:
    """Tables in memory: plain columns, codes into dictionaries, and run-length encodings."""

    def case(name: str, of: pa.DataType, make: Callable[[Sequence[Any]], Any]) -> Case:
        kind, draw = ARROW[of]
        return Case(
            library="arrow",
            type=name,
            kind=kind,
            draw=draw,
            is_frame=True,
            write=lambda values, _: table(make(values)),
        )

    for of in ARROW:
        yield case(str(of), of, lambda values, of=of: arrow_array(values, of))
    for of in ENCODED:
        yield case(f"dictionary of {of}", of, lambda values, of=of: encoded(values, of))
    yield case(
        "ordered dictionary of string",
        pa.string(),
        lambda values: encoded(values, pa.string(), ordered=True),
    )
    for of in RUNS:
        yield case(f"runs of {of}", of, lambda values, of=of: in_runs(arrow_array(values, of)))
    yield Case(
        library="arrow",
        type="null",
        kind="null",
        draw=lambda _: None,
        is_frame=True,
        write=lambda values, _: table(pa.nulls(len(values))),
    )


def in_runs(array: pa.Array) -> pa.Array:
    """An array as runs of one value each, which Arrow allows as well."""
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int32()), array)


def _parquet(values: pa.Table, folder: Path, **options: Any) -> str:
    pq.write_table(values, folder / "x.parquet", row_group_size=50, **options)
    return str(folder / "x.parquet")


def _ipc(values: pa.Table, folder: Path) -> str:
    with (
        pa.OSFile(str(folder / "x.arrow"), "wb") as file,
        pa.ipc.new_file(file, values.schema) as out,
    ):
        out.write_table(values, max_chunksize=70)
    return str(folder / "x.arrow")


def _orc(values: pa.Table, folder: Path) -> str:
    # Of a slice of structs the writer of pyarrow 26 leaves rows out.
    orc.write_table(
        pa.table(values.take(pa.array(range(len(values)))).to_pydict(), values.schema),
        folder / "x.orc",
    )
    return str(folder / "x.orc")


def file_cases() -> Iterator[Case]:
    """Parquet, Arrow's own files and ORC: all types that their writers take."""
    for of, (kind, draw) in ARROW.items():
        for library, write, lacks in (
            ("parquet", _parquet, _not_in_parquet),
            ("ipc", _ipc, _not_in_ipc),
            ("orc", _orc, _not_in_orc),
        ):
            if not lacks(of):
                own = _of_orc(of, draw) if library == "orc" else draw
                yield Case(
                    library=library,
                    type=str(of),
                    kind=kind,
                    draw=own,
                    write=lambda values, folder, of=of, write=write: write(
                        table(arrow_array(values, of)), folder
                    ),
                )
    for of in (pa.string(), pa.large_string(), pa.binary(), pa.int16(), pa.decimal128(12, 4)):
        kind, draw = ARROW[of]
        for library, write in (("parquet", _parquet), ("ipc", _ipc)):
            yield Case(
                library=library,
                type=f"dictionary of {of}",
                kind=kind,
                draw=draw,
                write=lambda values, folder, of=of, write=write: write(
                    table(arrow_array(values, of).dictionary_encode()), folder
                ),
            )
    int96 = instants("us", None)
    yield Case(
        library="parquet",
        type="INT96",
        kind="timestamp",
        draw=int96,
        write=lambda values, folder: _parquet(
            table(arrow_array(values, pa.timestamp("us"))),
            folder,
            use_deprecated_int96_timestamps=True,
        ),
    )


def _not_in_parquet(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and kind.scale < 0


def _not_in_ipc(kind: pa.DataType) -> bool:
    return False


def _not_in_orc(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_decimal(kind):
        return not types.is_decimal128(kind) or kind.scale < 0
    checks = (
        types.is_unsigned_integer,
        types.is_float16,
        types.is_time,
        types.is_duration,
        types.is_string_view,
        types.is_binary_view,
        types.is_date64,
        types.is_fixed_size_binary,
        types.is_fixed_size_list,
    )
    return any(check(kind) for check in checks)


def _of_orc(kind: pa.DataType, draw: Draw) -> Draw:
    # ORC counts nanoseconds in Arrow, from 1677 to 2262.
    return instants(kind.unit, kind.tz, 1700, 2200) if pa.types.is_timestamp(kind) else draw


def written_ns(value: int) -> str:
    """A time stamp without a zone as ISO text with nine digits of its second."""
    seconds, ns = divmod(int(value), 10**9)
    return f"{(EPOCH + timedelta(seconds=seconds)).isoformat(sep=' ')}.{ns:09}"
