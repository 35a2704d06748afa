"""A partition as a Hugging Face dataset."""

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from partwise.errors import ColumnError, InputError
from partwise.tables.dictionaries import decoded_column

if TYPE_CHECKING:
    import datasets


def hf_dataset(table: pa.Table) -> "datasets.Dataset":
    """Wrap a table; columns of dictionaries are decoded, all others are not copied."""
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            "to_hf_dataset() needs the package datasets, which is not installed: "
            "pip install 'partwise[huggingface]'."
        ) from error
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            # Of no rows, or of views, datasets cannot do it itself (5.2).
            table = table.set_column(index, field.name, decoded_column(table.column(index)))
    for field in table.schema:
        try:
            datasets.Features.from_arrow_schema(pa.schema([field]))
        except (ValueError, TypeError, NotImplementedError, pa.ArrowException) as error:
            raise ColumnError(
                f"Column {field.name!r} of type {field.type} has no form in a Hugging Face "
                "dataset: leave it out, or cast it."
            ) from error
    # A fingerprint of our own: theirs is a hash over all rows.
    return datasets.Dataset(table, fingerprint=uuid.uuid4().hex)
