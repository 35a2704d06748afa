"""A sample of what a server is asked and answers, kept for evaluations.

Who answers only puts a request into a queue. A thread makes tables and files of them. Where there
is no room, in the queue or in the store, a request is left out and counted: no answer waits or
fails.
"""

import logging
import queue
import random
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from partwise.catalogs.kept_rows import ANSWERED_AT, REQUEST_ID, About, kept_files, write_kept
from partwise.errors import InputError, PartwiseError
from partwise.runs.run import ONLY
from partwise.serving.keys import given_values, value_of_json
from partwise.serving.questions import Answer, Question
from partwise.serving.served import Served
from partwise.store.store import Store
from partwise.tables.keys.given_keys import keys_of_values
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn, normalize_keys

logger = logging.getLogger(__name__)

_MOST_WAITING = 1_000
_MOST_WAITING_CELLS = 1_000_000
_is_ours = re.compile(
    rf"prediction(_\d+)?|status|model_run|model_key|model_level|{REQUEST_ID}|{ANSWERED_AT}"
).fullmatch
"""Whether a name may be one of what stands beside the columns of each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOptions:
    """How many requests are kept, and how many at most."""

    fraction: float
    """Of the requests, drawn by chance."""
    rows_per_file: int = 10_000
    most_files: int = 1_000
    most_bytes: int = 2**30
    """Of all files of a model, also those of other servers. Older ones stay: whoever has used them
    deletes them."""
    seconds: float = 60.0
    """After which rows are written, however few they are."""

    def __post_init__(self) -> None:
        """Refuse what could not be used.

        Raises:
            InputError: The fraction is not above 0 and at most 1, or another value not above 0.
        """
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction={self.fraction}: give more than 0, and at most 1.")
        for each in fields(self):
            if not (value := getattr(self, each.name)) > 0:
                raise InputError(f"{each.name}={value}: give more than 0.")


@dataclass(frozen=True, slots=True)
class _Kept:
    question: Question
    answer: Answer
    served: Served
    request_id: str
    answered_at: datetime

    @property
    def n_cells(self) -> int:
        return self.question.n_rows * (1 + len(self.question.columns))


def check_may_be_kept(columns: Sequence[KeyColumn]) -> None:
    """Refuse key columns by whose names other things are kept.

    Raises:
        InputError: There is one.
    """
    for column in columns:
        if _is_ours(column.name):
            raise InputError(
                f"Requests cannot be kept by keys of a column {column.name!r}, since answers have "
                "a column of that name: serve without --keep-requests, or train with another "
                "name for the key column."
            )


class KeptRequests:
    """Keeps requests of a model in files of a store until it is closed."""

    def __init__(self, store: Store, name: str, options: KeepOptions) -> None:
        self.rows = 0
        """That were kept."""
        self.left_out = 0
        """Requests that were to be kept, and had no room or could not be written."""
        self._store = store
        self._name = name
        self._options = options
        self._waiting: queue.Queue[_Kept | None] = queue.Queue(_MOST_WAITING)
        self._cells = 0
        self._lock = threading.Lock()
        self._has_said = ""
        self._pending: list[pa.Table] = []
        self._about: About | None = None
        self._thread = threading.Thread(target=self._work, name="kept-requests", daemon=True)
        self._thread.start()

    def offer(self, question: Question, answer: Answer, served: Served, request_id: str) -> None:
        """Keep a request, if it is drawn and there is room; return at once.

        One whose version is no longer `served` when it is answered is not kept.
        """
        is_drawn = random.random() < self._options.fraction  # noqa: S311 (no secret)
        if not is_drawn or answer.version != served.version:
            return
        kept = _Kept(question, answer, served, request_id, datetime.now(UTC))
        with self._lock:
            has_room = self._cells + kept.n_cells <= _MOST_WAITING_CELLS
            if has_room:
                self._cells += kept.n_cells
        try:
            if has_room:
                self._waiting.put_nowait(kept)
                return
        except queue.Full:
            self._forget(kept)
        self._leave_out(1, "too many wait")

    def close(self) -> None:
        """Write what is kept so far, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _forget(self, kept: _Kept) -> None:
        with self._lock:
            self._cells -= kept.n_cells

    def _leave_out(self, n_requests: int, reason: str) -> None:
        with self._lock:
            self.left_out += n_requests
            is_new, self._has_said = reason != self._has_said, reason
        if is_new:
            logger.warning("Requests are not kept: %s.", reason.rstrip("."))

    def _work(self) -> None:
        due: float | None = None
        while True:
            try:
                wait = None if due is None else max(due - time.monotonic(), 0)
                kept = self._waiting.get(timeout=wait)
            except queue.Empty:
                self._write()
                due = None
                continue
            if kept is None:
                self._write()
                return
            self._forget(kept)
            self._add(kept)
            if not self._pending:
                due = None
            elif due is None:
                due = time.monotonic() + self._options.seconds

    def _add(self, kept: _Kept) -> None:
        try:
            rows = _rows_of(kept)
            about = _about(kept.served)
        except Exception as error:
            # Whatever a stranger has sent, the next request is kept.
            self._leave_out(1, f"one cannot be a table ({type(error).__name__})")
            return
        if self._pending and (about != self._about or not self._fits(rows)):
            self._write()
        self._about = about
        self._pending.append(rows)
        if sum(table.num_rows for table in self._pending) >= self._options.rows_per_file:
            self._write()

    def _fits(self, rows: pa.Table) -> bool:
        """Tell whether rows go into one file with those that wait."""
        schemas = [table.schema for table in (*self._pending, rows)]
        try:
            pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException:
            return False
        return True

    def _write(self) -> None:
        pending, self._pending = self._pending, []
        if not pending or self._about is None:
            return
        options = self._options
        try:
            sizes = [size for _, size in kept_files(self._store, self._name).values()]
            if len(sizes) >= options.most_files or sum(sizes) >= options.most_bytes:
                self._leave_out(len(pending), "there are as many as are to be kept")
                return
            rows = pa.concat_tables(pending, promote_options="permissive")
            write_kept(self._store, self._name, rows, self._about)
        except (PartwiseError, OSError, pa.ArrowException) as error:
            self._leave_out(len(pending), str(error))
        else:
            self.rows += rows.num_rows
            self._has_said = ""


