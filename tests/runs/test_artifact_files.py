"""Artifacts as files: each under its key, whole, and never in the place of another one."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import InputError, IntegrityError, PartitionNotFoundError, StoreError
from partwise.runs.bundle import GAP_BYTES, StoredArtifact, neighbours
from partwise.runs.documents import run_path
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.run_maker import RunMaker

SAFE = ("North", "a,b", "Basel SBB", "2026-03-01", "x" * 100)
UNSAFE = ("", ".", "..", "../up", "a/b", " x", "x.", "Zürich", "C:\\x", "a\nb", "x" * 101, "*")


def run_of(store: Store, *keys: str) -> Run:
    maker = RunMaker(store)
    maker.begin()
    maker.commit(*((key, "DONE", float(place)) for place, key in enumerate(keys)))
    return maker.end(len(keys))


def files_of(target: Store) -> dict[str, bytes]:
    return {path: target.read(path) for path in target.list("")}


def test_each_partition_has_a_folder(store, s3_store, local_store) -> None:
    run = run_of(store, *SAFE, *UNSAFE)
    folders = {key: key if key in SAFE else run.partition_id(key) for key in (*SAFE, *UNSAFE)}
    expected = {
        f"{folders[key]}/note.txt": run.artifact(key, "note.txt").encode() for key in folders
    }
    for target in (s3_store, local_store):
        away = replace(target, url=f"{target.url}/away")
        done = run.export(away)
        assert (done.files, done.partitions) == (len(folders), len(folders))
        assert done.size_bytes == sum(map(len, expected.values()))
        assert files_of(away) == expected


def test_folders_that_differ_in_capital_letters_alone_have_their_ids(local_store, tmp_path) -> None:
    run = run_of(local_store, "north", "North", "south")
    run.export(tmp_path / "away")
    names = sorted(path.name for path in (tmp_path / "away").iterdir())
    assert names == sorted(map(run.partition_id, ("north", "North", "south")))


def test_a_call_that_was_cut_off_is_gone_on_with(local_store, tmp_path, monkeypatch) -> None:
    run = run_of(local_store, *map(str, range(30)))
    away = Store.parse(tmp_path / "away")
    left = 11

    def create(self: Store, path: str, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreError("no space left")
        whole(self, path, data)

    whole = Store.create
    monkeypatch.setattr(Store, "create", create)
    with pytest.raises(StoreError, match="no space left"):
        run.export(away)
    monkeypatch.undo()
    assert 0 < len(files_of(away)) < 30
    assert run.export(away).files == 30
    assert files_of(away) == {f"{n}/note.txt": f"{n} {n}.0".encode() for n in range(30)}


def test_a_file_of_somebody_else_stays_unless_it_may_be_replaced(local_store, tmp_path) -> None:
    run = run_of(local_store, "a", "b")
    place = tmp_path / "away" / "b" / "note.txt"
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    with pytest.raises(InputError, match=r"^b/note\.txt in .* has another content: choose an emp"):
        run.export(tmp_path / "away")
    assert place.read_text() == "mine"
    run.export(tmp_path / "away", overwrite=True)
    assert place.read_text() == "b 1.0"


def test_some_are_chosen_by_their_names_and_keys(local_store, tmp_path) -> None:
    run = run_of(local_store, "a", "b", "c")
    run.export(tmp_path / "some", "note.*", ["c", "a"])
    assert sorted(files_of(Store.parse(tmp_path / "some"))) == ["a/note.txt", "c/note.txt"]
    with pytest.raises(InputError, match=r"named like 'NOTE\.\*'; there are: note\.txt\."):
        run.export(tmp_path / "none", "NOTE.*")
    with pytest.raises(PartitionNotFoundError, match="no partition 'x'"):
        run.export(tmp_path / "none", keys=["a", "x"])
    with pytest.raises(InputError, match=r"for one write keys=\['ab'\]"):
        run.export(tmp_path / "none", keys="ab")
    assert not (tmp_path / "none").exists()


def test_what_is_damaged_is_not_written(local_store, tmp_path) -> None:
    run = run_of(local_store, "a", "b")
    [stored] = run.stored_artifacts(run.partition_id("b"))
    bundle = Path(local_store.local_path(run_path("run", stored.bundle)) or "")
    content = bytearray(bundle.read_bytes())
    content[stored.offset] ^= 1
    bundle.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"'note\.txt' of the partition b-"):
        run.export(tmp_path / "away")
    assert sorted(files_of(Store.parse(tmp_path / "away"))) == ["a/note.txt"]


def test_neighbours_are_read_at_once(local_store, tmp_path, monkeypatch) -> None:
    run = run_of(local_store, *map(str, range(300)))
    reads = []

    def read_range(self: Store, path: str, offset: int, size: int) -> bytes:
        reads.append(size)
        return whole(self, path, offset, size)

    whole = Store.read_range
    monkeypatch.setattr(Store, "read_range", read_range)
    run.export(tmp_path / "away")
    assert len(reads) == 1


@st.composite
def stored(draw: st.DrawFn) -> list[StoredArtifact]:
    """Artifacts of some bundles, in their order, with gaps between them."""
    found = []
    for bundle in range(draw(st.integers(0, 3))):
        offset = 0
        for _ in range(draw(st.integers(0, 8))):
            offset += draw(st.sampled_from([0, 30, GAP_BYTES, GAP_BYTES + 1]))
            size = draw(st.sampled_from([0, 1, 99, 1_000]))
            found.append(
                StoredArtifact(
                    filename="x", serde="", bundle=f"bundles/{bundle}", offset=offset,
                    stored_bytes=size, size_bytes=size, compression="stored", sha256="",
                )
            )  # fmt: skip
            offset += size
    return found


@given(stored(), st.integers(1, 2_000))
def test_spans_have_all_and_no_more_than_one_request_may_have(artifacts, most) -> None:
    spans = neighbours(artifacts, most)
    assert [place for span in spans for place in range(*span)] == list(range(len(artifacts)))
    for start, stop in spans:
        some = artifacts[start:stop]
        size = some[-1].offset + some[-1].stored_bytes - some[0].offset
        assert len({each.bundle for each in some}) == 1
        assert len(some) == 1 or size <= most
