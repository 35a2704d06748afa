"""Workers sign what they commit, with keys that only the caller's store block has."""

from pathlib import Path

import pyarrow as pa
import pytest

from partwise.blocks import StoreBlock
from partwise.flows import map_partitions, tune_model
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Result
from partwise.runs.contents import ledger_segments
from partwise.runs.ledger import read_ledger, write_table
from partwise.runs.own_checksums import SIGNATURE
from partwise.runs.run import Run
from partwise.store import signing
from partwise.store.signing import KEYS_VARIABLE, STATE_VARIABLE

KEY = f"2026:{'b2' * 32}"


def count(data, context):
    context.upload("counted", "note.txt")
    return data.to_arrow()


def read_of_plain(data, context):
    assert context.download("note.txt", run_id="plain") == "counted"


def keep_note(data, context):
    context.upload("kept", "note.txt")
    return Result(context.params["x"], metrics={"loss": 1.0})


def read_note(data, context):
    assert context.download("note.txt", run_id="first") == "kept"
    return Result(context.params["x"], metrics={"loss": 1.0})


def table(last: int) -> pa.Table:
    return pa.table({"key": ["a", "b", "c", "d"], "value": [1, 2, 3, last]})


def test_workers_sign_what_they_commit_and_believe_what_they_signed(
    cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "_of_blocks", {})
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    block = StoreBlock(url=str(tmp_path / "store"), signing_keys=KEY)

    def call(last: int, store: StoreBlock | Path = block, run_id: str = "signed") -> Run:
        return map_partitions(
            table(last),
            "key",
            count,
            run_id=run_id,
            store=store,
            cluster=cluster,
            on_existing_artifacts="resume",
        )

    store = call(1).store
    segments = ledger_segments(store, "signed")
    assert all(SIGNATURE in store.read(path) for path in segments)
    assert call(2).summary.kept == 3
    # Somebody who can write the store, and has no key, takes each signature away.
    for path in ledger_segments(store, "signed"):
        store.write(path, write_table(read_ledger(store.read(path), path)))
    changed = call(3)
    assert (changed.summary.kept, changed.counts) == (0, {"DONE": 4})
    # What the workers still have is not used for a caller without keys.
    monkeypatch.setattr(signing, "_of_blocks", {})
    plain = call(1, tmp_path / "other", "plain").store
    assert not any(SIGNATURE in plain.read(path) for path in ledger_segments(plain, "plain"))
    # Nor are what others signed, and what nobody signed, refused for it.
    given = {"run_id": "reads", "store": tmp_path / "other", "cluster": cluster}
    assert map_partitions(table(1), "key", read_of_plain, **given).counts == {"DONE": 4}
    # A trial reads what it asks for of a rank or trial of its number.
    study = {"store": tmp_path / "other", "cluster": cluster, "metric": "loss", "trials": 1}
    study |= {"serde": PickleSerde(), "space": {"x": [0.5]}}
    assert tune_model(table(1), keep_note, run_id="first", **study).counts == {"DONE": 1}
    assert tune_model(table(1), read_note, run_id="second", **study).counts == {"DONE": 1}
