"""Filters of rows, as pyarrow.parquet writes them: ("column", operator, value)."""

import datetime as dt
import math
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError, InputError
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
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InputError(
        f"Filter condition {condition!r} compares with {value!r}: use a number, a text, a boolean, "
        "a date or a time; nulls never pass a comparison."
    )


def _condition(condition: Any) -> list[Any]:
    if not isinstance(condition, list | tuple) or len(condition) != 3:
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
        return [column, operator, sorted(values) if isinstance(value, set) else values]
    return [column, operator, _plain(condition, value)]


def normalize_filter(filter: Filter | None) -> Conditions | None:  # noqa: A002
    """Bring a filter into the one form that stands in documents: a list of lists of conditions.

    Raises:
        InputError: A condition is malformed, or its value has no place in JSON.
    """
    if not filter:
        return None
    first = filter[0]
    conjunctions = [filter] if len(first) == 3 and isinstance(first[0], str) else filter
    return [[_condition(condition) for condition in conditions] for conditions in conjunctions]


def filter_columns(conjunctions: Conditions | None) -> list[str]:
    """The columns that a normalized filter looks at, each once."""
    names = [condition[0] for conditions in conjunctions or [] for condition in conditions]
    return list(dict.fromkeys(names))


def filter_value(name: str, data_type: pa.DataType, value: Any) -> pa.Scalar:
    """A value as a scalar that compares with the column; text stands for dates and decimals."""
    textual = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    from_text = pa.types.is_temporal(data_type) or pa.types.is_decimal(data_type)
    if isinstance(value, str) == textual or (isinstance(value, str) and from_text):
        scalar = pa.scalar(value)
        try:
            return scalar.cast(data_type) if isinstance(value, str) else scalar
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
            raise ColumnError(
                f"The filter compares column {name!r} of type {data_type} with {value!r}, which "
                f"is no such value ({exc}): use a value of the column's type."
            ) from exc
    raise ColumnError(
        f"The filter compares column {name!r} of type {data_type} with {value!r} of type "
        f"{type(value).__name__}: use a value of the column's type."
    )


def _holds(batch: pa.RecordBatch, name: str, operator: str, value: Any) -> pa.Array:
    column = batch.column(name)
    plain = plain_storage(column.type)
    if column.type != plain:
        column = column.cast(plain)
    try:
        if operator in _COMPARE:
            return _COMPARE[operator](column, filter_value(name, plain, value))
        is_listed = pc.is_in(column, value_set=_listed(name, plain, value))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise ColumnError(
            f"The filter cannot compare column {name!r} of type {plain} with {value!r} ({exc}): "
            "use a value of the column's type."
        ) from exc
    return pc.invert(is_listed) if operator == "not in" else is_listed


def _listed(name: str, kind: pa.DataType, values: Collection[Any]) -> pa.Array:
    """The values after "in" as an array of the column's type."""
    scalars = [filter_value(name, kind, value).cast(kind) for value in values]
    if pa.types.is_floating(kind) and any(value == 0 for value in values):
        # Arrow looks for equal bits, and rows of 0.0 and -0.0 compare as equal elsewhere.
        scalars += [pa.scalar(zero, pa.float64()).cast(kind) for zero in (0.0, -0.0)]
    return pa.array(scalars, kind)


def filter_batch(batch: pa.RecordBatch, conjunctions: Conditions) -> pa.RecordBatch:
    """Keep the rows for which a normalized filter holds; a comparison with null does not.

    Raises:
        ColumnError: A value does not compare with its column.
    """
    total = None
    for conditions in conjunctions:
        mask = None
        for name, operator, value in conditions:
            holds = _holds(batch, name, operator, value)
            mask = holds if mask is None else pc.and_kleene(mask, holds)
        total = mask if total is None else pc.or_kleene(total, mask)
    return batch if total is None else batch.filter(total)


def filter_expression(conjunctions: Conditions, schema: pa.Schema) -> pc.Expression | None:
    """A normalized filter as an expression on columns of these types.

    Returns:
        The expression; None where a value does not compare with a column as it is there, so that
        nothing can be said before rows are read.
    """
    total = None
    for conditions in conjunctions:
        every = None
        for name, operator, value in conditions:
            kind = schema.field(name).type
            if kind != plain_storage(kind):
                return None
            try:
                holds = _holding(pc.field(name), kind, name, operator, value)
            except (ColumnError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
            every = holds if every is None else every & holds
        total = every if total is None else total | every
    return total


def _holding(field: pc.Expression, kind: pa.DataType, name: str, operator: str, value: Any) -> Any:
    if operator in _COMPARE:
        return _COMPARE[operator](field, filter_value(name, kind, value))
    is_listed = field.isin(_listed(name, kind, value))
    return ~is_listed if operator == "not in" else is_listed
