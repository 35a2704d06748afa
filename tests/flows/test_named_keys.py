"""The named inputs 1 to 46 of docs/inputs.md: odd keys, each by its rule."""

# ruff: noqa: DTZ001 (times without a zone and odd letters are keys as well)

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pytest

from partwise.blocks import RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.errors import KeyClassError, PartitionNotFoundError
from partwise.flows import map_partitions
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import hash_keys, key_columns, normalize_keys
from tests.named_inputs import NAMED, Cases, NamedInput, names_between

TEXTS: dict[str, list[str]] = {
    "05-empty-string": [""],
    "06-whitespace-only": [" ", "\t", "\u00a0"],
    "07-leading-and-trailing-space-twins": ["store 1", " store 1", "store 1 "],
    "08-one-dot": ["."],
    "09-two-dots": [".."],
    "10-slash": ["a/b"],
    "11-backslash": ["a\\b"],
    "12-absolute-path": ["/etc/passwd"],
    "13-percent-encoded-path": ["%2e%2e%2f", "../"],
    "14-nul-byte": ["nul\0", "nul"],
    "15-line-breaks": ["a\nb", "a\r\nb", "a\rb"],
    "16-terminal-and-direction-marks": ["\x1b[31mred", "\u202etxt.exe"],
    "17-composed-and-decomposed-letters": ["caf\u00e9", "cafe\u0301"],
    "18-upper-and-lower-case": ["A", "a"],
    "19-dotless-i-and-sharp-s": ["\u0130", "\u0131", "i", "I", "ß", "SS", "ss"],
    "20-joined-emoji": ["\U0001f469\u200d\U0001f680", "\U0001f469\U0001f680"],
    "22-zero-width-twins": ["zero", "ze\u200bro", "zero\ufeff"],
    "23-300-bytes": ["x" * 300, "x" * 299],
    "24-86-wide-characters": ["界" * 86],
    "25-5-000-characters": ["y" * 5000, "y" * 4999],
    "26-names-that-windows-reserves": ["CON", "con", "aux.txt", "trailing."],
    "27-wildcards": ["k[1]*?", "k1"],
    "28-marks-of-urls": ["#", "?", "&", ";"],
    "29-like-a-hive-directory": ["x=1"],
    "30-hive-s-name-for-null": ["__HIVE_DEFAULT_PARTITION__"],
    "46-names-of-our-own-files": ["manifest", "_SUCCESS", ".tmp", "run.json", "ledger"],
}
ALL_TEXTS = [text for texts in TEXTS.values() for text in texts]
NO_TEXTS = [None, pd.NA, math.nan, pd.NaT]

HOUR = 3600
AMBIGUOUS = 1_635_640_200  # 2021-10-31 02:30 in Zürich, for the first time
MOMENT = dt.datetime(2026, 11, 21, 3, 25)

cases = Cases()


def seen(data, context):
    print(repr(context.key))
    return {"row": data.to_arrow()["row"]}


class Place:
    """Where a case runs: flows on the session's workers, each run kept for the cases after it."""

    def __init__(self, cluster: RemoteCluster, path: Path) -> None:
        self.cluster = cluster
        self.path = path
        self._runs: dict[str, Run] = {}

    def map(self, data: Any, by: Any, **options: Any) -> Run:
        """Map partitions into a fresh store, of which a refusal leaves nothing."""
        store = self.path / f"{len(list(self.path.iterdir()))}"
        store.mkdir()
        try:
            return map_partitions(
                data,
                by,
                seen,
                store=store,
                cluster=self.cluster,
                **{"execution": ONE_SHARD, **options},
            )
        except Exception:
            assert list(store.rglob("*")) == []
            raise

    def run(self, make: Callable[[], tuple[Any, Any]]) -> Run:
        """The run of a table, null keys kept."""
        if make.__name__ not in self._runs:
            self._runs[make.__name__] = self.map(*make(), null_keys="keep")
        return self._runs[make.__name__]


MOST_SHARDS = 4096
ONE_SHARD = ExecutionOptions(n_shards=1, max_retries=0)


