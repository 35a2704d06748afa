"""Columns as the features of a model: which ones, and as what numbers."""

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.formatting import counted
from partwise.tables.calendar import (
    calendar_names,
    calendar_schema,
    check_calendar,
    has_calendar,
    makeable,
    why_not_made,
    with_calendar,
)
from partwise.tables.classes import ClassValue, class_places
from partwise.tables.column_names import columns_there, names_in_words
from partwise.tables.column_types import is_number, is_text
from partwise.tables.decimals import cast_values

REFUSED_BY_LIGHTGBM = '",:[]{} \t\n\r\f\v'
REFUSED_BY_XGBOOST = "[]<"
_ESCAPED = re.compile(
    "%("
    + "|".join(sorted({f"{ord(c):02X}" for c in REFUSED_BY_LIGHTGBM + REFUSED_BY_XGBOOST}))
    + ")"
)
"""What the names of features must not have in them."""

_EMPTY = "%00"
"""The name of a feature whose column has none."""

UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
"""The columns that pandas makes of an index without a name, as of rows that were filtered: places
of rows, which are not a property of them."""

DECIMAL_COMMA = (
    "Numbers of CSV files with a decimal comma are read with --csv-decimal , or in Python "
    'Files(..., csv=CsvOptions(decimal=",")); with separated thousands, 1.234,50, also with '
    "--csv-thousands . (thousands=)."
)
"""What to do about a column of text that was meant to be of numbers."""

LARGEST_SINGLE = float(np.finfo(np.float32).max)

_MOST_NAMED = 12

Categories = Mapping[str, list[Any]]
"""The categories of each categorical feature; a category's code is its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureColumns:
    """The columns that a model is trained on."""

    names: tuple[str, ...]
    categorical: tuple[str, ...]
    """Those of `names` whose values are categories, in the same order."""


def choose_features(
    schema: pa.Schema,
    *,
    label: str,
    features: Sequence[str],
    categorical: Collection[str],
    left_out: Collection[str],
    calendar: Sequence[str] = (),
) -> FeatureColumns:
    """Choose the feature columns, and refuse those that no model can use.

    Args:
        schema: Of the data.
        label: Never a feature.
        features: The columns to take, those that can be made of them among them, such as
            "day@month". None at all: every column but the label, `left_out` and what pandas wrote
            of an index without a name.
        categorical: Columns of categories, besides those of a dictionary type.
        left_out: What is not a feature unless `features` names it.
        calendar: Dates and times in whose place all columns are taken that can be made of them.
    """
    if label in features:
        raise ColumnError(f"The label {label!r} is among the features; take it out of them.")
    if len(set(features)) < len(features):
        twice = sorted({name for name in features if features.count(name) > 1})
        raise ColumnError(f"The features {names_in_words(twice)} are named twice.")
    check_calendar(schema, calendar)
    chosen_names = features or [
        name
        for name in schema.names
        if name != label and name not in left_out and not UNNAMED_INDEX.fullmatch(name)
    ]
    made = [one for name in calendar for one in calendar_names(name, schema.field(name).type)]
    names = tuple(dict.fromkeys([*(n for n in chosen_names if n not in calendar), *made]))
    if not names:
        raise ColumnError(f"No column is left as a feature besides the label {label!r}.")
    data, schema = schema, calendar_schema(schema, names)
    known = set(schema.names)
    if missing := [name for name in names if name not in known]:
        raise ColumnError(
            f"The features {names_in_words(missing)} are missing; "
            f"{columns_there(data.names, *missing, makeable=makeable(data))}"
            f"{why_not_made(missing, data)}"
        )
    if unknown := [name for name in categorical if name not in names]:
        raise ColumnError(
            f"The categorical columns {names_in_words(unknown)} are not among the features."
        )
    kinds = {name: schema.field(name).type for name in names}
    chosen = tuple(
        name for name in names if name in categorical or pa.types.is_dictionary(kinds[name])
    )
    fit = [
        name
        for name, kind in kinds.items()
        if name in chosen or is_number(kind) or pa.types.is_null(kind)
    ]
    for name, kind in kinds.items():
        _check_type(name, kind, name in chosen, fit)
    return FeatureColumns(names=names, categorical=chosen)


def _check_type(name: str, kind: pa.DataType, is_categorical: bool, fit: Sequence[str]) -> None:
    """Refuse a feature that is not a number; `fit` are those that can stay."""
    if is_categorical:
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (is_text(values) or is_number(values) or pa.types.is_null(values)):
            raise ColumnError(
                f"The categorical feature {name!r} is {kind}: cast it to a string or an integer."
            )
    elif is_text(kind):
        raise ColumnError(
            f"The feature {name!r} is {kind}, and numbers are needed: list it in categorical "
            f"(--categorical {shlex.quote(name)}) if its values are categories, or leave it out of "
            f"features{_without(fit)}. {DECIMAL_COMMA}"
        )
    elif has_calendar(kind):
        raise ColumnError(
            f"The feature {name!r} is {kind}, and numbers are needed: list it in calendar "
            f"(--calendar {shlex.quote(name)}), which takes its {_parts_in_words(name, kind)} as "
            f"features, name one as {calendar_names(name, kind)[0]!r}, or leave it out of "
            f"features{_without(fit)}."
        )
    elif not (is_number(kind) or pa.types.is_null(kind)):
        raise ColumnError(
            f"The feature {name!r} is {kind}, and numbers are needed: leave it out of features"
            f"{_without(fit)}, or have numbers of it among the columns."
        )


def _parts_in_words(name: str, kind: pa.DataType) -> str:
    parts = [one.removeprefix(name)[1:].replace("_", " ") for one in calendar_names(name, kind)]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _without(fit: Sequence[str]) -> str:
    """Return the option that names the features that can stay, where it is short."""
    return f" (--features {shlex.quote(','.join(fit))})" if 0 < len(fit) <= _MOST_NAMED else ""


def find_categories(column: pa.ChunkedArray) -> list[Any]:
    """Return the distinct values of a column in ascending order, without nulls and NaN.

    They do not depend on a dictionary that other partitions may share.
    """
    values = pc.unique(_category_values(column)).drop_null().to_pylist()
    # NaN is not equal to itself.
    return sorted(value for value in values if value == value)


def _category_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categories as large strings, 64-bit integers or doubles."""
    column = _decoded(column)
    kind = column.type
    if is_text(kind):
        return column.cast(pa.large_string())
    if pa.types.is_uint64(kind):
        return column
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return cast_values(column, pa.int64() if whole else pa.float64())


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def within_single(values: np.ndarray) -> np.ndarray:
    """Return numbers with all beyond single precision, infinities too, as its largest ones.

    Trees look at nothing but the order of numbers; XGBoost and scikit-learn refuse what their
    single precision does not hold.
    """
    is_beyond = np.abs(values) > LARGEST_SINGLE
    return np.clip(values, -LARGEST_SINGLE, LARGEST_SINGLE) if is_beyond.any() else values


