"""A partition as a TensorFlow dataset of static signature."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.connector.batch_reader import BatchReader
from partwise.connector.tensor_columns import ColumnForm
from partwise.errors import ColumnError, InputError
from partwise.tables.column_types import has_offsets

if TYPE_CHECKING:
    import tensorflow as tf


def tf_dataset(reader: BatchReader) -> "tf.data.Dataset":
    """Make a dataset of a reader's batches, shuffled again in each pass."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise InputError(
            "to_tf_dataset() needs TensorFlow, which is not installed: "
            "pip install 'partwise[tensorflow]'."
        ) from error
    batched = not reader.single
    signature = {
        field.name: _spec(field, reader.forms[field.name], batched)
        for field in reader.rows.table.schema
    }
    # TensorFlow calls `read` again for each pass: so it counts the epochs.
    epochs = itertools.count()

    def read() -> Iterator[dict[str, Any]]:
        for values in reader.read(next(epochs)):
            yield {name: _value(value, reader.forms[name]) for name, value in values.items()}

    dataset = tf.data.Dataset.from_generator(read, output_signature=signature)
    # TensorFlow cannot tell how many batches a generator gives.
    return dataset.apply(tf.data.experimental.assert_cardinality(reader.order.batches))


def _spec(field: pa.Field, form: ColumnForm, batched: bool) -> Any:
    import tensorflow as tf

    rows = (None,) if batched else ()
    if form.kind == "array":
        return tf.TensorSpec((*rows, *form.shape), tf.as_dtype(form.dtype))
    if form.kind == "lists" and not form.has_nulls:
        item = tf.as_dtype(form.dtype)
        return tf.RaggedTensorSpec((None, None), item) if batched else tf.TensorSpec((None,), item)
    # TensorFlow has one type for text and bytes.
    is_string = has_offsets(field.type) or pa.types.is_fixed_size_binary(field.type)
    if form.kind == "values" and is_string:
        return tf.TensorSpec(rows, tf.string)
    nulls = " with nulls" if form.has_nulls else ""
    raise ColumnError(
        f"Column {field.name!r} of type {field.type}{nulls} has no form in TensorFlow: leave it "
        "out of columns, or turn it into numbers or text."
    )


def _value(value: Any, form: ColumnForm) -> Any:
    import tensorflow as tf

    if form.kind == "values":
        # TensorFlow's strings know no null.
        return [item or b"" for item in value] if isinstance(value, list) else value or b""
    if form.kind == "lists" and isinstance(value, list):
        lengths = [len(item) for item in value]
        items = np.concatenate(value) if value else np.empty(0, form.dtype)
        return tf.RaggedTensor.from_row_lengths(items, lengths)
    return value