@pytest.fixture(scope="module")
def place(cluster, tmp_path_factory) -> Place:
    return Place(cluster, tmp_path_factory.mktemp("keys"))


def rows_of(run: Run, key: Any) -> list[int]:
    """The rows that the partition of a key had, by its key in the ledger."""
    name = run.partition_id(key)
    assert name in run.partitions["partition_id"].to_pylist()
    table = run.predictions()
    names = [column.name for column in run.key_columns]
    wanted = key if isinstance(key, tuple) else (key,)
    return [
        row["row"]
        for row in table.to_pylist()
        if all(_same(row[name], value) for name, value in zip(names, wanted, strict=True))
    ]


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        # Python finds no two zones' times equal in the hour that clocks show twice.
        return value.timestamp() == other.timestamp()
    return value is other or repr(value) == repr(other) or (value == other and value == value)


def texts() -> tuple[Any, Any]:
    """All odd texts twice, and what stands for none in pandas."""
    keys = pd.Series([*ALL_TEXTS, *NO_TEXTS, *ALL_TEXTS], dtype=object)
    return pd.DataFrame({"key": keys, "row": range(len(keys))}), "key"


@pytest.mark.parametrize("name", TEXTS)
def test_key_of_text(place, name):
    run = place.run(texts)
    second = len(ALL_TEXTS) + len(NO_TEXTS)
    for text in TEXTS[name]:
        first = ALL_TEXTS.index(text)
        assert rows_of(run, text) == [first, first + second]
        assert repr(text) in run.logs(text)
        partition_id = run.partition_id(text)
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*-[0-9a-f]{16}", partition_id)
        assert len(partition_id) <= 57
    assert len({run.partition_id(text).casefold() for text in TEXTS[name]}) == len(TEXTS[name])
    assert NAMED[name].outcome == "accepted"


def test_no_text_is_lost_among_the_others(place):
    run = place.run(texts)
    assert run.counts == {"DONE": len(set(ALL_TEXTS)) + 1}
    assert len(ALL_TEXTS) == len(set(ALL_TEXTS))


def floats() -> tuple[Any, Any]:
    """Zeros, NaNs and sums; a null is none of them."""
    keys = [math.nan, -math.nan, 0.0, -0.0, 0.1 + 0.2, 0.3, None]
    return pa.table({"key": pa.array(keys, pa.float64()), "row": range(7)}), "key"


def naive() -> tuple[Any, Any]:
    """Times without a zone: pandas' NaT, microseconds and nanoseconds."""
    times = [pd.NaT, pd.Timestamp(MOMENT), pd.Timestamp(AMBIGUOUS, unit="s")]
    frame = pd.DataFrame({"key": pd.Series(times, dtype="datetime64[us]"), "row": [0, 1, 2]})
    fine = pa.array([pd.Timestamp(MOMENT).value, pd.Timestamp(MOMENT).value + 1])
    again = pa.array([AMBIGUOUS * 10**9])
    keys = pa.concat_arrays([fine, again]).cast(pa.timestamp("ns"))
    return [frame, pa.table({"key": keys, "row": [3, 4, 5]})], "key"


def zoned() -> tuple[Any, Any]:
    """The hour that Zürich's clocks show twice, and the same instants as Tokyo has them."""
    instants = [AMBIGUOUS, AMBIGUOUS + HOUR, AMBIGUOUS]
    local = pa.array(instants, pa.timestamp("s", "Europe/Zurich"))
    return pa.table({"key": local, "row": [0, 1, 2]}), "key"


def mixed() -> tuple[Any, Any]:
    """Four columns of keys at once."""
    sizes = pa.DictionaryArray.from_arrays([0, 0, 0, 2], ["small", "never", "large"])
    return [
        pa.table(
            {
                "unsigned": pa.array([2**64 - 1, 2**63, 1, 1], pa.uint64()),
                "decimal": pa.array([Decimal("1.0")] * 3 + [Decimal("1.5")], pa.decimal128(5, 1)),
                "bytes": [b"\x00\xff", b"", b"", b"\x00"],
                "size": sizes,
                "row": range(4),
            }
        ),
        pa.table(
            {
                "unsigned": pa.array([1], pa.uint8()),
                "decimal": pa.array([Decimal("1.00")], pa.decimal128(6, 2)),
                "bytes": [b""],
                "size": pa.array(["small"]).dictionary_encode(),
                "row": [4],
            }
        ),
    ], ["unsigned", "decimal", "bytes", "size"]


