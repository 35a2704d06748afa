"""What is computed of each row."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.compat.snowflake.snowpark.identifiers import stored
from partwise.compat.snowflake.snowpark.unknown import Partial


class Column(Partial):
    """An expression of Arrow, and the name of the column that it makes."""

    # Equality makes a column.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expression: pc.Expression, name: str) -> None:
        self.expression = expression
        self.name = name

    def _with(self, made: pc.Expression) -> "Column":
        return Column(made, "")

    def __bool__(self) -> bool:
        """Refuse `and`, `or` and `if`, which would take a condition for true.

        Raises:
            TypeError: Always.
        """
        raise TypeError("A column is neither true nor false: write &, | and ~, and when(...).")

    def alias(self, name: str) -> "Column":
        """Return it under another name."""
        return Column(self.expression, stored(name))

    as_ = name_ = alias

    def isin(self, *values: Any) -> "Column":
        """Return whether the value is among these; of null, or beside a null, nobody knows."""
        listed = list(values[0] if len(values) == 1 and _is_several(values[0]) else values)
        known = [value for value in listed if value is not None]
        unknown = pc.scalar(pa.scalar(None, pa.bool_()))
        is_in = self.expression.isin(pa.array(known)) if known else pc.scalar(False)
        if len(known) < len(listed):
            is_in = pc.if_else(is_in, pc.scalar(True), unknown)
        return self._with(pc.if_else(self.expression.is_valid(), is_in, unknown))

    in_ = isin

    def is_null(self) -> "Column":
        """Return whether there is no value."""
        return self._with(self.expression.is_null())

    isNull = is_null  # noqa: N815 (a name of theirs)

    def is_not_null(self) -> "Column":
        """Return whether there is a value."""
        return self._with(self.expression.is_valid())

    isNotNull = is_not_null  # noqa: N815 (a name of theirs)

    def __eq__(self, other: object) -> "Column":  # type: ignore[override]
        return self._with(self.expression == expression_of(other))

    def __ne__(self, other: object) -> "Column":  # type: ignore[override]
        return self._with(self.expression != expression_of(other))

    def __lt__(self, other: Any) -> "Column":
        return self._with(self.expression < expression_of(other))

    def __le__(self, other: Any) -> "Column":
        return self._with(self.expression <= expression_of(other))

    def __gt__(self, other: Any) -> "Column":
        return self._with(self.expression > expression_of(other))

    def __ge__(self, other: Any) -> "Column":
        return self._with(self.expression >= expression_of(other))

    def __and__(self, other: "Column") -> "Column":
        return self._with(self.expression & expression_of(other))

    def __or__(self, other: "Column") -> "Column":
        return self._with(self.expression | expression_of(other))

    def __invert__(self) -> "Column":
        return self._with(~self.expression)

    def __neg__(self) -> "Column":
        return self._with(pc.negate(self.expression))

    def __add__(self, other: Any) -> "Column":
        return self._with(self.expression + expression_of(other))

    def __radd__(self, other: Any) -> "Column":
        return self._with(expression_of(other) + self.expression)

    def __sub__(self, other: Any) -> "Column":
        return self._with(self.expression - expression_of(other))

    def __rsub__(self, other: Any) -> "Column":
        return self._with(expression_of(other) - self.expression)

    def __mul__(self, other: Any) -> "Column":
        return self._with(self.expression * expression_of(other))

    def __rmul__(self, other: Any) -> "Column":
        return self._with(expression_of(other) * self.expression)

    def __truediv__(self, other: Any) -> "Column":
        # Arrow divides whole numbers without a rest.
        return self._with(self.expression.cast(pa.float64()) / expression_of(other))

    def __rtruediv__(self, other: Any) -> "Column":
        return self._with(expression_of(other).cast(pa.float64()) / self.expression)


def expression_of(value: Any) -> pc.Expression:
    """Return the expression of a column, or of a value."""
    return value.expression if isinstance(value, Column) else pc.scalar(value)


def _is_several(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)
