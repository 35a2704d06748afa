"""What the readers of logs give: a table at one version, and the files that are its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from partwise.sources.files.discovery import FoundFile
from partwise.tables.filters import Conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile(FoundFile):
    """A file of a table, which nothing writes again: a change makes another file."""

    values: Mapping[str, Any] = field(hash=False)
    """Those of its partition by column, which the file itself may lack."""

    def check_unchanged(self) -> None:
        """Leave it to the log."""


class LogTable(Protocol):
    """A table at one version."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def version(self) -> int:
        """The version of a Delta table, the ID of the snapshot of an Iceberg table."""

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where the log does not say."""

    @property
    def size_bytes(self) -> int:
        """The size of its files."""

    def identity(self) -> Sequence[str]:
        """What is equal only where the rows are."""

    def files(self, conditions: Conditions | None) -> list[TableFile]:
        """Its files, in an order of their own, without those of which the log excludes all rows."""

    def names_in(self, schema: pa.Schema, file: TableFile) -> dict[str, str]:
        """The columns that stand in a file, with the names that they have there."""
