"""What the page of a server shows: keys by a part of their text, a champion, its history."""

import json
import math
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.rows import champions_of
from partwise.errors import KeyClassError, PartitionNotFoundError
from partwise.formatting import key_text, shortened
from partwise.runs.ledger import key_names
from partwise.runs.run import Run
from partwise.serving.wire import key_to_json

MOST_KEYS = 50
MOST_VERSIONS = 100

Json = dict[str, Any]

_OF_CHAMPION = (
    *("run_id", "generation", "rows", "promoted_at", "since_version", "comparison", "margin"),
    *("reason", "pinned", "retired", "unseen_since"),
)
_OF_VERSION = ("version", "made_at", "who", "action", *_OF_CHAMPION)


class Champions:
    """The models that keys have in a version of a catalog, or in a run, as JSON holds them.

    Threads may share it.
    """

    def __init__(self, name: str, source: Catalog | Run) -> None:
        self._name = name
        self._source = source

    @property
    def _reference(self) -> str:
        source = self._source
        return source.reference if isinstance(source, Catalog) else f"run://{source.run_id}"

    @cached_property
    def _table(self) -> pa.Table:
        """One row a key, as `Catalog.table` has them."""
        source = self._source
        return source.table if isinstance(source, Catalog) else champions_of(source)

    def like(self, text: str = "") -> Json:
        """Return at most 50 keys that have `text` in them, in any case, and how many have.

        Raises:
            IntegrityError: The table is gone, or was changed.
        """
        names = [*key_names(self._table.column_names), "partition_id"]
        keys = found = self._table.select(names)
        if text:
            found = keys.filter(pc.match_substring(_texts(keys), text, ignore_case=True))
        columns = self._source.key_columns
        return {
            "name": self._name,
            "reference": self._reference,
            "key_columns": [{"name": each.name, "class": each.key_class} for each in columns],
            "n_keys": keys.num_rows,
            "n_found": found.num_rows,
            "keys": [_named(row) for row in found.slice(0, MOST_KEYS).to_pylist()],
        }

    def one(self, key: str) -> Json:
        """Return a key's champion, and what it was measured with.

        Args:
            key: The id that `like` gave, or the key as `--key` takes it.

        Raises:
            PartitionNotFoundError: It is not there; no other key is named.
        """
        row = self._row(key)
        metrics = dict(row["metrics"] or ())
        champion = {name: row[name] for name in _OF_CHAMPION}
        return {**_named(row), "champion": _plain(champion), "metrics": _plain(metrics)}

    def history(self, key: str) -> Json:
        """Return the newest 100 versions that changed a key, the newest first; of a run none.

        Raises:
            PartitionNotFoundError: It is not there; no other key is named.
        """
        row = self._row(key)
        if not isinstance(self._source, Catalog):
            return {"n_versions": 0, "versions": []}
        table = self._source.history(row["partition_id"])
        table = table.filter(pc.equal(table["partition_id"], row["partition_id"]))
        newest = table.select(_OF_VERSION).slice(max(0, table.num_rows - MOST_VERSIONS))
        versions = [_plain(each) for each in reversed(newest.to_pylist())]
        return {"n_versions": table.num_rows, "versions": versions}

    def _row(self, key: str) -> Json:
        names = [key]
        with suppress(KeyClassError):
            names.append(self._source.partition_id(key))
        for name in names:
            place = pc.index(self._table["partition_id"], name).as_py()
            if place >= 0:
                row: Json = self._table.slice(place, 1).to_pylist()[0]
                return row
        raise PartitionNotFoundError(f"There is no key {shortened(key)!r}.")


def _texts(keys: pa.Table) -> pa.Array:
    """Return what is searched: values with commas between them."""
    texts = []
    for name in key_names(keys.column_names):
        try:
            texts.append(pc.cast(keys[name], pa.string()))
        except pa.ArrowException:  # durations, and bytes that are no text
            texts.append(keys["partition_id"])
    return pc.binary_join_element_wise(
        *(texts or [keys["partition_id"]]), ",", null_handling="replace", null_replacement="null"
    )


def _named(row: Json) -> Json:
    """Return how a key is called: its id, its text, and its JSON; None: there is none."""
    named = {"id": row["partition_id"], "text": row["partition_id"], "json": None}
    if values := [row[each] for each in key_names(row)]:
        named["text"] = key_text(values)
        named["json"] = json.dumps(key_to_json(tuple(values) if len(values) > 1 else values[0]))
    return named


def _plain(values: Json) -> Json:
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
