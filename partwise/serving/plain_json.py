"""Rows as plain JSON or as an Arrow stream: what `POST /predict/NAME` takes and answers.

JSON: {"rows": [{column: value}], "key": ..., "version": 7, "on_missing": "null"}. Arrow: the rows
as a stream, and the other fields where `partwise.serving.wire` says; those of an answer stand there
as well. Which of both an answer is in, `Accept` says, and else the form of the body.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import orjson

from partwise.errors import ColumnError
from partwise.formatting import shortened
from partwise.serving.arrow_streams import from_stream
from partwise.serving.errors import RequestError, VersionNotServedError
from partwise.serving.protocol import (
    STATUSES,
    check_names,
    check_rows,
    dump,
    parse_object,
    question_of,
)
from partwise.serving.questions import POLICIES, Answer, Question, Values
from partwise.serving.wire import FIELDS
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.keys.key_classes import KeyColumn

_FIELDS = ("key", "version", *POLICIES)
_SCALARS = {int, float, bool, str, NoneType}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """Rows as they came, and what stands beside them."""

    columns: Mapping[str, Values]
    n_rows: int
    fields: Mapping[str, Any]
    version: int | None
    """That is to answer; None: the newest."""

    def question(self, key_columns: Sequence[KeyColumn]) -> Question:
        """Return what is asked; see `question_of`."""
        return question_of(self.columns, self.n_rows, self.fields, key_columns)


def read_json_rows(body: bytes, max_rows: int) -> PredictRequest:
    """Return what a body of JSON asks for.

    Raises:
        RequestError: It is no JSON, its fields are not known, or its rows differ in their columns.
    """
    fields = parse_object(body)
    rows = fields.pop("rows", None)
    if type(rows) is not list:
        raise RequestError("rows is missing: a list with an object for each row.")
    check_rows(len(rows), max_rows)
    first = rows[0]
    for place, row in enumerate(rows):
        if type(row) is not dict:
            raise RequestError(f"Row {place} is no object: send {{column: value}}.")
        if row.keys() != first.keys():
            raise _unlike(place, row, first)
    columns = {name: [row[name] for row in rows] for name in first}
    for name, values in columns.items():
        if not _SCALARS.issuperset(map(type, values)):
            raise RequestError(
                f"Column {shortened(name)!r} has a list or an object in a row: send numbers, text, "
                "true, false or null."
            )
    return _request(columns, len(rows), fields, ("rows", *_FIELDS))


def read_arrow_rows(body: bytes, max_rows: int) -> PredictRequest:
    """Return what a body that is an Arrow stream asks for.

    Raises:
        InputError: It is no such stream, or has columns of types that are not taken.
        RequestError: Its fields are not known.
    """
    try:
        table = from_stream(body)
        metadata = table.schema.metadata or {}
        columns = dict(zip(table.column_names, table.columns, strict=True))
    except UnicodeDecodeError as error:
        raise ColumnError("The Arrow stream names a column by what is no text.") from error
    check_rows(table.num_rows, max_rows)
    return _request(columns, table.num_rows, parse_object(metadata.get(FIELDS, b"{}")), _FIELDS)


def _request(
    columns: Mapping[str, Values], n_rows: int, fields: Mapping[str, Any], known: Sequence[str]
) -> PredictRequest:
    check_names(fields, known, "The field")
    version = fields.get("version")
    if version is not None and type(version) is not int:
        raise RequestError("version is to be an integer.")
    return PredictRequest(columns=columns, n_rows=n_rows, fields=fields, version=version)


def _unlike(place: int, row: Mapping[str, Any], first: Mapping[str, Any]) -> ColumnError:
    """Return the error for a row that has other columns than the first."""
    name = next(name for name in (*first, *row) if (name in row) != (name in first))
    verb = "lacks" if name in first else "has"
    return ColumnError(
        f"Row {place} {verb} the column {shortened(name)!r}, unlike row 0: send null where a value "
        "is missing."
    )


def render_json(answer: Answer, model: str) -> bytes:
    """Return an answer as JSON: outputs, level and status by row, and which models answered."""
    levels = [*(each.level for each in answer.models), None]
    return dump(
        {
            **_fields_of(answer, model),
            "outputs": answer.outputs,
            "level": [levels[place] for place in answer.used.tolist()],
            "status": STATUSES[answer.status],
            "models": [
                {"run": each.run_id, "key": each.key, "level": each.level} for each in answer.models
            ],
            "used": answer.used,
        }
    )


def render_arrow(answer: Answer, model: str) -> bytes:
    """Return an answer as an Arrow stream: the table of the answer."""
    metadata = {FIELDS: orjson.dumps(_fields_of(answer, model))}
    return table_bytes(answer.to_arrow().replace_schema_metadata(metadata))


def _fields_of(answer: Answer, model: str) -> dict[str, Any]:
    return {"model": model, "version": answer.version, "reference": answer.reference}


def parse_version(text: str) -> int:
    """Return the version that a URL names; `VersionNotServedError` where it is no number."""
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise VersionNotServedError(f"There is no version {shortened(text)!r}: it is a number.")
    return int(text)
