"""Options of how files of rows are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from partwise.errors import InputError
from partwise.flows.cli.options import ROWS, Names
from partwise.flows.cli.parsing import split_names

if TYPE_CHECKING:
    from partwise.sources.files.file_set import Files


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How the files of rows are read."""

    file_format: Literal["", "parquet", "csv", "json", "orc", "ipc"] = ""
    """The format of the files, where their names do not say; json: an object on each line."""
    schema: Literal["cast", "strict", "union"] = "cast"
    """Files whose columns differ: cast to those of the first, refused, or the columns of all."""
    types: Names = ()
    """Types of columns, such as zip=string or day=date32; may be repeated."""
    file_column: str = ""
    """The name of a column to add, with the path of each row's file. With --partition-by this
    column, each file is a partition."""

    def of(self, data: Sequence[str]) -> "list[str] | Files":
        """Return the data of a flow: the paths, and with options how they are read.

        Raises:
            InputError: A type is unknown, or the data is the name of a block, which has its own
                options.
        """
        if self == FileOptions() or not data:
            return list(data)
        if any(is_block_name(path) for path in data):
            raise InputError(
                f"The block {data[0]!r} says itself how its files are read: leave out "
                "--file-format, --schema, --types and --file-column, or give paths."
            )
        from partwise.sources.files.file_set import Files

        types: dict[str, str] = {}
        for text in split_names(self.types):
            name, equals, kind = text.partition("=")
            if not equals:
                raise InputError(f"--types {text!r} is not of the form column=type.")
            types[name.strip()] = kind.strip()
        return Files(
            data,
            format=self.file_format or None,
            schema=self.schema,
            types=types,
            file_column=self.file_column or None,
        )


def is_block_name(data: Any) -> bool:
    """Whether a source is the name of a saved block, which only Prefect's server knows."""
    return isinstance(data, str) and data.startswith(("file-source/", "sql-source/"))
