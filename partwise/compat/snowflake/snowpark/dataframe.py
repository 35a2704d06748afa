"""Rows of a table or statement, and what is made of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from partwise.compat.snowflake.snowpark.column import Column
from partwise.compat.snowflake.snowpark.functions import Aggregate, col
from partwise.compat.snowflake.snowpark.identifiers import quoted, stored
from partwise.compat.snowflake.snowpark.queries import of_frames
from partwise.compat.snowflake.snowpark.row import Row, _row
from partwise.compat.snowflake.snowpark.unknown import Partial
from partwise.errors import ColumnError, InputError
from partwise.tables.column_names import check_unique_names
from partwise.tables.dictionaries import comparable

if TYPE_CHECKING:
    from partwise.compat.snowflake.snowpark.session import Session

_JOINS = ("inner", "left", "right", "full")
_WOULD_HAVE = "The frame would have"


class DataFrame(Partial):
    """Rows that are read, or a statement that is carried out, whenever they are asked for.

    Args:
        read: Returns them.
        session: Whose tables they are written to.
    """

    def __init__(self, read: Callable[[], pa.Table], session: "Session") -> None:
        self._read = read
        self.session = session

    def _of(self, rows: pa.Table) -> "DataFrame":
        return DataFrame(lambda: rows, self.session)

    def __getitem__(self, name: str | Sequence[str]) -> Any:
        return col(_found(self._read(), name)) if isinstance(name, str) else self.select(name)

    @property
    def columns(self) -> list[str]:
        """Their names; those that are not of upper case in quotes."""
        return [quoted(name) for name in self._read().column_names]

    def select(self, *columns: Any) -> "DataFrame":
        """Return some columns, or what is computed of them; or one row of what is of all rows."""
        if any(isinstance(each, Aggregate) for each in _flat(columns)):
            return self.agg(_flat(columns))
        rows = self._read()
        made = [_column(rows, each) for each in _flat(columns)]
        return self._of(_computed(rows, [(_name(each), each) for each in made]))

    def with_column(self, name: str, column: Column) -> "DataFrame":
        """Return the rows with one more column, or another in its place."""
        return self.with_columns([name], [column])

    withColumn = with_column  # noqa: N815 (a name of theirs)

    def with_columns(self, names: Iterable[str], columns: Iterable[Column]) -> "DataFrame":
        """Return the rows with more columns, which stand last, also in the place of others."""
        rows = self._read()
        new = list(zip(map(stored, names), columns, strict=True))
        others = [name for name in rows.column_names if name not in dict(new)]
        return self._of(_computed(rows, [*((name, col(quoted(name))) for name in others), *new]))

    def with_column_renamed(self, existing: str | Column, new: str) -> "DataFrame":
        """Return the rows with a column under another name."""
        rows = self._read()
        old = _name(_column(rows, existing))
        names = [stored(new) if each == old else each for each in rows.column_names]
        check_unique_names(names, _WOULD_HAVE)
        return self._of(rows.rename_columns(names))

    def drop(self, *columns: Any) -> "DataFrame":
        """Return the rows without these columns, of which some may not be there."""
        rows = self._read()
        given = [each if isinstance(each, Column) else col(each) for each in _flat(columns)]
        return self._of(rows.drop_columns({_name(each) for each in given} & {*rows.column_names}))

    def filter(self, expr: Column | str) -> "DataFrame":
        """Return the rows for which a condition holds; it may be a text of SQL, for DuckDB.

        Raises:
            InputError: It is no condition.
        """
        rows = self._read()
        if isinstance(expr, str):
            return self._queried(f"SELECT * FROM FRAME WHERE {expr}")  # noqa: S608 (their own)
        if not isinstance(expr, Column):
            raise InputError(f'filter takes a condition such as col("A") > 1, not {expr!r}.')
        with _columns_of(rows):
            return self._of(rows.filter(expr.expression))

    def where(self, expr: Column | str) -> "DataFrame":
        """Do what `filter` does."""
        return self.filter(expr)

    def distinct(self) -> "DataFrame":
        """Return each row once."""
        return self._queried("SELECT DISTINCT * FROM FRAME")

    def union_all(self, other: "DataFrame") -> "DataFrame":
        """Return the rows of both, whose columns go by their places."""
        return self._queried("SELECT * FROM FRAME UNION ALL SELECT * FROM OTHER", other)

    unionAll = union_all  # noqa: N815 (a name of theirs)

    def union(self, other: "DataFrame") -> "DataFrame":
        """Return the rows of both, each once."""
        return self._queried("SELECT * FROM FRAME UNION SELECT * FROM OTHER", other)

    def join(self, right: "DataFrame", on: str | Sequence[str], how: str = "inner") -> "DataFrame":
        """Return the rows of both that are equal in columns, which stand there once.

        Raises:
            InputError: `on` is no name or list of names, or there is no such `how`.
        """
        names = [on] if isinstance(on, (str, Column)) else on
        kind = how.lower().replace("_", "").removesuffix("outer") or "full"
        if not all(isinstance(name, str) for name in names) or kind not in _JOINS:
            raise InputError(
                f"join takes names of columns that both frames have, not {on!r}, and how= of "
                f"{', '.join(_JOINS)}, not {how!r}: write a condition in session.sql."
            )
        using = ", ".join(quoted(stored(name)) for name in names)
        text = f"SELECT * FROM FRAME {kind} JOIN OTHER USING ({using})"  # noqa: S608 (names)
        return self._queried(text, right)

    def group_by(self, *columns: Any) -> "RelationalGroupedDataFrame":
        """Return groups of rows that are equal in some columns."""
        rows = self._read()
        return RelationalGroupedDataFrame(
            self, [_name(_column(rows, each)) for each in _flat(columns)]
        )

    groupBy = group_by  # noqa: N815 (a name of theirs)

    def agg(self, *exprs: Any) -> "DataFrame":
        """Return what is computed of all rows, as `agg` of groups does."""
        return self.group_by().agg(*exprs)

    def _queried(self, text: str, other: "DataFrame | None" = None) -> "DataFrame":
        frames = {"FRAME": self._read(), **({"OTHER": other._read()} if other else {})}
        return self._of(of_frames(text, self.session, **frames))

    def sort(self, *columns: Any, ascending: int | Sequence[int] | None = None) -> "DataFrame":
        """Return the rows in the order of some columns: ascending, unless it is said, also of each.

        Nulls come first in ascending order, and last in the other, as theirs.

        Raises:
            InputError: `ascending` is none of True and False, and no list of one for each column.
        """
        rows, given = self._read(), _flat(columns)
        if isinstance(ascending, Iterable):
            each_is = list(ascending)
        else:
            each_is = [True if ascending is None else ascending] * len(given)
        if len(each_is) != len(given) or not all(each in (True, False) for each in each_is):
            raise InputError(
                f"ascending is True or False, or a list of one for each of the {len(given)} "
                f"columns, not {ascending!r}."
            )
        by: list[tuple[pa.ChunkedArray, str]] = []
        for column, ascends in zip(given, each_is, strict=True):
            values = comparable(rows[_name(_column(rows, column))])
            if ascends:
                # There nulls come first then. Arrow has them last, as they do in the other order.
                by.append((values.is_valid(), "ascending"))
            by.append((values, "ascending" if ascends else "descending"))
        names = [str(place) for place in range(len(by))]
        keys = [(name, order) for name, (_, order) in zip(names, by, strict=True)]
        places = pc.sort_indices(pa.table([values for values, _ in by], names), sort_keys=keys)
        return self._of(rows.take(places))

    order_by = sort

    def limit(self, n: int) -> "DataFrame":
        """Return the first `n` rows.

        Raises:
            InputError: It is no number of rows.
        """
        return self._of(self._read().slice(0, _row_count(n)))

    def sample(self, frac: float | None = None, n: int | None = None) -> "DataFrame":
        """Return rows that are drawn: each with the chance `frac`, or `n` in all.

        Raises:
            InputError: Neither or both are given, or one that it cannot be.
        """
        if (frac is None) == (n is None) or not (frac is None or 0 <= frac <= 1):
            raise InputError("sample takes one of frac, from 0 to 1, and n, a number of rows.")
        rows, draw = self._read(), np.random.default_rng()
        if frac is not None:
            return self._of(rows.filter(pa.array(draw.random(len(rows)) < frac)))
        return self._of(rows.take(np.sort(draw.permutation(len(rows))[: _row_count(n)])))

    def random_split(self, weights: Sequence[float], seed: int | None = None) -> list["DataFrame"]:
        """Return frames among which the rows are divided, in these shares.

        Raises:
            InputError: A weight is not above 0.
        """
        if not all(weight > 0 for weight in weights):
            raise InputError(f"weights are shares above 0, not {list(weights)}.")
        rows = self._read()
        shares = np.cumsum(weights)[:-1] / np.sum(weights)
        part = np.searchsorted(shares, np.random.default_rng(seed).random(len(rows)), "right")
        return [self._of(rows.filter(pa.array(part == each))) for each in range(len(weights))]

    def subtract(self, other: "DataFrame") -> "DataFrame":
        """Return the rows that the other frame has not, each once; columns go by their places."""
        return self._queried("SELECT * FROM FRAME EXCEPT SELECT * FROM OTHER", other)

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._read().num_rows)

    def collect(self) -> list[Row]:
        """Return the rows."""
        rows = self._read()
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        return [_row(each, rows.column_names) for each in values]

    def first(self) -> Row | None:
        """Return the first row; None: there is none."""
        return next(iter(self.limit(1).collect()), None)

    def show(self, n: int = 10, max_width: int = 50) -> None:
        """Print the first `n` rows, as theirs."""
        rows = self.limit(n)
        names = [f'"{name}"' for name in rows._read().column_names]
        values = [["NULL" if each is None else str(each) for each in row] for row in rows.collect()]
        shown = [[_cut(each, max_width) for each in row] for row in [names, *values]]
        widths = [max(map(len, column)) + 2 for column in zip(*shown, strict=True)]
        lines = ["".join(map(_cell, row, widths)) + "|" for row in shown]
        line = "-" * (sum(widths) + len(widths) + 1)
        print("\n".join([line, lines[0], line, *lines[1:], line]))  # noqa: T201 (asked for)

    def to_pandas(self) -> Any:
        """Return a frame of pandas, whose columns have no quotes, with decimals as floats."""
        return _floats(self._read()).to_pandas()

    toPandas = to_pandas  # noqa: N815 (a name of theirs)

    def to_arrow_batches(self) -> Iterator[pa.Table]:
        """Return the rows as calls and connectors take them, the names as `columns` has them."""
        rows = _floats(self._read())
        return iter([rows.rename_columns([quoted(name) for name in rows.column_names])])

    @property
    def write(self) -> "DataFrameWriter":
        """Writes the rows as a table."""
        return DataFrameWriter(self)


def _of_columns(function: str) -> Callable[..., DataFrame]:
    def of_columns(self: "RelationalGroupedDataFrame", *columns: Any) -> DataFrame:
        """Return this of some columns, for each group."""
        return self.agg([Aggregate(function, each) for each in _flat(columns)])

    return of_columns


class RelationalGroupedDataFrame(Partial):
    """Rows in groups, of which something is computed."""

    def __init__(self, frame: DataFrame, keys: list[str]) -> None:
        self._frame = frame
        self._keys = list(map(quoted, keys))

    avg = mean = _of_columns("AVG")
    max = _of_columns("MAX")
    median = _of_columns("MEDIAN")
    min = _of_columns("MIN")
    sum = _of_columns("SUM")

    def count(self) -> DataFrame:
        """Return the number of rows of each group, as COUNT."""
        return self.agg(Aggregate("COUNT", "*").alias("COUNT"))

    def agg(self, *exprs: Any) -> DataFrame:
        """Return a row for each group, with what is computed of it.

        Args:
            *exprs: Such as sum("X").alias("TOTAL"), ("X", "sum"), or a dictionary {"X": "sum"}.

        Raises:
            InputError: It is none of these.
        """
        made: list[Any] = []
        for each in exprs[0] if len(exprs) == 1 and isinstance(exprs[0], list) else exprs:
            pairs = each.items() if isinstance(each, dict) else [each]
            made += [Aggregate(*reversed(one)) if isinstance(one, tuple) else one for one in pairs]
        if not made or not all(isinstance(each, Aggregate) for each in made):
            raise InputError(f'agg takes sum("X"), ("X", "sum") or {{"X": "sum"}}, not {exprs!r}.')
        asked = [*self._keys, *(each.text for each in made)]
        by = f" GROUP BY {', '.join(self._keys)}" if self._keys else ""
        return self._frame._queried(f"SELECT {', '.join(asked)} FROM FRAME{by}")  # noqa: S608


class DataFrameWriter(Partial):
    """Writes the rows of a frame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._mode = "errorifexists"

    def mode(self, save_mode: str) -> "DataFrameWriter":
        """Set what is done where the table is there already."""
        self._mode = save_mode
        return self

    def save_as_table(self, table_name: str | Sequence[str], mode: str | None = None) -> None:
        """Write the rows as a table."""
        name = table_name if isinstance(table_name, str) else ".".join(table_name)
        self._frame.session.write_rows(name, self._frame._read(), (mode or self._mode).lower())

    saveAsTable = save_as_table  # noqa: N815 (a name of theirs)


