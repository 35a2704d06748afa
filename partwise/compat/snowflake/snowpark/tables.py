"""Tables: each is a folder of Parquet files below `TABLES`."""

import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from partwise.errors import InputError

TABLES = "artifacts/tables"


def read_table(folder: Path) -> pa.Table:
    """Return the rows of a table.

    Raises:
        InputError: It is not there.
    """
    files = _files(folder)
    if not files:
        there = ", ".join(sorted(each.name for each in folder.parent.glob("[!.]*"))) or "none"
        raise InputError(
            f"There is no table {folder.name} in {folder.parent}; there are: {there}. Write it by "
            "session.create_dataframe(frame).write.save_as_table(name), or put a folder of Parquet "
            "files under that name."
        )
    return pa.concat_tables([pq.read_table(each) for each in files], promote_options="permissive")


def write_table(folder: Path, rows: pa.Table, mode: str, file: str) -> None:
    """Write rows as a table, or as one more file of it, in place of one of the same name.

    Raises:
        InputError: The table is there, or has other columns; there is no such mode.
    """
    there = bool(_files(folder))
    if mode == "append" and there:
        _check_fits(rows, folder)
    elif mode == "ignore" and there:
        return
    elif mode == "errorifexists" and there:
        raise InputError(
            f'The table {folder.name} is there: choose mode("append"), or mode("overwrite") to '
            "write it anew."
        )
    elif mode not in ("append", "overwrite", "errorifexists", "ignore"):
        raise InputError(
            f'A mode is "append", "overwrite", "errorifexists" or "ignore", not {mode!r}.'
        )
    # Readers see whole files only, and never a part of a table that is written anew.
    new = folder.with_name(f".{uuid.uuid4().hex}")
    new.mkdir(parents=True)
    pq.write_table(rows, new / file)
    if mode == "append":
        folder.mkdir(exist_ok=True)
        (new / file).replace(folder / file)
        new.rmdir()
    else:
        # Killed in between, no rows are lost: both stand beside the table, under hidden names.
        old = folder.with_name(f"{new.name}.old")
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)


def _check_fits(rows: pa.Table, folder: Path) -> None:
    """See that a table can still be read when rows are appended to it."""
    schema = pq.read_schema(_files(folder)[0])
    if set(schema.names) != set(rows.column_names):
        raise InputError(
            f"The table {folder.name} has the columns {schema.names}, not {rows.column_names}: "
            'append the same columns, or write it anew by mode("overwrite").'
        )
    try:
        pa.unify_schemas([schema, rows.schema], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(
            f"The table {folder.name} has columns of other types: {error}. Append the same types, "
            'or write it anew by mode("overwrite").'
        ) from error


def note_written(file: Path, writer: str) -> None:
    """Note, before it is there, that a writer writes a file of a table."""
    notes = _notes(file.parent.parent, writer)
    notes.parent.mkdir(parents=True, exist_ok=True)
    with notes.open("a", encoding="utf-8") as written:
        written.write(f"{file.parent.name}/{file.name}\n")


def remove_written(tables: Path, writer: str) -> None:
    """Remove what an earlier attempt of a writer wrote into any table: it may write less now."""
    notes = _notes(tables, writer)
    if notes.exists():
        for file in notes.read_text(encoding="utf-8").splitlines():
            (tables / file).unlink(missing_ok=True)
        notes.unlink()


def _notes(tables: Path, writer: str) -> Path:
    return tables / ".writers" / f"{writer}.txt"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[!.]*.parquet"))
