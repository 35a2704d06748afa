"""The classes of a label: those of a whole run, in the order of a model's outputs.

A model's width follows these, never the classes that a partition happens to have: so partitions
stay independent of each other, and a class that one of them lacks has its place in every model.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.tables.column_types import is_number, is_text
from partwise.tables.dictionaries import comparable

ClassValue = bool | int | str
"""A class as settings name it; text stands for a value of the label's type, as on a command
line."""

CLASS_COLUMN = "predicted_class"
"""The column of inference with the most probable class."""
_METADATA_KEY = b"partwise.classes"


def class_array(name: str, kind: pa.DataType, classes: Sequence[ClassValue]) -> pa.Array:
    """Return the classes of a label as text, booleans or int64 (or uint64), as its type is.

    They are in the order of a model's outputs. ColumnError where one is not a value of that type,
    or two are the same.
    """
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (is_text(kind) or is_number(kind)):
        raise ColumnError(
            f"The label {name!r} is {kind}, and classes are text, booleans or whole numbers."
        )
    values = [_value(name, kind, each) for each in classes]
    try:
        found = pa.array(values, _stored(kind, values))
    except (OverflowError, pa.ArrowInvalid) as error:
        raise ColumnError(
            f"The classes {list(classes)} of the label {name!r} have no 64-bit type in common."
        ) from error
    if len(found.unique()) < len(found):
        raise ColumnError(f"Two of the classes {list(classes)} of the label {name!r} are the same.")
    return found


def _stored(kind: pa.DataType, values: Sequence[bool | int | str]) -> pa.DataType:
    """Return the type in which classes are kept."""
    if is_text(kind):
        return pa.string()
    if pa.types.is_boolean(kind):
        return kind
    is_large = any(isinstance(each, int) and each >= 2**63 for each in values)
    return pa.uint64() if is_large else pa.int64()


def _value(name: str, kind: pa.DataType, given: ClassValue) -> ClassValue:
    if is_text(kind) and isinstance(given, str):
        return given
    if pa.types.is_boolean(kind):
        known = {"true": True, "false": False}.get(str(given).lower())
        if known is not None:
            return known
    elif is_number(kind) and not isinstance(given, bool):
        try:
            return int(given)
        except ValueError:
            pass
    raise ColumnError(
        f"The label {name!r} is {kind}, and the class {given!r} is not a value of that type."
    )


def class_places(name: str, column: pa.ChunkedArray, classes: Sequence[ClassValue]) -> np.ndarray:
    """Return the place of each row's class among the classes.

    Double, shape (n,), NaN where the label is null or NaN. ColumnError where a value is none of the
    classes, or the types do not fit.
    """
    values = comparable(column)
    if pa.types.is_null(values.type):
        return np.full(len(column), np.nan)
    places_of = {
        each: place
        for place, each in enumerate(class_array(name, column.type, classes).to_pylist())
    }
    distinct = values.unique()
    # As numbers of Python, which compare exactly, also across types.
    known = pa.array([places_of.get(each) for each in distinct.to_pylist()], pa.float64())
    places = known.take(pc.index_in(values, value_set=distinct))
    missing = pc.is_null(values, nan_is_null=True)
    others = pc.and_(pc.is_null(places), pc.invert(missing))
    if pc.any(others).as_py():
        wrong = values.filter(others)[0].as_py()
        raise ColumnError(
            f"The label {name!r} has the class {wrong!r}, which is none of {list(classes)}: name "
            "all classes of the run in classes."
        )
    found: np.ndarray = places.to_numpy()
    return found


def with_classes(categories: pa.Table | None, label: str, classes: pa.Array) -> pa.Table:
    """Return the categories of the rows trained on with the classes of their label.

    `categories` is what `categories_of_rows` returned, `classes` what `class_array` did.
    """
    columns = {}
    if categories is not None:
        columns = dict(zip(categories.column_names, categories.columns, strict=True))
    columns[label] = pa.LargeListArray.from_arrays(pa.array([0, len(classes)]), classes)
    return pa.table(columns).replace_schema_metadata({_METADATA_KEY: label.encode()})


def classes_among(categories: pa.Table) -> tuple[str, pa.Array] | None:
    """Return the label and classes that `with_classes` added; None where it did not."""
    label = (categories.schema.metadata or {}).get(_METADATA_KEY)
    if label is None:
        return None
    name = label.decode()
    return name, categories.column(name).chunk(0).flatten()


def predicted_classes(predictions: np.ndarray, classes: pa.Array) -> pa.Array:
    """Return the most probable class of each row, the first of equals.

    Probabilities of shape (n,) are of the second of two classes; of more than two classes they are
    places (as XGBoost's multi:softmax has them). A row is null where one is NaN.
    """
    if predictions.ndim == 1 and len(classes) > 2:
        unknown = np.isnan(predictions)
        places = np.where(unknown, 0, predictions).astype(np.int64)
    elif predictions.ndim == 1:
        places, unknown = (predictions > 0.5).astype(np.int64), np.isnan(predictions)
    else:
        places, unknown = predictions.argmax(axis=1), np.isnan(predictions).any(axis=1)
    return classes.take(pa.array(places, pa.int64(), mask=unknown))
