"""Segments of the ledger of an unfinished run: believed only where a key of ours signed them."""

import io
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.errors import SignatureError
from partwise.runs.contents import (
    ledger_segments,
    read_committed,
    read_segments,
    write_segment,
)
from partwise.runs.ledger import read_ledger, write_table
from partwise.runs.own_checksums import (
    CHECKSUM,
    NO_CHECKSUM,
    check_own_signature,
    fill_checksum,
)
from partwise.runs.run import Run
from partwise.runs.verification import verify_run
from partwise.store.signing import KEYS_VARIABLE
from partwise.store.store import Store
from tests.run_maker import RunMaker
from tests.signing_key import CONFIGURED_KEY as OLD

NEW = f"2026:{'b2' * 32}"
STRANGE = f"2025:{'c3' * 32}"
"""Another key that is called as an old one is."""


pytestmark = pytest.mark.usefixtures("configured_key")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.parse(tmp_path / "store")


def unfinished(store: Store, run_id: str = "run", value: float = 1.0) -> str:
    """Commit two partitions in a generation that does not end; return the segment's path."""
    maker = RunMaker(store, run_id)
    maker.begin(partitions=3)
    maker.commit(("a", "DONE", value), ("b", "FAILED", 2.0))
    maker.die()
    return ledger_segments(store, run_id)[-1]


def with_checksum(content: bytes) -> bytes:
    """Return a file with the checksum that it would have, as whoever changes it would do."""
    (*_, place) = re.finditer(CHECKSUM + rb".{1,4}?([0-9a-f]{64})", content, re.DOTALL)
    file = io.BytesIO(content[: place.start(1)] + NO_CHECKSUM + content[place.end(1) :])
    fill_checksum(file)
    return file.getvalue()


def refusals(store: Store, path: str) -> str:
    found = read_segments(store, [path])
    assert found.tables == {}, "it was believed"
    return found.damaged[path]


def test_what_workers_have_committed_is_believed_while_it_is_theirs(store: Store) -> None:
    path = unfinished(store)
    run = Run.open("run", store)
    assert run.counts == {"DONE": 1, "FAILED": 1}
    assert list(verify_run("run", store).damages) == []
    assert store.read(path) == with_checksum(store.read(path))


def test_no_byte_can_be_changed(store: Store) -> None:
    path = unfinished(store)
    whole, chance = store.read(path), random.Random(7)
    place = whole.rfind(CHECKSUM)
    for at in range(0, len(whole), 7):
        if place <= at < place + len(CHECKSUM) + 70:
            continue
        content = bytearray(whole)
        content[at] ^= 1 << chance.randrange(8)
        with pytest.raises(SignatureError, match=r"changed after it was signed|not signed"):
            check_own_signature(with_checksum(bytes(content)), path, "it", store)
    check_own_signature(whole, path, "it", store)


def changes(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield a table with one column changed after the other, as an attacker would."""
    for place, name in enumerate(table.column_names):
        column = table[name]
        if pa.types.is_string(column.type):
            other = pc.binary_join_element_wise(column.fill_null("x"), "0", "")
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            other = pc.add(column.fill_null(0), 1).cast(column.type)
        else:
            other = pa.nulls(table.num_rows, column.type)
        yield name, table.set_column(place, table.schema.field(place), other)


def test_no_column_can_be_changed_with_another_key_or_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unfinished(store)
    table = read_ledger(store.read(path), "it")
    tried = 0
    for _, changed in changes(table):
        monkeypatch.setenv(KEYS_VARIABLE, STRANGE)
        forged = write_segment(store, changed, path, is_signed=True)
        monkeypatch.setenv(KEYS_VARIABLE, OLD)
        store.write(path, forged)
        assert "was changed after it was signed with the key '2025'" in refusals(store, path)
        store.write(path, write_table(changed))
        assert "is not signed" in refusals(store, path)
        tried += 1
    assert tried > 20
    assert Run.open("run", store).counts == {}


SWAPS: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "of another run": lambda first, other: (other, first),
    "of another name": lambda first, other: (first, first.replace("-001.", "-002.")),
    "of another generation": lambda first, other: (first, first.replace("-g0001", "-g0002")),
    "of another shard": lambda first, other: (first, first.replace("/00000-", "/00001-")),
}


@pytest.mark.parametrize("name", SWAPS)
def test_no_segment_can_stand_for_another(store: Store, name: str) -> None:
    first, other = unfinished(store), unfinished(store, "other", 5.0)
    source, target = SWAPS[name](first, other)
    store.write(target, store.read(source))
    assert "belongs elsewhere" in refusals(store, target)


def test_a_key_is_replaced_by_two_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unfinished(store)
    monkeypatch.setenv(KEYS_VARIABLE, f"{NEW}, {OLD}")
    assert list(read_segments(store, [path]).tables) == [path]
    newer = unfinished(store, "newer")
    monkeypatch.setenv(KEYS_VARIABLE, NEW)
    assert list(read_segments(store, [newer]).tables) == [newer]
    assert "with the key '2025', which this process does not have" in refusals(store, path)
    # Whoever has none is told nothing, and believes all.
    monkeypatch.delenv(KEYS_VARIABLE)
    assert len(read_segments(store, [path, newer]).tables) == 2


def test_a_resume_makes_what_nobody_signed_anew(store: Store) -> None:
    path = unfinished(store)
    store.write(path, write_table(read_ledger(store.read(path), "it")))
    committed = read_committed(store, "run", 0, 2, (1,), is_signed=True)
    assert committed.earlier is None
    (sentence,) = committed.damaged
    assert "is not signed" in sentence
    assert sentence.endswith("and its partitions run again.")
    assert ledger_segments(store, "run") == []


def test_a_worker_without_the_keys_commits_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unfinished(store)
    table = read_ledger(store.read(path), "it")
    monkeypatch.delenv(KEYS_VARIABLE)
    with pytest.raises(SignatureError, match="was not given the signing keys of its run"):
        write_segment(store, table, path, is_signed=True)
    with pytest.raises(SignatureError, match="was not given the signing keys of its run"):
        read_committed(store, "run", 0, 2, (1,), is_signed=True)
    assert b"partwise.signature" not in write_segment(store, table, path, is_signed=False)
    # The process that was given none decides so for workers that have some.
    monkeypatch.setenv(KEYS_VARIABLE, NEW)
    assert read_committed(store, "run", 0, 2, (1,), is_signed=False).damaged == ()


def test_a_folder_that_is_moved_as_a_whole_stays_signed(store: Store, tmp_path: Path) -> None:
    unfinished(store)
    shutil.move(tmp_path / "store", tmp_path / "moved")
    assert Run.open("run", Store.parse(tmp_path / "moved")).counts == {"DONE": 1, "FAILED": 1}
