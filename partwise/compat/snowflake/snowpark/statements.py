"""Statements of SQL: those of stages are recognised as a whole, and queries left to DuckDB."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.compat.snowflake.snowpark.identifiers import NAME, PART, stored
from partwise.compat.snowflake.snowpark.queries import answer
from partwise.compat.snowflake.snowpark.tables import read_table
from partwise.errors import ColumnError, InputError
from partwise.tables.dictionaries import comparable

if TYPE_CHECKING:
    from partwise.compat.snowflake.snowpark.session import Session

# Without quotes, in which a name could be one of another folder.
_STAGE_NAME = r"[A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*){0,2}"
_STAGE = rf"(?P<stage>{_STAGE_NAME})"
_PLACE = rf"(?P<place>@{_STAGE_NAME}(?:/[\w.=% -]+)*/?)"
_TABLE = rf"(?P<table>{NAME})"


def statement(query: str, params: Sequence[Any] | None = ()) -> Callable[["Session"], pa.Table]:
    """Return what carries out a statement; `params` None: nobody knows them yet.

    Raises:
        InputError: It is none of those that are known.
    """
    text = " ".join(query.split()).rstrip("; ")
    for pattern, carry_out in _KNOWN.items():
        if found := re.fullmatch(pattern, text, re.IGNORECASE):
            words = {name: value for name, value in found.groupdict().items() if value}
            return lambda session: carry_out(session, words)
    return answer(query, params)


def _done(text: str) -> pa.Table:
    return pa.table({"status": [text]})


def _nothing(session: "Session", words: dict[str, str]) -> pa.Table:  # noqa: ARG001
    return _done("There is nothing to do here.")


def _create_stage(session: "Session", words: dict[str, str]) -> pa.Table:
    folder = session.stage_folder(words["stage"])
    if "replace" in words and folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return _done(f"Stage area {words['stage']} successfully created.")


def _drop_stage(session: "Session", words: dict[str, str]) -> pa.Table:
    return _dropped(session.stage_folder(words["stage"]), words)


def _drop_table(session: "Session", words: dict[str, str]) -> pa.Table:
    return _dropped(session.table_folder(words["table"]), words)


def _dropped(folder: Path, words: dict[str, str]) -> pa.Table:
    if folder.exists():
        shutil.rmtree(folder)
    elif "if_exists" not in words:
        raise InputError(f"There is nothing to drop: {folder} does not exist. Write IF EXISTS.")
    return _done(f"{folder.name} successfully dropped.")


def _use(session: "Session", words: dict[str, str]) -> pa.Table:
    use = {"DATABASE": session.use_database, "SCHEMA": session.use_schema}
    kind = words.get("kind", "SCHEMA" if "." in words["table"] else "DATABASE").upper()
    use.get(kind, session.use_warehouse)(words["table"])
    return _done("Statement executed successfully.")


def _list(session: "Session", words: dict[str, str]) -> pa.Table:
    stage = session.stage_folder(words["place"].partition("/")[0])
    folder = session.stage_folder(words["place"])
    files = sorted(each for each in (folder, *folder.rglob("*")) if each.is_file())
    names = [f"{stage.name.lower()}/{each.relative_to(stage).as_posix()}" for each in files]
    sizes = [each.stat().st_size for each in files]
    return pa.table({"name": pa.array(names, pa.string()), "size": pa.array(sizes, pa.int64())})


def _remove(session: "Session", words: dict[str, str]) -> pa.Table:
    listed, folder = _list(session, words), session.stage_folder(words["place"])
    if folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    result = pa.array(["removed"] * len(listed), pa.string())
    return listed.select(["name"]).append_column("result", result)


def _copy(session: "Session", words: dict[str, str]) -> pa.Table:
    """Write a table as Parquet files: of each value of a column in a folder that it names."""
    rows = read_table(session.table_folder(words["table"]))
    folder, parts = session.stage_folder(words["place"]), {"": rows}
    if key := words.get("key"):
        parts = _divided(rows, stored(key))
    for name, part in parts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(part, folder / name / "data_0.snappy.parquet")
    return pa.table({"rows_unloaded": [len(rows)]})


def _divided(rows: pa.Table, key: str) -> dict[str, pa.Table]:
    if key not in rows.column_names:
        raise ColumnError(f"The table has no column {key}: it has {rows.column_names}.")
    values = comparable(rows[key])
    if pa.types.is_floating(values.type):
        # -0.0, which has the place of 0.0 in their order, would be another value.
        values = pc.add(values, 0.0)
    places = pc.sort_indices(values)
    ordered, start, parts = rows.take(places), 0, {}
    for value in values.take(places).value_counts().to_pylist():
        name = "__NULL__" if value["values"] is None else _folder(str(value["values"]))
        parts[name] = ordered.slice(start, value["counts"])
        start += value["counts"]
    return parts


def _folder(text: str) -> str:
    """Return the name of a folder for a text: another one for each, and in the folder above."""
    name = quote(text, safe=" ")
    # Of those that begin so one is the folder above, one that of nulls, and all are leftovers.
    return f"%{ord(name[0]):X}{name[1:]}" if name.startswith((".", "_")) else name


def _select(session: "Session", words: dict[str, str]) -> pa.Table:
    rows = read_table(session.table_folder(words["table"]))
    return rows.slice(0, int(words["limit"])) if "limit" in words else rows


def _count(session: "Session", words: dict[str, str]) -> pa.Table:
    return pa.table({"COUNT(*)": [len(read_table(session.table_folder(words["table"])))]})


# What theirs keep files by: a folder has the rights and the encryption of its disk.
_OF_STAGES = r"(?: (?:DIRECTORY|ENCRYPTION) ?= ?\([^()]*\)| COMMENT ?= ?'[^']*')*"
_IF_EXISTS = "(?P<if_exists>IF EXISTS )?"
_KNOWN: dict[str, Callable[["Session", dict[str, str]], pa.Table]] = {
    rf"CREATE (?:STAGE(?: IF NOT EXISTS)?|(?P<replace>OR REPLACE) STAGE) {_STAGE}{_OF_STAGES}": (
        _create_stage
    ),
    rf"CREATE (?:DATABASE|SCHEMA) (?:IF NOT EXISTS )?{NAME}": _nothing,
    rf"DROP STAGE {_IF_EXISTS}{_STAGE}": _drop_stage,
    rf"DROP TABLE {_IF_EXISTS}{_TABLE}": _drop_table,
    rf"USE (?:(?P<kind>DATABASE|SCHEMA|WAREHOUSE|ROLE) )?{_TABLE}": _use,
    rf"(?:LIST|LS) {_PLACE}": _list,
    rf"(?:REMOVE|RM) {_PLACE}": _remove,
    rf"COPY INTO {_PLACE} FROM {_TABLE}(?: PARTITION BY \(?(?P<key>{PART})\)?)? FILE_FORMAT ?= ?"
    r"\( ?TYPE ?= ?'?PARQUET'?(?: COMPRESSION ?= ?'?(?:SNAPPY|AUTO)'?)? ?\)"
    r"(?: HEADER ?= ?TRUE)?": _copy,
    rf"SELECT \* FROM {_TABLE}(?: LIMIT (?P<limit>\d+))?": _select,  # noqa: S608 (a pattern)
    rf"SELECT COUNT\(\*\) FROM {_TABLE}": _count,  # noqa: S608 (a pattern)
}
