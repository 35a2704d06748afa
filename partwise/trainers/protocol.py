"""What a trainer is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.outcomes import Result, Skip


class Trainer(Protocol):
    """A train function with its typed settings.

    A plain function `(data, context)` trains as well. A trainer adds `check`, by which settings
    that do not fit the data are refused before any work; its settings are part of the run's
    fingerprint.

    A method `reads(schema)` may return the names of the columns that it looks at, or None for all:
    then only these, behind the key columns and in this order, are read from the source, handed
    over, and compared by a resume.
    """

    @property
    def label(self) -> str:
        """The column to be predicted."""

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data.

        Args:
            schema: Of the rows that partitions will have, key columns included.
            empty_columns: Columns in which every value of every partition is null.
            key_columns: The columns that make the keys. None: not known, so that features which
                nobody named are left unchecked.

        Raises:
            ColumnError: A column is missing or its type does not fit.
            InputError: A setting cannot be used.
        """

    def __call__(self, data: DataConnector, context: PartitionContext) -> Result | Skip:
        """Train one partition."""
