"""Who has the signing keys of one store can write nothing into another that is believed there."""

import shutil
from pathlib import Path

import pytest

from partwise.blocks import StoreBlock
from partwise.engine.driver.credentials import SigningKeys
from partwise.errors import SignatureError
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.runs.contents import ledger_segments, read_segments
from partwise.runs.ledger import read_ledger, write_table
from partwise.runs.run import Run
from partwise.store import signing
from partwise.store.signing import parse_keys, set_signing_keys, signing_keys_text
from partwise.store.store import Store
from tests.run_maker import RunMaker

OURS = f"ours:{'a1' * 32}"
THEIRS = f"theirs:{'b2' * 32}"


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Store]:
    """Two stores with keys of their own, and in each a run of one name that has ended."""
    monkeypatch.setenv(signing.STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.delenv(signing.KEYS_VARIABLE, raising=False)
    monkeypatch.setattr(signing, "_of_blocks", {})
    blocks = {"ours": OURS, "theirs": THEIRS}
    opened = [
        open_store(StoreBlock(url=str(tmp_path / name), signing_keys=keys))
        for name, keys in blocks.items()
    ]
    for number, store in enumerate(opened):
        maker = RunMaker(store)
        maker.begin()
        maker.commit(("a", "DONE", 1.0 + number))
        maker.end(1)
    return opened


def test_a_run_of_another_store_does_not_stand_for_ones_own(stores: list[Store]) -> None:
    ours, theirs = stores
    for store in stores:
        assert Run.open("run", store).counts == {"DONE": 1}
    # A store may be moved as a whole, so its signatures do not name it.
    shutil.rmtree(Path(ours.url, "runs"))
    shutil.copytree(Path(theirs.url, "runs"), Path(ours.url, "runs"))
    with pytest.raises(SignatureError, match="signed with the key 'theirs', which this process"):
        Run.open("run", ours).counts  # noqa: B018


def test_a_segment_that_keys_of_another_store_signed_is_damaged(stores: list[Store]) -> None:
    ours, theirs = stores
    (path,) = ledger_segments(ours, "run")
    (key,) = parse_keys(THEIRS, "the test")
    forged = write_table(read_ledger(ours.read(path), path), path, key)
    ours.write(path, forged)
    assert list(read_segments(ours, [path]).damaged) == [path]
    theirs.write(path, forged)
    assert list(read_segments(theirs, [path]).tables) == [path]


def test_workers_get_the_keys_of_the_store_of_a_run(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = stores
    plugins = [SigningKeys(store, signing_keys_text(store)) for store in stores]
    assert len({plugin.name for plugin in plugins}) == 2
    assert not any("a1a1" in repr(plugin) for plugin in plugins)
    monkeypatch.setattr(signing, "_of_blocks", {})
    plugins[0].setup(None)  # type: ignore[arg-type]
    assert (signing_keys_text(ours), signing_keys_text(theirs)) == (OURS, "")
    # Those of the environment are for all stores, and come first.
    monkeypatch.setenv(signing.KEYS_VARIABLE, THEIRS)
    set_signing_keys(ours, OURS)
    assert signing_keys_text(ours) == f"{THEIRS}, {OURS}"
