"""The borders of partwise that values cross, and what must come out of each.

Each takes values of Python's and the rows that a source gave for them, and tells every value that
is another one behind the border: one line each.
"""

import datetime as dt
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from partwise.connector.data_connector import DataConnector
from partwise.engine.works import produce_rows
from partwise.errors import ColumnError, PartwiseError
from partwise.runs.contents import output_rows
from partwise.runs.ledger import write_table
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.sources.descriptions import Source
from partwise.sources.opening import keyed_by, open_source
from partwise.tables.calendar import calendar_names, with_calendar
from partwise.tables.column_types import is_text
from partwise.tables.features import (
    choose_features,
    feature_matrix,
    find_categories,
    label_numbers,
)
from partwise.tables.keys.partition_keys import key_columns, key_values, partition_id
from partwise.trainers import LightGBMTrainer
from tests.borders.exact_values import EPOCH, Count, exact, exact_column, nanoseconds, nearest
from tests.borders.python_calendar import CALENDAR, shown_by_clocks
from tests.borders.type_cases import Case

NUMBERS = ("integer", "float", "decimal", "boolean")
TIMES = ("date", "time", "timestamp", "timestamp_tz")
COMPARED = (*NUMBERS, *TIMES, "string")
"""The kinds that a filter compares."""

PARQUET_LACKS = "Parquet cannot hold"
"""Of the sentence that refuses what the file of a run's rows cannot hold."""

Lines = Iterator[str]


@dataclass(frozen=True)
class Rows:
    """What a source gave for drawn values."""

    case: Case
    data: Any
    """What the source takes."""
    values: list[Any]
    """Python's own, as they are to come out of the source."""
    table: pa.Table

    @property
    def type(self) -> pa.DataType:
        """Of the column."""
        kind = self.table.schema.field("x").type
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    @cached_property
    def exact(self) -> list[Any]:
        """The values in the form in which they are compared."""
        return [exact(value, self.case.kind) for value in self.values]

    @cached_property
    def random(self) -> Random:
        """Draws what a border needs besides the values."""
        return Random(len(self.values))


def differing(expected: Sequence[Any], found: Sequence[Any], what: str) -> Lines:
    """Tell the first value that is another, and how many are."""
    wrong = [
        row for row, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]
    ]
    if wrong:
        row = wrong[0]
        yield f"{what}: {len(wrong)} differ; row {row} is {found[row]!r} and not {expected[row]!r}"


def refused(call: Callable[[], Any], what: str, *words: str) -> Lines:
    """Tell it where nothing is refused, or in a sentence that lacks a word."""
    try:
        found = call()
    except PartwiseError as error:
        lacking = [word for word in words if word not in str(error)]
        if lacking:
            yield f"{what}: the sentence {str(error)!r} lacks {lacking}"
        return
    except Exception as error:
        yield f"{what}: raised {error!r}"
        return
    yield f"{what}: gave {found!r:.200}"


def read(case: Case, values: Sequence[Any], folder: Path) -> Rows:
    """Write values, and read them as a source."""
    data = case.write(values, folder)
    batches = list(open_source(data).batches())
    expected = [None if value is None else case.read(value) for value in values]
    whole = pa.Table.from_batches(batches)
    return Rows(case, data, expected, whole if case.is_ordered else whole.sort_by("row"))


def source(rows: Rows, _: Path) -> Lines:
    """The source gives the values."""
    yield from differing(rows.exact, exact_column(rows.table["x"], rows.case.kind), "source")
    if rows.table["row"].cast(pa.int64()).to_pylist() != list(range(len(rows.values))):
        yield "source: rows are in another order"


# --- Filters -------------------------------------------------------------------------------------

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def filters(rows: Rows, _: Path) -> Lines:
    """A filter keeps the rows for which Python says that the comparison holds."""
    kind = rows.case.kind
    known = [value for value in rows.values if value is not None and value == value]
    if not known:
        return
    if kind not in COMPARED:
        call = lambda: list(open_source(rows.data, filter=[("x", "=", known[0])]).batches())  # noqa: E731
        yield from refused(call, "filter", "x")
        return
    conditions = [*_conditions(rows, known)]
    for sign, given, stands_for in conditions:
        compared = _compared_with(stands_for, rows.type)
        found = _kept(rows, (("x", sign, given),))
        if isinstance(found, str):
            yield f"filter {sign} {given!r}: {found}"
            continue
        expected = [
            row for row, value in enumerate(rows.values) if _passes(value, sign, compared, kind)
        ]
        yield from differing([expected], [found], f"filter {sign} {given!r}")