def pairs() -> tuple[Any, Any]:
    """Two columns whose texts would run together."""
    table = {"a": ["a_b", "a", "a_b"], "b": ["c", "b_c", "c"], "row": [0, 1, 2]}
    return pa.table(table), ["a", "b"]


@cases("01-null-key")
def null_key(place: Place, row: NamedInput) -> str:
    assert rows_of(place.run(texts), None) == list(range(len(ALL_TEXTS), len(ALL_TEXTS) + 4))
    table = pa.table({"key": ["a", None], "row": [0, 1]})
    return row.is_refused(lambda: place.map(table, "key"))


@cases("02-nan-key")
def nan_key(place: Place, row: NamedInput) -> str:
    assert rows_of(place.run(floats), math.nan) == [0, 1]
    assert rows_of(place.run(floats), None) == [6]
    return "accepted"


@cases("03-nat-key")
def nat_key(place: Place, row: NamedInput) -> str:
    assert rows_of(place.run(naive), None) == [0]
    assert place.run(naive).partition_id(pd.NaT) == place.run(naive).partition_id(None)
    return "accepted"


@cases("04-na-none-and-nan-mixed")
def missing_values_mixed(place: Place, row: NamedInput) -> str:
    first = len(ALL_TEXTS)
    assert rows_of(place.run(texts), None) == list(range(first, first + len(NO_TEXTS)))
    return "accepted"


@cases("21-lone-surrogate")
def lone_surrogate(place: Place, row: NamedInput) -> str:
    keys = pd.Series(["a", "\ud800"], dtype=object)
    return row.is_refused(lambda: place.map(pd.DataFrame({"key": keys, "row": [0, 1]}), "key"))


@cases("31-1-beside-text-1-1-0-and-true")
def one_in_many_classes(place: Place, row: NamedInput) -> str:
    for key in (1, 1.0, True):
        with pytest.raises((KeyClassError, PartitionNotFoundError), match=re.escape(repr(key))):
            place.run(texts).logs(key)
    keys = pd.Series([1, "1", 1.0, True], dtype=object)
    frame = pd.DataFrame({"key": keys, "row": range(4)})
    return row.is_refused(lambda: place.map(frame, "key"))


@cases("32-integers-above-2-63")
def unsigned(place: Place, row: NamedInput) -> str:
    keys = place.run(mixed).partitions["unsigned"].to_pylist()
    assert sorted(keys) == [1, 1, 2**63, 2**64 - 1]
    assert rows_of(place.run(mixed), (2**64 - 1, Decimal("1.00"), b"\x00\xff", "small")) == [0]
    return "accepted"


@cases("33-0-0-and-0-0")
def zeros(place: Place, row: NamedInput) -> str:
    assert rows_of(place.run(floats), -0.0) == rows_of(place.run(floats), 0.0) == [2, 3]
    return "accepted"


@cases("34-float-sums")
def sums(place: Place, row: NamedInput) -> str:
    run = place.run(floats)
    assert (rows_of(run, 0.1 + 0.2), rows_of(run, 0.3)) == ([4], [5])
    return "accepted"


@cases("35-decimals-1-0-and-1-00")
def decimals(place: Place, row: NamedInput) -> str:
    run = place.run(mixed)
    assert rows_of(run, (1, Decimal("1.00"), b"", "small")) == [2, 4]
    key, other = ((1, Decimal(text), b"", "small") for text in ("1.0", "1.000"))
    assert run.partition_id(key) == run.partition_id(other)
    return "accepted"


