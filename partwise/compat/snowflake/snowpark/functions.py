"""Functions that make columns."""

from typing import Any

import pyarrow.compute as pc

from partwise.compat.snowflake.snowpark.column import Column, expression_of
from partwise.compat.snowflake.snowpark.identifiers import quoted, stored


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
