"""What a column is for, as the metadata of its field states it."""

import pyarrow as pa

ROLE_KEY = b"partwise.role"
"""Metadata of a field."""
LABEL_ROLE = b"label"


def with_label_role(field: pa.Field) -> pa.Field:
    """Return a field that is marked as a label."""
    return field.with_metadata({**(field.metadata or {}), ROLE_KEY: LABEL_ROLE})


def marked_labels(schema: pa.Schema) -> list[str]:
    """Return the columns that are marked as labels, in their order."""
    return [field.name for field in schema if (field.metadata or {}).get(ROLE_KEY) == LABEL_ROLE]