def _floats(rows: pa.Table) -> pa.Table:
    """Return rows with decimals as floats or integers, as theirs when they leave the database."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type):
            plain = pa.float64() if field.type.scale else pa.int64()
            # A whole number of more than 64 bits stays.
            with suppress(pa.ArrowInvalid):
                rows = rows.set_column(place, field.name, rows.column(place).cast(plain))
    return rows


def _row_count(n: Any) -> int:
    if not isinstance(n, Integral) or n < 0:
        raise InputError(f"n is a number of rows, from 0 on, not {n!r}.")
    return int(n)


def _flat(columns: tuple[Any, ...]) -> list[Any]:
    """Return columns that are given one by one, or as one list."""
    is_list = len(columns) == 1 and not isinstance(columns[0], (str, Column))
    return list(columns[0] if is_list else columns)


def _column(rows: pa.Table, column: str | Column) -> Column:
    return column if isinstance(column, Column) else col(_found(rows, column))


def _found(rows: pa.Table, name: str) -> str:
    if stored(name) not in rows.column_names:
        names = [quoted(each) for each in rows.column_names]
        raise ColumnError(
            f"The frame has no column {name!r}: it has {names}; write those in quotes with them."
        )
    return name


def _name(column: Column) -> str:
    """Return the name of a column.

    Raises:
        InputError: It is computed, and has none.
    """
    if not column.name:
        raise InputError('A computed column needs a name here: write .alias("NAME") behind it.')
    return column.name


def _computed(rows: pa.Table, columns: Sequence[tuple[str, Column]]) -> pa.Table:
    check_unique_names([name for name, _ in columns], _WOULD_HAVE)
    expressions = {name: column.expression for name, column in columns}
    with _columns_of(rows):
        return ds.dataset(rows).to_table(columns=expressions)


@contextmanager
def _columns_of(rows: pa.Table) -> Iterator[None]:
    """Say by a sentence that a condition or a computation asks for a column that is not there."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "No match for" not in str(error):
            raise
        names = [quoted(each) for each in rows.column_names]
        raise ColumnError(
            f"The frame has {names}, and {str(error).split(' in ')[0]}: write those in quotes "
            "with them."
        ) from error


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _cell(text: str, width: int) -> str:
    return f"|{text:<{width}}"
