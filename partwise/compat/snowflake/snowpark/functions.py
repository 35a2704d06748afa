"""Functions that make columns."""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import pyarrow.compute as pc

from partwise.compat.snowflake.snowpark.column import Column, expression_of
from partwise.compat.snowflake.snowpark.identifiers import quoted, stored
from partwise.compat.snowflake.snowpark.unknown import Partial
from partwise.errors import InputError


def col(name: str) -> Column:
    """Return a column of the frame."""
    return Column(pc.field(stored(name)), stored(name))


column = col


def lit(value: Any) -> Column:
    """Return a column of one value."""
    return Column(pc.scalar(value), quoted(str(value)))


def when(condition: Column, value: Any) -> "CaseExpr":
    """Return a column of this value where the condition holds, and of nulls elsewhere."""
    return CaseExpr([(condition, value)], None)


class Aggregate(Partial):
    """What is computed of the rows of each group, as a text of SQL.

    Args:
        function: Its name there.
        column: Of which; a star for the rows themselves.
    """

    def __init__(self, function: str, column: str | Column) -> None:
        name = column.name if isinstance(column, Column) else stored(column)
        if not name:
            raise InputError(f"{function} of a computed column: make it by with_column first.")
        self.text = f"{function.upper()}({name if name == '*' else quoted(name)})"

    def alias(self, name: str) -> "Aggregate":
        """Return it under another name."""
        other = copy(self)
        other.text = f"{self.text} AS {quoted(stored(name))}"
        return other

    as_ = name_ = alias


def _of(function: str) -> Callable[[str | Column], Aggregate]:
    return partial(Aggregate, function)


avg = mean = _of("AVG")
count = _of("COUNT")
max = max_ = _of("MAX")  # noqa: A001 (a name of theirs, as min and sum)
median = _of("MEDIAN")
min = min_ = _of("MIN")  # noqa: A001
stddev = _of("STDDEV")
sum = sum_ = _of("SUM")  # noqa: A001
variance = _of("VARIANCE")


class CaseExpr(Column):
    """A column of the value whose condition is the first that holds."""

    def __init__(self, cases: list[tuple[Column, Any]], other: Any) -> None:
        self._cases = cases
        chosen = expression_of(other)
        for condition, value in reversed(cases):
            # A condition that is null does not hold.
            holds = pc.coalesce(condition.expression, pc.scalar(False))
            chosen = pc.if_else(holds, expression_of(value), chosen)
        super().__init__(chosen, "")

    def when(self, condition: Column, value: Any) -> "CaseExpr":
        """Return it with one more case."""
        return CaseExpr([*self._cases, (condition, value)], None)

    def otherwise(self, value: Any) -> "CaseExpr":
        """Return it with a value for all other rows."""
        return CaseExpr(self._cases, value)
