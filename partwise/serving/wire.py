"""What a client and the server agree on: `POST /predict/NAME` as Arrow or as JSON, and its errors.

As Arrow, body and answer are IPC streams without compression, of the type `ARROW_TYPE`. The stream
of a question has the rows, of an answer the table that `Predictor.predict` returns. Whatever stands
beside the rows is text in the metadata of the schema, under the names that a body of JSON has for
it: `version`, `on_missing`, `extra`, and `key`: another such stream, in base64, of one row with a
column for each value. So a key is of its very class, and stands in no URL and no log.

As JSON, the body of a question is {"rows": [{...}, ...]} with the same names beside it, where a key
is as `key_of_json` reads it; that of an answer has a list "predictions" with an object for each
row, of the columns that `Predictor.predict` returns.

An error is a body of JSON, whatever was sent: {"error": a sentence, "kind": a name of `KINDS`}.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args
from urllib.parse import quote

import pyarrow as pa

from partwise.errors import (
    ColumnError,
    InputError,
    IntegrityError,
    KeyClassError,
    ModelNotFoundError,
    PartitionNotFoundError,
    PartwiseError,
)
from partwise.runs.run import ONLY
from partwise.serving.arrow_streams import from_stream, to_stream
from partwise.serving.errors import DeadlineError, OverloadedError, VersionNotServedError
from partwise.serving.questions import Answer, Question
from partwise.tables.keys.given_keys import keys_of_values
from partwise.tables.keys.key_classes import KeyClass, KeyColumn
from partwise.tables.keys.key_values import plain_value
from partwise.tables.keys.partition_keys import Key

ARROW_TYPE = "application/vnd.apache.arrow.stream"
JSON_TYPE = "application/json"
REQUEST_ID = "x-request-id"
ROWS, PREDICTIONS = "rows", "predictions"
"""What the lists of objects are called in the bodies of JSON, of a question and of its answer."""
KEY, VERSION, ON_MISSING, EXTRA = "key", "version", "on_missing", "extra"
ERROR, KIND = "error", "kind"

KINDS: Mapping[str, type[PartwiseError]] = {
    each.__name__: each
    for each in (
        ColumnError,
        KeyClassError,
        InputError,
        PartitionNotFoundError,
        ModelNotFoundError,
        VersionNotServedError,
        IntegrityError,
        OverloadedError,
        DeadlineError,
    )
}
"""The errors of an answer, which its client raises again."""

OnMissing = Literal["fail", "null"]
Extra = Literal["fail", "ignore"]


def path_of(name: str) -> str:
    """Return the path at which a model is asked."""
    return f"/predict/{quote(name, safe='')}"


def kind_of(error: BaseException) -> str:
    """Return the name of an error among `KINDS`; of a more special one, that of its base.

    "" for an error that no answer tells of.
    """
    return next((each.__name__ for each in type(error).__mro__ if each.__name__ in KINDS), "")


def error_of(kind: str, sentence: str) -> PartwiseError | None:
    """Return the error that `kind_of` gave the name of; None: there is no such kind."""
    return KINDS[kind](sentence) if kind in KINDS else None


def encode_question(
    rows: pa.Table, key: Key, version: int | None, on_missing: OnMissing, extra: Extra
) -> bytes:
    """Return the body of a question as Arrow.

    Raises:
        KeyClassError: The key is a value that no key can be.
    """
    beside: dict[str, str] = {ON_MISSING: on_missing, EXTRA: extra}
    if version is not None:
        beside[VERSION] = str(version)
    if key is not ONLY:
        beside[KEY] = base64.b64encode(to_stream(_key_table(key))).decode()
    return to_stream(rows.replace_schema_metadata(beside))


def decode_question(body: bytes) -> tuple[Question, int | None]:
    """Return the question of a body of Arrow, and the version that is asked.

    Raises:
        InputError: The body is no such stream, or what stands beside its rows cannot be read.
        ColumnError: A column stands there twice.
    """
    rows = from_stream(body)
    beside = {name: value.decode() for name, value in (rows.schema.metadata or {}).items()}
    question = Question(
        columns={name: rows[name] for name in rows.column_names},
        n_rows=rows.num_rows,
        key=_key_of(beside[KEY.encode()]) if KEY.encode() in beside else ONLY,
        on_missing=cast("OnMissing", _choice(beside, ON_MISSING, get_args(OnMissing))),
        extra=cast("Extra", _choice(beside, EXTRA, get_args(Extra))),
    )
    version = beside.get(VERSION.encode())
    if version is not None and not (version.isascii() and version.isdecimal()):
        raise InputError(f"version is {version[:40]!r}: give a whole number.")
    return question, None if version is None else int(version)


def encode_answer(answer: Answer) -> bytes:
    """Return the body of an answer as Arrow."""
    return to_stream(answer.to_arrow())


def _choice(beside: Mapping[bytes, str], name: str, choices: Sequence[str]) -> str:
    value = beside.get(name.encode(), choices[0])
    if value not in choices:
        raise InputError(f"{name} is {value[:40]!r}: give one of {', '.join(choices)}.")
    return value


def _plain(value: Any) -> tuple[KeyClass, Any]:
    key_class, plain = plain_value(value)
    if key_class is None:
        raise KeyClassError(
            f"Key {value!r} is of type {type(value).__name__}, which no key is of: ask with a "
            "value of the class of the key column."
        )
    return key_class, plain


def _key_table(key: Key) -> pa.Table:
    """Return a key as one row, with a column for each value."""
    values = key if isinstance(key, tuple) else (key,)
    return pa.table([_key_array(value) for value in values], names=[*map(str, range(len(values)))])


def _key_array(value: Any) -> pa.Array:
    key_class, plain = _plain(value)
    if key_class is not KeyClass.INTEGER:
        column = KeyColumn(name=KEY, key_class=key_class)
        return keys_of_values([value], [column])[KEY].combine_chunks()
    try:
        return pa.array([plain], pa.int64() if plain < 2**63 else pa.uint64())
    except (OverflowError, pa.ArrowInvalid):
        raise KeyClassError(f"Key {value!r} does not fit into 64 bits, as keys do.") from None


def _key_of(text: str) -> Key:
    """Return the key that stands beside the rows."""
    try:
        row = from_stream(base64.b64decode(text, validate=True))
    except (binascii.Error, InputError):
        row = pa.table({})
    if row.num_rows != 1:
        raise InputError("key is not an Arrow IPC stream of one row in base64.")
    values = tuple(column[0].as_py() for column in row.columns)
    return values if len(values) > 1 else values[0]
