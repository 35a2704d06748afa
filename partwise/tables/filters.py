"""Filters of rows, as pyarrow.parquet writes them: ("column", operator, value)."""

import datetime as dt
import math
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from functools import partial, reduce
from itertools import starmap
from operator import and_, or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError, InputError
from partwise.formatting import lone_surrogate, shortened
from partwise.tables.column_types import comparable_type
from partwise.tables.comparisons import ALWAYS, comparison, equal_values
from partwise.tables.dictionaries import plain_storage

Condition = tuple[str, str, Any]
Filter = Sequence[Condition] | Sequence[Sequence[Condition]]
"""Conditions that must all hold, or a list of such lists of which one must hold."""

Conditions = list[list[list[Any]]]
"""A filter in the one form that stands in documents: of some list all conditions must hold."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OPERATORS = (*_COMPARE, "in", "not in")


def _plain(condition: Any, value: Any) -> Any:
    """A value of a condition as JSON has it; dates and decimals become text."""
    if isinstance(value, np.datetime64) and isinstance(value.item(), int):
        # Of nanoseconds, which Python has no times of, it is their number.
        value = str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if found := lone_surrogate(value):
        raise InputError(f"The filter on column {condition[0]!r} holds {found}: correct it.")
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InputError(
        f"Filter condition {condition!r} compares with {value!r}: use a number, a text, a boolean, "
        "a date or a time; nulls never pass a comparison."
    )


def _condition(condition: Any) -> list[Any]:
    is_one = isinstance(condition, list | tuple) and len(condition) == 3
    if not is_one or not isinstance(condition[0], str):
        raise InputError(
            f"Filter condition {condition!r} is not of the form (column, operator, value)."
        )
    column, operator, value = condition
    if operator not in _OPERATORS:
        raise InputError(
            f"Filter condition {condition!r} has the unknown operator {operator!r}: "
            f"use one of {', '.join(_OPERATORS)}."
        )
    if operator in ("in", "not in"):
        if isinstance(value, str) or not isinstance(value, Collection) or not len(value):
            raise InputError(f"Filter condition {condition!r} needs a list of values after 'in'.")
        values = [_plain(condition, item) for item in value]
        is_set = isinstance(value, set | frozenset)
        return [column, operator, _sorted(values) if is_set else values]
    return [column, operator, _plain(condition, value)]


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        # Of several types, one of which the column refuses.
        return sorted(values, key=repr)


def normalize_filter(filter: Filter | None) -> Conditions | None:  # noqa: A002
    """Bring a filter into the one form that stands in documents: a list of lists of conditions."""
    if filter is None:
        return None
    conjunctions = _conjunctions(filter)
    if not conjunctions:
        return None
    if not all(conjunctions):
        raise InputError(
            f"The filter {shortened(repr(filter))} has an empty list of conditions, which holds "
            "for every row: leave it out, or the filter where all rows are wanted."
        )
    return [[_condition(condition) for condition in conditions] for conditions in conjunctions]


def _conjunctions(filter: Any) -> Sequence[Sequence[Any]]:  # noqa: A002
    """Return the lists of conditions of which one must hold; also of what came in unchecked."""
    if isinstance(filter, Sequence) and all(isinstance(each, list | tuple) for each in filter):
        is_one = bool(filter and filter[0]) and isinstance(filter[0][0], str)
        found = [filter] if is_one else filter
        if all(isinstance(each, list | tuple) for each in found):
            return found
    raise InputError(
        f"{shortened(repr(filter))} is no filter: give a list of conditions, such as "
        '[("price", ">", 0)], or a list of such lists.'
    )


def filter_columns(conjunctions: Conditions | None) -> list[str]:
    """The columns that a normalized filter looks at, each once."""
    names = [condition[0] for conditions in conjunctions or [] for condition in conditions]
    return list(dict.fromkeys(names))


def _holds(batch: pa.RecordBatch, name: str, operator: str, value: Any) -> pa.Array:
    column = batch.column(name)
    plain = plain_storage(column.type)
    if column.type != plain:
        column = column.cast(plain)
    return _holding(column, plain, name, operator, value)


def _holding(column: Any, kind: pa.DataType, name: str, operator: str, value: Any) -> Any:
    """Compare a column, or the expression of one, with a value."""
    comparable = comparable_type(kind)
    if comparable != kind:
        column = column.cast(comparable)
    if operator in _COMPARE:
        sign, scalar = comparison(name, kind, operator, value)
        if scalar is None:
            # Below, to take a mask from itself is false for all rows, of an expression too.
            is_there = pc.is_valid(column)
            return is_there if sign == ALWAYS else pc.and_not(is_there, is_there)
        try:
            return _COMPARE[sign](column, scalar.cast(comparable))
        except pa.ArrowNotImplementedError as exc:
            raise ColumnError(
                f"The filter cannot compare column {name!r} of type {kind} with {value!r} ({exc}): "
                "use a value of the column's type."
            ) from exc
    scalars = [scalar.cast(comparable) for scalar in equal_values(name, kind, value)]
    if pa.types.is_floating(kind) and any(each == 0 for each in value):
        # Arrow looks for equal bits, and rows of 0.0 and -0.0 compare as equal elsewhere.
        scalars += [pa.scalar(zero, comparable) for zero in (0.0, -0.0)]
    listed = pa.array(scalars, comparable)
    is_listed = (
        column.isin(listed)
        if isinstance(column, pc.Expression)
        else pc.is_in(column, value_set=listed)
    )
    return pc.invert(is_listed) if operator == "not in" else is_listed


def combined(
    conjunctions: Conditions,
    condition: Callable[[str, str, Any], Any],
    both: Callable[[Any, Any], Any],
    either: Callable[[Any, Any], Any],
) -> Any:
    """Return what a normalized filter comes to, of what is made of each of its conditions.

    `condition` is called with column, operator and value. Each list has a condition.
    """
    return reduce(either, (reduce(both, starmap(condition, each)) for each in conjunctions))


def filter_batch(batch: pa.RecordBatch, conjunctions: Conditions) -> pa.RecordBatch:
    """Keep the rows for which a normalized filter holds; a comparison with null does not."""
    if not conjunctions or not all(conjunctions):
        # A list of no conditions holds for every row.
        return batch
    return batch.filter(combined(conjunctions, partial(_holds, batch), pc.and_kleene, pc.or_kleene))


def filter_expression(conjunctions: Conditions, schema: pa.Schema) -> pc.Expression | None:
    """A normalized filter as an expression on columns of these types.

    It holds for every row that passes, and perhaps for others; None where a value does not compare
    with a column as it is there, so that nothing can be said before rows are read.
    """

    def holds(name: str, operator: str, value: Any) -> pc.Expression:
        kind = schema.field(name).type
        held = _holding(pc.field(name), kind, name, operator, value)
        # Statistics leave NaN out, and it is unequal to all that they say of a row group.
        is_unknown = pa.types.is_floating(kind) and operator in ("!=", "not in")
        return pc.scalar(True) if is_unknown else held

    kinds = [schema.field(name).type for name in filter_columns(conjunctions)]
    if any(kind != plain_storage(kind) for kind in kinds):
        return None
    try:
        return combined(conjunctions, holds, and_, or_)
    except ColumnError:
        return None
