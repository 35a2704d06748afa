"""Dates and times as numbers: the month, the weekday and so on, as columns that a name asks for.

`day@month` is the month of the column `day`. Such a column is made where rows become features, in
training as in inference, so a model that has its name needs nothing else to find it. Rows that have
a column of that very name keep their own.

2026-11-24: the name has an "@" because hardly a column of one's own has: a "day.weekday" that
somebody made to begin with Sunday would be replaced by ours, without a word, where it is missing.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.tables.column_names import columns_there, names_in_words
from partwise.tables.column_types import is_text
from partwise.tables.local_times import UNITS_A_SECOND, local_times

SEPARATOR = "@"
_ZONES = b"partwise.zones"
"""In the metadata of what is kept beside a model."""

_MOST_EXACT = 2**53
"""Up to which every whole number is a double."""

_Make = Callable[[pa.ChunkedArray], pa.ChunkedArray]


def _epoch_days(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_date64(kind):
        return column.cast(pa.date32()).cast(pa.int32())
    a_day = 86_400 * UNITS_A_SECOND[kind.unit]
    counts = column.cast(pa.int64()).fill_null(0).to_numpy()
    if kind.unit == "ns":
        # One instant is one number, in whichever unit its column counts.
        counts, a_day = counts // 1000, a_day // 1000
    days = counts / a_day
    # Beyond 2^53 numpy rounds twice.
    large = np.flatnonzero(np.abs(counts) > _MOST_EXACT)
    days[large] = [count / a_day for count in counts[large].tolist()]
    return pa.chunked_array([pa.array(days, mask=np.asarray(column.is_null()))])


_OF_DATES: Mapping[str, tuple[_Make, pa.DataType]] = {
    "year": (pc.year, pa.int32()),
    "month": (pc.month, pa.int16()),
    "day": (pc.day, pa.int16()),
    "weekday": (pc.day_of_week, pa.int16()),
    "day_of_year": (pc.day_of_year, pa.int16()),
    "week": (pc.iso_week, pa.int16()),
    "epoch_days": (_epoch_days, pa.float64()),
}
_OF_TIMES: Mapping[str, tuple[_Make, pa.DataType]] = {
    "hour": (pc.hour, pa.int16()),
    "minute": (pc.minute, pa.int16()),
}


def _parts(kind: pa.DataType) -> Mapping[str, tuple[_Make, pa.DataType]]:
    """Return what can be made of a column of this type, by name; nothing of most types."""
    if pa.types.is_date(kind):
        return _OF_DATES
    if pa.types.is_time(kind):
        return _OF_TIMES
    # A column of nulls may be one of dates of which none was known.
    if pa.types.is_timestamp(kind) or pa.types.is_null(kind):
        return {**_OF_DATES, **_OF_TIMES}
    return {}


def has_calendar(kind: pa.DataType) -> bool:
    """Whether numbers of a calendar can be made of a type."""
    return not pa.types.is_null(kind) and bool(_parts(kind))


def calendar_names(column: str, kind: pa.DataType) -> list[str]:
    """Return the names of all that can be made of a column.

    Example:
        >>> calendar_names("opened", pa.time32("s"))
        ['opened@hour', 'opened@minute']
    """
    return [f"{column}{SEPARATOR}{part}" for part in _parts(kind)]


def makeable(schema: pa.Schema) -> list[str]:
    """Return the names of all columns that can be made of those of a schema, and are not there."""
    there = set(schema.names)
    names = (name for field in schema for name in calendar_names(field.name, field.type))
    return [name for name in names if name not in there]


def check_calendar(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Refuse columns of which no calendar can be made."""
    if missing := [name for name in columns if name not in schema.names]:
        raise ColumnError(
            f"The calendar columns {names_in_words(missing)} are missing; "
            f"{columns_there(schema.names, *missing)}"
        )
    for name in columns:
        kind = schema.field(name).type
        made = calendar_names(name, kind)
        if not made:
            csv = " (of CSV files, --csv-date-formats reads it as one)" if is_text(kind) else ""
            raise ColumnError(
                f"The calendar column {name!r} is {kind}: cast it to a date or a timestamp{csv}."
            )
        if there := [one for one in made if one in schema.names]:
            raise ColumnError(
                f"The data has columns of its own with names that the calendar of {name!r} gives: "
                f"{names_in_words(there)}. Rename them, or name those wanted in features."
            )


