"""What a client sends, what it makes of what comes back, and when it tries again: without HTTP."""

import json
import math
import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.errors import InputError, KeyClassError, PartwiseError
from partwise.runs.run import ONLY
from partwise.serving.arrow_streams import from_stream
from partwise.serving.columns import columns_of_rows
from partwise.serving.errors import DeadlineError
from partwise.serving.wire import ARROW, FIELDS, JSON, KINDS, key_to_json, value_to_json
from partwise.tables.dictionaries import plain_storage
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.keys.partition_keys import Key

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_LONGEST_SENTENCE = 1000


class UnansweredError(PartwiseError):
    """The server was not reached, or does not answer this client.

    Args:
        message: A sentence.
        status: Of HTTP; None: there was no response.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A question as it is sent."""

    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a server has sent back."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    content: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send the question, and hand in what came of it."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, and hand in None."""

    seconds: float


Step = Send | Wait
Outcome = Response | PartwiseError | None
Exchange = Generator[Step, Outcome, pa.Table]


def body_of(
    rows: Any,
    key: Key,
    version: int | None,
    on_missing: Literal["fail", "null"],
    extra: Literal["fail", "ignore"],
) -> Body:
    """Return the body of a question: lists of Python travel as JSON, tables and frames as Arrow.

    A predictor takes lists as JSON too, so that both see the same values. Decimals, bytes and
    infinities, which JSON has not, are no text for a model: with one among them, lists travel as
    Arrow, where text is read as that of JSON is and NaN stays NaN.

    Raises:
        InputError: Rows or key cannot be sent.
    """
    fields: dict[str, Any] = {"on_missing": on_missing, "extra": extra}
    if version is not None:
        fields["version"] = version
    if key is not ONLY:
        fields["key"] = key_to_json(key)
    columns, n_rows = columns_of_rows(rows)
    if not any(map(_needs_arrow, columns.values())):
        lists = ([_cell(name, value) for value in values] for name, values in columns.items())
        objects = [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
        content = _json({"rows": objects or [{}] * n_rows, **fields})
        return Body(content_type=JSON, content=content)
    try:
        table = pa.table(dict(columns))
        plain = pa.schema([(field.name, plain_storage(field.type)) for field in table.schema])
        stream = table_bytes(table.cast(plain).replace_schema_metadata({FIELDS: _json(fields)}))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(f"The rows cannot be sent as a table of Arrow: {error}.") from error
    return Body(content_type=ARROW, content=stream)


def _needs_arrow(values: Any) -> bool:
    if isinstance(values, pa.ChunkedArray):
        return True
    return any(map(_is_not_of_json, values))


def _is_not_of_json(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return math.isinf(value)
    return isinstance(value, Decimal | bytes | bytearray)


def _cell(column: str, value: Any) -> Any:
    """Return a value of a row as JSON has it; NaN is a missing value there."""
    if isinstance(value, float | np.floating) and math.isnan(value):
        return None
    if isinstance(value, float | list | Mapping):
        return value
    try:
        return value_to_json(value)
    except KeyClassError as error:
        raise InputError(
            f"The column {column!r} has {value!r:.60} among its values, of type "
            f"{type(value).__name__}, which no column has: give numbers, text, dates or times."
        ) from error


def _json(found: Any) -> bytes:
    try:
        return json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"A value of the rows or of the key is not in JSON: {error}.") from error


def exchange(timeout_s: float, retries: int) -> Exchange:
    """Ask, and ask again while the server has no room or cannot be reached.

    Who drives it carries out each step that it yields; it returns the predictions.

    Raises:
        PartwiseError: What the server refused, or why there is no answer.
    """
    deadline = time.monotonic() + timeout_s
    for attempt in range(retries + 1):
        outcome = yield Send(max(deadline - time.monotonic(), 0.001))
        if isinstance(outcome, Response) and outcome.status == 200:
            return _predictions(outcome)
        error = _error_of(outcome) if isinstance(outcome, Response) else outcome
        assert error is not None  # noqa: S101 (a Send has an outcome)
        # Beyond the longest one long before the power is beyond doubles.
        pause = min(_FIRST_PAUSE_S * 2 ** min(attempt, 100), _LONGEST_PAUSE_S)
        pause *= random.uniform(0.5, 1)  # noqa: S311 (no secret)
        if isinstance(outcome, Response):
            pause = max(pause, _retry_after(outcome))
        is_over = attempt == retries or time.monotonic() + pause >= deadline
        if is_over or not _may_pass(outcome):
            raise error
        yield Wait(pause)
    raise AssertionError("the last attempt returns or raises")


def _may_pass(outcome: Outcome) -> bool:
    """Tell whether a later attempt may be answered; an error without a kind is that of a proxy."""
    if isinstance(outcome, Response):
        is_proxy = outcome.status in (502, 504) and not _told(outcome)[1]
        return outcome.status == 503 or is_proxy
    return isinstance(outcome, UnansweredError)


def _retry_after(response: Response) -> float:
    given = response.headers.get("retry-after", "")
    return float(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0.0


def _predictions(response: Response) -> pa.Table:
    try:
        return from_stream(response.content).replace_schema_metadata(None)
    except InputError as error:
        raise UnansweredError(
            "What answered is no server of partwise: its answer is no Arrow stream.", 200
        ) from error


def _error_of(response: Response) -> PartwiseError:
    sentence, kind = _told(response)
    if kind in KINDS:
        return KINDS[kind](sentence)
    told = f": {sentence}" if sentence else ", without a sentence of the server's own."
    return UnansweredError(f"The server answered {response.status}{told}", response.status)


def _told(response: Response) -> tuple[str, str]:
    """Return the sentence and the kind of an error, as far as they are there."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return "", ""
    found = body if isinstance(body, dict) else {}
    sentence, kind = found.get("error"), found.get("kind")
    return (
        sentence[:_LONGEST_SENTENCE] if isinstance(sentence, str) else "",
        kind if isinstance(kind, str) else "",
    )


def late() -> DeadlineError:
    """Return the error for an answer that did not come in time."""
    return DeadlineError("The server did not answer within the time that the client gives it.")
