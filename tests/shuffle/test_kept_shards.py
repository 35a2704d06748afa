"""Shards that are kept in an artifact store, which somebody else may write."""

import os
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from partwise.errors import IntegrityError
from partwise.shuffle import shard_cache
from partwise.shuffle.part_file import PART_VERSION
from partwise.shuffle.shard_cache import COMPLETE, collect_shards
from partwise.store.signing import KEYS_VARIABLE
from partwise.store.store import Store
from tests.shuffle.loaded import Loaded, part_files, table_of

FLIPS = 40
USED_AGAIN = "The rows are those of an earlier run: its shards are used again."
READ_AGAIN = "no signing key of this process vouches for them: the rows are read again"
DAMAGED = "The shards of an earlier run on these rows are damaged: the rows are read again."


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(table_of(300), path)
    return path


@pytest.fixture
def load(rows, dask_client, tmp_path):
    def load(name: str = "store", source: Path = rows) -> Loaded:
        return Loaded(source, ["store"], dask_client, tmp_path, Store.parse(tmp_path / name))

    return load


@pytest.fixture
def found(load) -> list:
    """The partitions, as the run that kept the shards read them."""
    first = load()
    partitions = first.partitions()
    first.close()
    return partitions


def kept(tmp_path: Path) -> tuple[Path, Path]:
    """The part file that is kept, and the document that names it."""
    (part,) = part_files(tmp_path / "store")
    return part, part.parent.parent / COMPLETE


def test_shards_of_ones_own_are_used_again(load, found, tmp_path):
    second = load()
    assert second.said == [USED_AGAIN]
    assert second.partitions() == found
    second.close()


def test_shards_of_another_format_are_not_used(load, found, monkeypatch):
    """Before format 5 they had ordered categories in the order in which files were read."""
    assert PART_VERSION >= 5
    monkeypatch.setattr(shard_cache, "PART_VERSION", PART_VERSION - 1)
    second = load()
    assert second.said == []
    assert second.partitions() == found
    second.close()


@pytest.mark.parametrize("signed", ["by another key", "not at all"])
def test_shards_of_somebody_else_are_not_used(load, found, tmp_path, monkeypatch, signed):
    _, document = kept(tmp_path)
    if signed == "by another key":
        for name, key in (("PARTWISE_STATE", str(tmp_path / "other")), (KEYS_VARIABLE, "")):
            monkeypatch.setenv(name, key)
    else:
        lines = document.read_text().splitlines()
        unsigned = [line for line in lines if "signature" not in line]
        unsigned[-2] = unsigned[-2].removesuffix(",")
        document.write_text("\n".join(unsigned) + "\n")
    second = load()
    assert len(second.said) == 1
    assert second.said[0].endswith(f"{READ_AGAIN}.")
    assert second.partitions() == found
    second.close()
    # What it read itself is not kept beside what is there.
    assert len(part_files(tmp_path / "store")) == 1


def test_a_configured_key_vouches_on_every_machine(load, tmp_path, monkeypatch):
    monkeypatch.setenv(KEYS_VARIABLE, f"team:{'ab' * 32}")
    load().close()
    monkeypatch.setenv("PARTWISE_STATE", str(tmp_path / "another machine"))
    second = load()
    assert "used again" in second.said[0]
    second.close()


def test_another_part_in_the_place_of_one_is_not_used(load, found, tmp_path):
    """It is whole, with checksums that belong to its own rows."""
    other = tmp_path / "other.parquet"
    pq.write_table(table_of(300, start=5000), other)
    load("elsewhere", other).close()
    (forged,) = part_files(tmp_path / "elsewhere")
    part, _ = kept(tmp_path)
    shutil.copy(forged, part)
    second = load()
    assert second.said == [DAMAGED]
    assert second.partitions() == found
    second.close()


def test_no_flipped_bit_changes_a_row(load, found, tmp_path):
    """Wherever it stands: the rows are read again, or refused, or it is in the padding."""
    part, _ = kept(tmp_path)
    whole, document = part.read_bytes(), kept(tmp_path)[1].read_bytes()
    chance = random.Random(7)
    outcomes = set()
    for _ in range(FLIPS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        part.write_bytes(content)
        again = load()
        try:
            outcome = again.said[0] if again.partitions() == found else "other rows"
        except IntegrityError as error:
            outcome = str(error)
        outcomes.add(outcome)
        again.close()
        # A damaged index is forgotten, with the parts that it is of.
        for path in part_files(tmp_path / "store"):
            path.unlink()
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(whole)
        (part.parent.parent / COMPLETE).write_bytes(document)
    folder = os.path.dirname(part.relative_to(tmp_path / "store"))
    refused = {outcome for outcome in outcomes if f"delete the folder {folder} in it" in outcome}
    assert refused
    assert DAMAGED in outcomes
    assert outcomes - refused <= {DAMAGED, USED_AGAIN}


def test_shards_in_a_store_are_as_old_as_the_newest_of_their_parts(tmp_path):
    store, now = Store.parse(tmp_path), datetime.now(UTC)
    for name, ages in {"old": (30, 25), "new": (30, 23), "young": (-1,)}.items():
        for hours in ages:
            begun = f"{now - timedelta(hours=hours):%Y%m%dT%H%M%SZ}-0123456789ab"
            store.write(f"shards/{name}/{begun}/00000.part", b"rows")
        store.write(f"shards/{name}/{COMPLETE}", b"{}")
    found = collect_shards(store, timedelta(days=1), dry_run=False)
    assert {path.split("/")[1] for path, _ in found} == {"old"}
    assert set(store.list_folder("shards")) == {"new", "young"}