@cases("36-time-stamps-with-and-without-zone")
def zones_mixed(place: Place, row: NamedInput) -> str:
    tables = [
        pa.table({"key": pa.array([0], pa.timestamp("us", zone)), "row": [0]})
        for zone in (None, "UTC")
    ]
    return row.is_refused(lambda: place.map(tables, "key"))


@cases("37-one-instant-in-two-zones")
def one_instant(place: Place, row: NamedInput) -> str:
    run = place.run(zoned)
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        key = dt.datetime.fromtimestamp(AMBIGUOUS, ZoneInfo(zone))
        assert rows_of(run, key) == [0, 2]
        assert run.logs(key).strip() == repr(key.astimezone(dt.UTC).replace(tzinfo=ZoneInfo("UTC")))
    return "accepted"


@cases("38-nanoseconds-and-microseconds")
def units(place: Place, row: NamedInput) -> str:
    run = place.run(naive)
    assert rows_of(run, pd.Timestamp(MOMENT)) == [1, 3]
    assert rows_of(run, pd.Timestamp(pd.Timestamp(MOMENT).value + 1)) == [4]
    return "accepted"


@cases("39-the-hour-that-clocks-show-twice")
def ambiguous_hour(place: Place, row: NamedInput) -> str:
    assert place.run(zoned).counts == {"DONE": 2}
    assert rows_of(place.run(naive), pd.Timestamp(AMBIGUOUS, unit="s")) == [2, 5]
    return "accepted"


@cases("40-dates-and-times")
def dates_and_times(place: Place, row: NamedInput) -> str:
    kinds = (pa.date32(), pa.timestamp("us"))
    tables = [pa.table({"key": pa.array([0], kind), "row": [0]}) for kind in kinds]
    return row.is_refused(lambda: place.map(tables, "key"))


@cases("41-bytes")
def bytes_key(place: Place, row: NamedInput) -> str:
    run = place.run(mixed)
    assert set(run.partitions["bytes"].to_pylist()) == {b"", b"\x00", b"\x00\xff"}
    assert rows_of(run, (1, Decimal("1.50"), b"\x00", "large")) == [3]
    return "accepted"


@cases("42-categories-without-rows")
def unused_categories(place: Place, row: NamedInput) -> str:
    run = place.run(mixed)
    assert set(run.partitions["size"].to_pylist()) == {"small", "large"}
    assert run.counts == {"DONE": 4}
    return "accepted"


@cases("43-columns-that-run-together")
def joint(place: Place, row: NamedInput) -> str:
    run = place.run(pairs)
    assert (rows_of(run, ("a_b", "c")), rows_of(run, ("a", "b_c"))) == ([0, 2], [1])
    assert len(set(run.partitions["partition_id"].to_pylist())) == 2
    return "accepted"


@cases("44-lists-and-structs")
def nested(place: Place, row: NamedInput) -> str:
    lists = pa.table({"key": [[1]], "row": [0]})
    row.is_refused(lambda: place.map(lists, "key"))
    structs = pa.table({"key": [{"a": 1}], "row": [0]})
    return row.is_refused(lambda: place.map(structs, "key"))


@cases("45-equal-short-hashes")
def short_hashes(place: Place, row: NamedInput) -> str:
    candidates = pa.table({"key": [f"store {i}" for i in range(400)]})
    columns = key_columns(candidates.schema, "key")
    shards = (hash_keys(normalize_keys(candidates, columns)) % MOST_SHARDS).tolist()
    twin = next(shard for shard in shards if shards.count(shard) > 1)
    keys = [candidates["key"][i].as_py() for i, shard in enumerate(shards) if shard == twin]
    table = pa.table({"key": keys, "row": range(len(keys))})
    run = place.map(table, "key", execution=ExecutionOptions(n_shards=MOST_SHARDS))
    assert [rows_of(run, key) for key in keys] == [[i] for i in range(len(keys))]
    return "accepted"


@pytest.mark.parametrize("name", cases)
def test_key(place, name):
    assert cases[name](place, NAMED[name]) == NAMED[name].outcome


def test_every_row_of_the_page_has_a_test():
    assert {*cases, *TEXTS} == names_between(1, 46)
    assert not set(cases) & set(TEXTS)
