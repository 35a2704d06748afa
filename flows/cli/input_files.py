"""Options of how files of rows are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter, default_name_transform

from partwise.choices import Format, SchemaPolicy
from partwise.errors import InputError
from partwise.flows.cli.options import ROWS, Names
from partwise.flows.cli.parsing import by_name, split_names
from partwise.renamed import block_of_today
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions

if TYPE_CHECKING:
    from partwise.sources.files.file_set import Files


TEXT_FILES = Group("CSV and Excel files", sort_key=2.5)


def _prefixed(prefix: str) -> Callable[[str], str]:
    return lambda name: f"{prefix}-{default_name_transform(name)}"


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How the files of rows are read."""

    file_format: Format | None = None
    """The format of the files, where their names do not say; json: an object on each line."""
    schema: SchemaPolicy = "cast"
    """Files whose columns differ: cast to those of the first, refused, or the columns of all."""
    types: Names = ()
    """Types of columns, such as zip=string or day=date32; may be repeated."""
    file_column: str = ""
    """The name of a column to add, with the path of each row's file. With --partition-by this
    column, each file is a partition."""
    table_version: str = ""
    """Of a Delta table, the version to read; of an Iceberg table, the ID of the snapshot. Empty:
    the newest."""
    csv: Annotated[
        CsvOptions, Parameter(name="*", group=TEXT_FILES, name_transform=_prefixed("csv"))
    ] = field(default_factory=CsvOptions)
    excel: Annotated[
        ExcelOptions, Parameter(name="*", group=TEXT_FILES, name_transform=_prefixed("excel"))
    ] = field(default_factory=ExcelOptions)

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
                "--file-format, --schema, --types, --file-column, --table-version and options of "
                "CSV and Excel files, or give paths."
            )
        from partwise.sources.files.file_set import Files

        types = []
        for text in split_names(self.types):
            name, equals, kind = text.partition("=")
            if not equals:
                raise InputError(f"--types {text!r} is not of the form column=type.")
            types.append((name.strip(), kind.strip()))
        return Files(
            data,
            format=self.file_format,
            schema=self.schema,
            types=by_name(types, "--types"),
            file_column=self.file_column or None,
            version=self.table_version or None,
            csv=_with_names(self.csv),
            excel=_with_names(self.excel),
        )


def _with_names(options: CsvOptions | ExcelOptions) -> Any:
    """Return the options with the columns of a,b,c as three."""
    return options.model_copy(update={"column_names": tuple(split_names(options.column_names))})


def is_block_name(data: Any) -> bool:
    """Whether a source is the name of a saved block, which only Prefect's server knows."""
    blocks = ("files-block/", "query-block/")
    return isinstance(data, str) and block_of_today(data).startswith(blocks)