def source_columns(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """Return the columns to be read for these: of a made one, that which it is made of."""
    read = []
    for name in names:
        source = None if name in schema.names else _source(name, schema)
        read.append(name if source is None else source.column)
    return list(dict.fromkeys(read))


def with_calendar(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return rows with those columns besides their own that are named here and can be made.

    A time zone's column gives what its clocks show. Null stays null.

    Example:
        >>> day = pa.array([19723], pa.int32()).cast(pa.date32())
        >>> with_calendar(pa.table({"day": day}), ["day@month"]).column("day@month").to_pylist()
        [1]
    """
    there = set(rows.column_names)
    for name in names:
        source = None if name in there else _source(name, rows.schema)
        if source is None:
            continue
        there.add(name)
        values = rows.column(source.column)
        try:
            made = values if pa.types.is_null(values.type) else source.make(_shown(values))
        except pa.ArrowInvalid as error:  # a time zone that this machine does not know
            raise ColumnError(
                f"The column {name!r} cannot be made of {source.column!r}, which is "
                f"{values.type}: {error}"
            ) from error
        rows = rows.append_column(name, made.cast(source.kind))
    return rows


def zones_of(names: Iterable[str], schema: pa.Schema) -> dict[str, str]:
    """Return the time zones in which times are shown, by column; "" of times without one."""
    kinds = {
        name: schema.field(name).type
        for name in source_columns(names, schema)
        if name in schema.names
    }
    return {n: kind.tz or "" for n, kind in kinds.items() if pa.types.is_timestamp(kind)}


def in_zones(table: pa.Table, zones: Mapping[str, str]) -> pa.Table:
    """Return rows with times in the zones in which a model has learned what clocks show."""
    for name, zone in zones.items():
        index = table.schema.get_field_index(name)
        kind = None if index < 0 else table.schema.field(index).type
        if kind is None or not pa.types.is_timestamp(kind) or (kind.tz or "") == zone:
            continue
        if not zone or kind.tz is None:
            now, then = (f"the time zone {each!r}" if each else "none" for each in (kind.tz, zone))
            raise ColumnError(
                f"The column {name!r} had {then} in training and has {now}: what its clocks show, "
                "such as the hour, would not be the same; give it the one it had."
            )
        # The same instants, as the other zone's clocks show them.
        moved = table.column(index).cast(pa.timestamp(kind.unit, zone))
        table = table.set_column(index, name, moved)
    return table


def with_zones(table: pa.Table | None, zones: Mapping[str, str]) -> pa.Table:
    """Return what is kept beside a model, with the zones of its times in the metadata."""
    kept = pa.table({}) if table is None else table
    known = kept.schema.metadata or {}
    return kept.replace_schema_metadata({**known, _ZONES: json.dumps(dict(zones)).encode()})


def zones_among(table: pa.Table) -> dict[str, str]:
    """Return the zones that `with_zones` added."""
    found: dict[str, str] = json.loads((table.schema.metadata or {}).get(_ZONES, b"{}"))
    return found


def _shown(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times without a zone: of one, what its clocks show."""
    kind = values.type
    has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
    return local_times(values) if has_zone else values


def calendar_schema(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the schema of `with_calendar`."""
    for name in names:
        # Of a schema alone: for its first array, pyarrow imports pandas.
        if name not in schema.names and (source := _source(name, schema)) is not None:
            schema = schema.append(pa.field(name, source.kind))
    return schema


def why_not_made(names: Iterable[str], schema: pa.Schema) -> str:
    """Return a sentence about the first of these that cannot be made of the column it names."""
    for name in names:
        column, separator, part = name.rpartition(SEPARATOR)
        if separator and column in schema.names and part in {**_OF_DATES, **_OF_TIMES}:
            kind = schema.field(column).type
            return f" The column {column!r} is {kind}, which has no {part}: cast it."
    return ""


@dataclass(frozen=True, slots=True)
class _Source:
    """What a column is made of, and how."""

    column: str
    make: _Make
    kind: pa.DataType


def _source(name: str, schema: pa.Schema) -> _Source | None:
    column, separator, part = name.rpartition(SEPARATOR)
    if not separator or column not in schema.names:
        return None
    found = _parts(schema.field(column).type).get(part)
    return None if found is None else _Source(column, *found)