def column_within_single(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Do to a column of numbers what `within_single` does; null and NaN stay."""
    if not pa.types.is_floating(column.type):
        return column
    largest = pa.scalar(LARGEST_SINGLE, column.type)
    beyond = pc.greater(pc.abs(column), largest)
    if not pc.any(beyond).as_py():
        return column
    return pc.if_else(beyond, pc.multiply(pc.sign(column), largest), column)


def feature_matrix(table: pa.Table, names: Sequence[str], categories: Categories) -> np.ndarray:
    """Return features as numbers: categories as their codes, and NaN for what is missing.

    Shape (n, k) in column order, double, or single where no column needs double. A value that is
    none of its column's categories is missing.
    """
    table = with_calendar(table, names)
    kinds = [table.schema.field(name).type for name in names]
    narrow = all(
        name in categories or _fits_single(kind) for name, kind in zip(names, kinds, strict=True)
    )
    dtype = np.float32 if narrow else np.float64
    matrix = np.empty((table.num_rows, len(names)), dtype=dtype, order="F")
    for place, name in enumerate(names):
        column = table.column(name)
        if name in categories:
            matrix[:, place] = _codes(name, column, categories[name])
        else:
            matrix[:, place] = numbers(name, column)
    return matrix


def _fits_single(kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        # Single precision holds all whole numbers up to 2**24 only.
        return bool(kind.bit_width <= (16 if pa.types.is_integer(kind) else 32))
    return bool(pa.types.is_boolean(kind) or pa.types.is_null(kind))


def numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as single or double numbers of shape (n,), NaN where it is null."""
    if not (is_number(column.type) or pa.types.is_null(column.type)):
        hint = f" {DECIMAL_COMMA}" if is_text(column.type) else ""
        raise ColumnError(f"The column {name!r} is {column.type}, but numbers are needed.{hint}")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    single = pa.types.is_floating(column.type) and column.type.bit_width <= 32
    wanted = pa.float32() if single else pa.float64()
    return np.asarray(cast_values(column, wanted, safe=False).to_numpy())


def label_numbers(
    name: str, column: pa.ChunkedArray, classes: Sequence[ClassValue] = ()
) -> np.ndarray:
    """Return a label as doubles of shape (n,), NaN where there is none.

    `classes` are all of the run, of which a label is the place; none: it is numbers.
    """
    if classes:
        return class_places(name, column, classes)
    return numbers(name, column).astype(np.float64, copy=False)


def _codes(name: str, column: pa.ChunkedArray, categories: Sequence[Any]) -> np.ndarray:
    if not categories or pa.types.is_null(column.type):
        return np.full(len(column), np.nan, dtype=np.float32)
    plain = _decoded(column)
    values = _category_values(plain)
    as_text = isinstance(categories[0], str)
    if as_text != is_text(values.type):
        trained = "text" if as_text else "numbers"
        raise ColumnError(
            f"The categories of {name!r} were {trained} in training, but the column is now "
            f"{column.type}: cast it."
        )
    if as_text:
        known = pa.array(categories, pa.large_string())
    elif all(isinstance(category, int) for category in categories) and pa.types.is_integer(
        values.type
    ):
        bounds = np.iinfo(values.type.to_pandas_dtype())
        # Of signed and unsigned numbers, each may have categories that the other cannot hold.
        fits = [bounds.min <= category <= bounds.max for category in categories]
        whole = [int(each) if fit else None for each, fit in zip(categories, fits, strict=True)]
        known = pa.array(whole, values.type)
    else:
        values = values.cast(pa.float64(), safe=False)
        known = pa.array([float(category) for category in categories], pa.float64())
    codes = pc.index_in(values, value_set=known, skip_nulls=True)
    if pa.types.is_decimal(plain.type) and codes.null_count > values.null_count:
        # Until 2026-11 models kept decimals as Arrow casts them, which may be one bit off.
        as_kept = plain.cast(pa.float64())
        codes = pc.coalesce(codes, pc.index_in(as_kept, value_set=known, skip_nulls=True))
    return np.asarray(codes.cast(pa.float32()).to_numpy())


def feature_names(columns: Sequence[str], refused: str) -> list[str]:
    """Return names that a library takes, with the characters that it refuses as %XX.

    An empty one is %00: LightGBM writes it into a model that it cannot read.

    Example:
        >>> feature_names(["price [EUR]", "size", ""], refused="[]")
        ['price %5BEUR%5D', 'size', '%00']
    """
    spelled = ("".join(f"%{ord(c):02X}" if c in refused else c for c in name) for name in columns)
    return [name or _EMPTY for name in spelled]


def columns_in_order(
    given: Sequence[str], n_features: int, schema: pa.Schema, has_names: bool
) -> list[str]:
    """Return the columns that a user gives for the features of a model, which has no names.

    They are in the model's order. ColumnError where it has names after all, there are more or
    fewer, or the data lack one.
    """
    if has_names:
        raise ColumnError(
            "The model has names for its features, by which they are found: leave features= out."
        )
    if len(given) != n_features or len({*given}) != n_features:
        raise ColumnError(
            f"The model has {counted(n_features, 'feature')}, and features= names "
            f"{counted(len({*given}), 'column')}: "
            f"{names_in_words(given)}. Name each in the order of the training."
        )
    return find_columns(given, schema)


def find_columns(
    features: Sequence[str],
    schema: pa.Schema,
    spellings: Sequence[Callable[[Sequence[str]], list[str]]] = (),
) -> list[str]:
    """Return the columns of a model's features, some of which `with_calendar` makes.

    `spellings`: how a library may spell the names of columns, each parallel to them.
    """
    columns = [*schema.names, *makeable(schema)]
    names_of: dict[str, set[str]] = {name: {name} for name in columns}
    known = set(columns)
    for spelling in spellings:
        for spelled, name in zip(spelling(columns), columns, strict=True):
            # A column of this very name goes before one that is only spelled so.
            if spelled not in known:
                names_of.setdefault(spelled, set()).add(name)
    # Where two columns are spelled alike, nobody knows which one is meant.
    missing = [name for name in features if len(names_of.get(name, ())) != 1]
    if missing:
        # As the columns were named before the library refused some of their characters.
        missing = [
            "" if name == _EMPTY else _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)
            for name in missing
        ]
        raise ColumnError(
            f"The data lacks features of the model: {names_in_words(missing)}; "
            f"{columns_there(schema.names, *missing, makeable=makeable(schema))}"
            f"{why_not_made(missing, schema)}"
        )
    return [next(iter(names_of[name])) for name in features]