def _about(served: Served) -> About:
    return About(
        version=served.version,
        key_columns=tuple(column.name for column in served.key_columns),
        levels=tuple(level.reference for level in served.levels),
    )


def _rows_of(kept: _Kept) -> pa.Table:
    """Return the rows that a model has answered, with what was asked and what came of it."""
    question, answer = kept.question, kept.answer
    answered = answer.to_arrow()
    columns: dict[str, Any] = {
        name: values if isinstance(values, pa.ChunkedArray) else pa.array(values)
        for name, values in question.columns.items()
        # Of several classes there is no prediction but those of each; an evaluation goes by names.
        if not _is_ours(name)
    }
    time_type = pa.timestamp("us", "UTC")
    ours: dict[str, Any] = {
        **dict(zip(answered.column_names, answered.columns, strict=True)),
        REQUEST_ID: pa.array([kept.request_id] * question.n_rows),
        ANSWERED_AT: pa.array([kept.answered_at] * question.n_rows, time_type),
    }
    keys = _keys_of(question, kept.served.key_columns)
    if taken := keys.keys() & ours.keys():
        raise InputError(f"The key column {min(taken)!r} is one of the answer.")
    return pa.table(columns | keys | ours).filter(pa.array(answer.used >= 0))


def _keys_of(question: Question, columns: tuple[KeyColumn, ...]) -> dict[str, Any]:
    """Return the key columns of each row, of the classes of the models'."""
    if question.key is not ONLY:
        key = question.key if isinstance(question.key, tuple) else (question.key,)
        lists = {
            column.name: [value] * question.n_rows
            for column, value in zip(columns, key, strict=True)
        }
    else:
        lists = {column.name: question.columns[column.name] for column in columns}
    return {column.name: _key_column(lists[column.name], column) for column in columns}


def _key_column(values: Any, column: KeyColumn) -> Any:
    values = given_values(values, column)
    if isinstance(values, pa.ChunkedArray):
        found = normalize_keys(pa.table([values], names=[column.name]), [column]).column(0)
        # One type for all files: keys from 2 to the 63rd on are left out.
        return found.cast(pa.int64()) if found.type == pa.uint64() else found
    keys = [value_of_json(value, column) for value in values]
    if column.key_class is KeyClass.INTEGER:
        return pa.array(keys, pa.int64())
    return keys_of_values(keys, [column]).column(0)
