"""Tables of Delta and Iceberg: all types that their writers take, in several files.

Of a table that is divided by a column, the values of that column stand in the log alone.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tests.borders.exact_values import Draw, kind_of
from tests.borders.type_cases import ARROW, Case, arrow_array, table
from tests.sources.log_tables import folder_of, new_iceberg, write_delta
from tests.thoroughness import THOROUGH

_FILES = 2


def _parts(values: Sequence[Any], of: pa.DataType) -> Iterator[pa.Table]:
    whole = table(arrow_array(values, of))
    step = len(values) // _FILES + 1
    return (whole.slice(start, step) for start in range(0, len(values), step))


def _delta(values: Sequence[Any], folder: Path, of: pa.DataType, divided: bool) -> str:
    for part in _parts(values, of):
        write_delta(folder / "t", part, partition_by=["x"] if divided else None)
    return str(folder / "t")


def _iceberg(values: Sequence[Any], folder: Path, of: pa.DataType, divided: bool) -> str:
    first, *others = _parts(values, of)
    if not divided:
        made = new_iceberg(folder, first)
        for part in others:
            made.append(part)
        return folder_of(made)
    made = new_iceberg(folder, first.slice(0, 0))
    with made.update_spec() as update:
        update.add_identity("x")
    # A file for each value, so that these are several in one step of the log, too.
    made.append(pa.concat_tables([first, *others]))
    return folder_of(made)


def log_table_cases() -> Iterator[Case]:
    """Each type in the files of a table, and as that by which it is divided."""
    for of, (kind, draw) in ARROW.items():
        for library, write, lacks in (
            ("delta", _delta, _not_in_delta),
            ("iceberg", _iceberg, _not_in_iceberg),
        ):
            if lacks(of):
                continue
            for divided in (False, True) if _divides(library, of, kind) else (False,):
                yield Case(
                    library=library,
                    type=f"divided by {of}" if divided else str(of),
                    kind=kind,
                    draw=_drawn(of, draw, library) if divided else draw,
                    write=lambda values, folder, of=of, write=write, divided=divided: write(
                        values, folder, of, divided
                    ),
                    is_ordered=False,
                    # Each value has a file of its own, which each filter opens.
                    most=(30 if THOROUGH else 12) if divided else 1_000,
                )


def _divides(library: str, of: pa.DataType, kind: str) -> bool:
    """Whether a table can be divided by a column of a type, by its writer."""
    if kind == "nested" or (library == "delta" and kind == "binary"):
        return False
    views = (pa.string_view(), pa.binary_view(), pa.float16())
    return library == "delta" or of not in views


def _drawn(of: pa.DataType, draw: Draw, library: str) -> Draw:
    """Values by which the writers can divide a table; each has some that it cannot."""

    def drawn(random: Random) -> Any:
        value = draw(random)
        if library == "iceberg":
            # It writes no rows of NaN, and those of -0.0 and 0.0 twice.
            return 0.5 if pa.types.is_floating(of) and (value == 0.0 or value != value) else value
        if pa.types.is_decimal(of):
            return value.copy_abs()
        # A value of many digits is too long for the name of a folder; "" is null there.
        is_long = pa.types.is_floating(of) and len(format(Decimal(repr(value)), "f")) > 40
        return 0.5 if is_long else value or "empty" if kind_of(of) == "string" else value

    return drawn


def _not_in_delta(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_decimal(kind):
        return not types.is_decimal128(kind) or kind.scale < 0
    checks = (types.is_unsigned_integer, types.is_float16, types.is_time, types.is_duration)
    # It rounds nanoseconds to microseconds as it writes.
    return any(check(kind) for check in checks) or _is_ns(kind)


def _is_ns(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "ns"


def _not_in_iceberg(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_decimal(kind):
        return not types.is_decimal128(kind) or kind.scale < 0
    if types.is_timestamp(kind):
        return kind.unit == "ns" or kind.tz not in (None, "UTC")
    checks = (types.is_uint32, types.is_uint64, types.is_date64, types.is_duration)
    return any(check(kind) for check in checks) or (types.is_time(kind) and kind != pa.time64("us"))