def _conditions(rows: Rows, known: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Signs, values as a user gives them, and Python's values that these are."""
    random, kind = rows.random, rows.case.kind
    signs = list(_OPERATORS) if kind != "boolean" else ["=", "!="]
    for sign in signs:
        value = random.choice(known)
        if (
            kind in NUMBERS
            and kind != "boolean"
            and abs(value) != math.inf
            and random.random() < 0.5
        ):
            value = random.choice(_beside(value))
        if isinstance(value, float) and not math.isfinite(value):
            continue
        yield sign, as_given(value, kind), value
    listed = [
        v for v in random.choices(known, k=3) if not (isinstance(v, float) and not math.isfinite(v))
    ]
    if listed:
        for sign in ("in", "not in"):
            yield sign, [as_given(value, kind) for value in listed], listed


def _beside(value: Any) -> list[Any]:
    """Numbers of another type, or just beside one, that a filter may compare with."""
    if isinstance(value, float):
        near = [math.nextafter(value, math.inf), value + 1]
        return [*near, int(value), int(value) + 1] if abs(value) < 2.0**62 else near
    if isinstance(value, Decimal):
        return (
            [nearest(value), int(value), value] if abs(value) < 2**62 else [nearest(value), value]
        )
    return [float(value), value + 1, value - 1, value + 0.5, math.nextafter(float(value), math.inf)]


def as_given(value: Any, kind: str) -> Any:
    """A value as a filter takes it: times so fine that Python has none are text."""
    if not isinstance(value, Count):
        return value
    if kind == "time":
        seconds, ns = divmod(int(value), 10**9)
        return f"{(EPOCH + dt.timedelta(seconds=seconds)).time()}.{ns:09}"
    return pd.Timestamp(int(value), tz="UTC" if kind == "timestamp_tz" else None).isoformat()


def _kept(rows: Rows, condition: Any) -> list[int] | str:
    try:
        batches = list(open_source(rows.data, filter=list(condition)).batches())
    except PartwiseError as error:
        return [] if "leaves none of the" in str(error) else f"refused: {error}"
    except Exception as error:
        return f"raised {error!r}"
    kept = [row for batch in batches for row in batch["row"].to_pylist()]
    return kept if rows.case.is_ordered else sorted(kept)


def _passes(value: Any, sign: str, given: Any, kind: str) -> bool:
    if value is None:
        return sign == "not in"
    mine = _ordered(value, kind)
    if sign in ("in", "not in"):
        return any(mine == _ordered(each, kind) for each in given) == (sign == "in")
    return _OPERATORS[sign](mine, _ordered(given, kind))


def _compared_with(value: Any, data_type: pa.DataType) -> Any:
    """What a value stands for in a filter: doubles, for the nearest narrow number or as written."""
    if isinstance(value, list):
        return [_compared_with(each, data_type) for each in value]
    if isinstance(value, float) and pa.types.is_decimal(data_type):
        return int(value) if value.is_integer() else Decimal(repr(value))
    if isinstance(value, float) and pa.types.is_floating(data_type):
        with np.errstate(over="ignore"):
            narrow = float(data_type.to_pandas_dtype()(value))
        return narrow if math.isfinite(narrow) else value
    return value


def _ordered(value: Any, kind: str) -> Any:
    if kind in ("time", "timestamp", "timestamp_tz"):
        return nanoseconds(value)
    return value


# --- Keys ----------------------------------------------------------------------------------------


def keys(rows: Rows, folder: Path) -> Lines:
    """Equal values are one partition, whose name and key are those of Python's value."""
    schema = rows.table.schema
    if rows.case.kind == "nested":
        yield from refused(
            lambda: key_columns(schema, ["x"]), "key", "'x'", "cannot be a partition key"
        )
        return
    opened = keyed_by(open_source(rows.data), ["x"])
    columns = key_columns(opened.schema, ["x"])
    if is_text(opened.schema.field("x").type) and not is_text(rows.type):
        yield from _written_keys(rows, opened, folder)
        return
    if rows.case.kind == "time" and any(
        each is not None and nanoseconds(each) % 1000 for each in rows.values
    ):
        call = lambda: shard_rows(opened, columns, 1, folder / "sharded", null_keys="keep")  # noqa: E731
        yield from refused(call, "key", "'x'", "time64[ns]")
        return
    is_json_double = rows.case.library == "json" and pa.types.is_floating(rows.type)
    if is_json_double and any(abs(each or 0.0) >= 2.0**53 for each in rows.values):
        call = lambda: shard_rows(opened, columns, 1, folder / "sharded", null_keys="keep")  # noqa: E731
        yield from refused(call, "key", "'x'", "would be one key")
        return
    names = [partition_id(as_key(value, rows.case.kind), columns) for value in rows.values]
    sharded = shard_rows(opened, columns, 1, folder / "sharded", null_keys="keep")
    done = sort_shard(sharded.shards[0], sharded.key_columns, folder / "sorted")
    reader = ShardReader(done.path)
    found: dict[int, tuple[str, Any]] = {}
    values = zip(done.partition_ids, exact_column(done.keys["x"], rows.case.kind), strict=True)
    for (name, value), (start, stop) in zip(
        values, itertools.pairwise(done.offsets.tolist()), strict=True
    ):
        partition = reader.partition(start, stop)
        yield from differing(
            [rows.exact[row] for row in partition["row"].to_pylist()],
            exact_column(partition["x"], rows.case.kind),
            "rows of a partition",
        )
        for row in partition["row"].to_pylist():
            found[row] = (name, value)
    expected = [
        (name, _of_key(value, rows.case.kind))
        for name, value in zip(names, rows.values, strict=True)
    ]
    yield from differing(expected, [found[row] for row in range(len(expected))], "key")
    asked = [partition_id(key, columns) for key in key_values(done.keys)]
    yield from differing(done.partition_ids, asked, "key that was read")


def _written_keys(rows: Rows, opened: Source, folder: Path) -> Lines:
    """A partition of each way in which numbers are written, as of -0 and 0 in a CSV file."""
    columns = key_columns(opened.schema, ["x"])
    sharded = shard_rows(opened, columns, 1, folder / "sharded", null_keys="keep")
    done = sort_shard(sharded.shards[0], sharded.key_columns, folder / "sorted")
    reader = ShardReader(done.path)
    found = []
    for start, stop in itertools.pairwise(done.offsets.tolist()):
        there = reader.partition(start, stop)["row"].to_pylist()
        # Whatever is one partition is one value, to the bit.
        yield from differing(
            [rows.exact[there[0]]] * len(there), [rows.exact[row] for row in there], "written key"
        )
        found += there
    yield from differing(list(range(len(rows.values))), sorted(found), "rows of all written keys")


def _of_key(value: Any, kind: str) -> Any:
    return exact(value + 0.0 if kind == "float" and value is not None else value, kind)


def as_key(value: Any, kind: str) -> Any:
    """A value as a user asks for its partition: of nanoseconds, pandas and numpy have values."""
    if not isinstance(value, Count):
        return value
    if kind == "duration":
        return np.timedelta64(int(value), "ns")
    if kind == "time":
        return pa.scalar(int(value), pa.time64("ns"))
    return pd.Timestamp(int(value), tz="UTC" if kind == "timestamp_tz" else None)


# --- Features and labels -------------------------------------------------------------------------


def _chosen(rows: Rows, categorical: Sequence[str]) -> Any:
    names = {"label": "row", "features": ["x"], "categorical": categorical, "left_out": ()}
    return choose_features(rows.table.schema, **names)


def features(rows: Rows, _: Path) -> Lines:
    """A feature is the nearest double; what is not one is refused by name, or has a calendar."""
    table, kind = rows.table, rows.case.kind
    chosen = partial(_chosen, rows, ())
    is_category = pa.types.is_dictionary(table.schema.field("x").type)
    if kind in NUMBERS and not is_category:
        chosen()
        found = feature_matrix(table, ["x"], {})[:, 0].tolist()
        yield from differing(_doubles(rows), [repr(value) for value in found], "feature")
    elif not is_category and kind != "null":
        yield from refused(chosen, "feature", "'x'", str(table.schema.field("x").type))
    if kind in TIMES and not is_category:
        yield from calendars(rows)


def _doubles(rows: Rows) -> list[str]:
    return [repr(nearest(value)) for value in rows.values]


def calendars(rows: Rows) -> Lines:
    """The calendar of a time is what Python's clocks show in its zone."""
    names = calendar_names("x", rows.type)
    made = with_calendar(rows.table, names)
    shown = [None if value is None else shown_by_clocks(value, rows.type) for value in rows.values]
    # Clocks of a zone may be in a year that Python lacks.
    told = [row for row, each in enumerate(shown) if each is None or each[0] is not None]
    for name in names:
        part = name.removeprefix("x@")
        expected = [None if shown[row] is None else CALENDAR[part](*shown[row]) for row in told]
        found = made.column(name).to_pylist()
        yield from differing(expected, [found[row] for row in told], f"calendar {part}")


def categories(rows: Rows, _: Path) -> Lines:
    """Each value's code leads to a category that is equal to it; null and NaN have none."""
    chosen = partial(_chosen, rows, ("x",))
    if rows.case.kind not in (*NUMBERS, "string", "null"):
        yield from refused(chosen, "category", "'x'", str(rows.table.schema.field("x").type))
        return
    chosen()
    known = find_categories(rows.table["x"])
    codes = feature_matrix(rows.table, ["x"], {"x": known})[:, 0].tolist()
    found = [None if code != code else known[int(code)] for code in codes]
    yield from differing([_category(value) for value in rows.values], found, "category")
    if len(known) != len(set(known)) and rows.case.kind != "float":
        yield "category: two are equal"


def _category(value: Any) -> Any:
    if value is None or value != value:
        return None
    return nearest(value) if isinstance(value, Decimal) else value


def labels(rows: Rows, _: Path) -> Lines:
    """A label is the nearest double, or the place of its class."""
    kind, field = rows.case.kind, rows.table.schema.field("x")
    trainer = LightGBMTrainer(label="x", features=("row",))
    check = partial(trainer._check_label_column, rows.table.schema, frozenset())
    if kind in NUMBERS and not pa.types.is_dictionary(field.type):
        check()
        found = label_numbers("x", rows.table["x"]).tolist()
        yield from differing(_doubles(rows), [repr(value) for value in found], "label")
    elif kind != "null":
        yield from refused(check, "label", "'x'", str(field.type))
    if kind in ("string", "boolean", "integer"):
        known = list(dict.fromkeys(value for value in rows.values if value is not None))
        places = label_numbers("x", rows.table["x"], known).tolist()
        expected = [
            repr(math.nan if value is None else float(known.index(value))) for value in rows.values
        ]
        yield from differing(expected, [repr(place) for place in places], "class of a label")


# --- What comes out ------------------------------------------------------------------------------


def predictions(rows: Rows, _: Path) -> Lines:
    """What a function returns, in any form that keeps the values, is in the rows of the run."""
    data = DataConnector(rows.table)
    forms: dict[str, Callable[[], Any]] = {
        "arrow": data.to_arrow,
        "pandas": lambda: data.to_pandas(types="arrow"),
        "mapping": lambda: {"row": data.to_numpy("row"), "x": data.to_arrow()["x"]},
    }
    try:
        frame = data.to_polars()
        forms["polars"] = lambda: frame
    except ColumnError as error:
        if "'x'" not in str(error):
            yield f"to_polars: {error}"
    if rows.case.is_frame:
        forms["its own frame"] = lambda: rows.data
    for form, outcome in forms.items():
        yield from _stored(rows, lambda outcome=outcome: outcome(), None, f"prediction as {form}")
    if rows.case.kind in NUMBERS:
        doubles = np.array([nearest(value) for value in rows.values])
        stored = written(produce_rows(doubles, data, [], None, "prediction").rows)
        found = [repr(value) for value in stored["prediction"].to_pylist()]
        yield from differing([repr(value) for value in doubles.tolist()], found, "prediction")


def outputs(rows: Rows, _: Path) -> Lines:
    """A column that is kept beside predictions is in the output as it was in the source."""
    yield from _stored(rows, lambda: {"prediction": np.zeros(len(rows.values))}, ["x"], "output")


def _stored(rows: Rows, outcome: Callable[[], Any], keep: Any, what: str) -> Lines:
    data = DataConnector(rows.table)
    try:
        produced = produce_rows(outcome(), data, [], keep, "value").rows
        stored = written(produced)
    except ColumnError as error:
        if "'x'" not in str(error) or PARQUET_LACKS not in str(error):
            yield f"{what}: {error}"
        return
    except Exception as error:
        yield f"{what}: raised {error!r}"
        return
    yield from differing(rows.exact, exact_column(stored["x"], rows.case.kind), what)


def written(table: pa.Table) -> pa.Table:
    """Rows as a run stores them, read back."""
    return output_rows(write_table(table), "rows", None, table.num_rows)
