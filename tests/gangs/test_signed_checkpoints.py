"""Checkpoints, where signing keys are configured: only those count that this run's gangs kept."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from partwise.errors import IntegrityError, SignatureError
from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.gangs.resume_point import ResumePoint, newest_checkpoint, resume_point
from partwise.runs.checkpoints import DOCUMENT, CheckpointDocument, signing_scope
from partwise.runs.documents import sha256_of
from partwise.store import signing
from partwise.store.signing import KEYS_VARIABLE, given_key, parse_keys, seal
from partwise.store.store import Store
from tests.signing_key import CONFIGURED_KEY as OLD

NEW = f"2026:{'b2' * 32}"
RUN = "forecast"


pytestmark = pytest.mark.usefixtures("configured_key")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.parse(tmp_path / "store")


def root_of(run_id: str) -> str:
    return f"runs/{run_id}/checkpoints"


def of_attempt(
    store: Store,
    attempt: int = 1,
    generation: int = 1,
    point: ResumePoint | None = None,
    *,
    run_id: str = RUN,
    is_signed: bool = True,
) -> StoreCheckpoints:
    """Return what a rank has: the key of its attempt, as its node derives it."""
    point, root = point or ResumePoint(), root_of(run_id)
    directory = Path(store.url).parent / f"rank-{os.urandom(4).hex()}"
    directory.mkdir()
    return StoreCheckpoints(
        store,
        root,
        run_id=run_id,
        generation=generation,
        attempt=attempt,
        directory=directory,
        resume_from=point.place,
        resume_sha256=point.sha256,
        key=given_key(store).derived(signing_scope(root, generation, attempt))
        if is_signed
        else None,
    )


def keep(store: Store, text: str, **of: object) -> str:
    """Keep a checkpoint, and return its folder."""
    before = set(store.list_folder(root_of(str(of.get("run_id", RUN)))))
    of_attempt(store, **of).save(lambda to: (to / "state").write_text(text), step=1)  # type: ignore[arg-type]
    (name,) = set(store.list_folder(root_of(str(of.get("run_id", RUN))))) - before
    return f"{root_of(str(of.get('run_id', RUN)))}/{name}"


def resumed(store: Store, generations: tuple[int, ...] = (1,)) -> str | None:
    point = resume_point(store, RUN, generations)
    folder = of_attempt(store, attempt=9, point=point).resume_from()
    return None if folder is None else (folder / "state").read_text()


def forge(store: Store, folder: str, text: str) -> None:
    """Change a checkpoint, and all checksums to suit, as whoever writes the store can."""
    content = text.encode()
    store.write(f"{folder}/00000", content)
    members = json.loads(store.read(f"{folder}/{DOCUMENT}"))
    members["files"][0]["parts"][0] |= {"size_bytes": len(content), "sha256": sha256_of(content)}
    signature = members.pop("signature", None)
    members.pop("sha256", None)
    body = seal(json.dumps(members, indent=2).encode() + b"\n")
    if signature is not None:
        body = body.removesuffix(b"\n}\n") + f',\n  "signature": "{signature}"\n}}\n'.encode()
    store.write(f"{folder}/{DOCUMENT}", body)


def test_a_forged_one_is_passed_over_and_the_one_before_counts(store: Store) -> None:
    keep(store, "60")
    newer = keep(store, "70", attempt=2)
    assert resumed(store) == "70"
    forge(store, newer, "-664")
    assert resumed(store) == "60"
    (why,) = resume_point(store, RUN, (1,)).refused
    assert why.startswith(f"{newer}/{DOCUMENT} was changed after it was signed with the key '2025'")


def test_ones_kept_without_keys_do_not_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE)
    folder = keep(store, "60", is_signed=False)
    assert b"sha256-" not in store.read(f"{folder}/{DOCUMENT}")
    assert resume_point(store, RUN, (1,)) == ResumePoint(place=folder)
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    found = resume_point(store, RUN, (1,))
    assert found.place == ""
    assert "is not signed, and this process was given signing keys" in found.refused[0]
    with pytest.raises(SignatureError, match=r"resume_from='forecast': .* is not signed"):
        resume_point(store, "another", (1,), RUN)


MOVES: dict[str, Callable[[str], str]] = {
    "another run": lambda folder: folder.replace(RUN, "another"),
    "another generation": lambda folder: folder.replace("/0001-", "/0002-"),
    "another attempt": lambda folder: folder.replace("-01-", "-02-"),
    "a later one": lambda folder: folder.replace("-000001-", "-000002-"),
    "another token": lambda folder: folder[:-8] + "deadbeef",
}


@pytest.mark.parametrize("move", MOVES)
def test_no_checkpoint_can_stand_for_another(store: Store, move: str) -> None:
    folder = keep(store, "60")
    target = MOVES[move](folder)
    assert target != folder
    for name in store.list_folder(folder):
        store.move(f"{folder}/{name}", f"{target}/{name}")
    found = newest_checkpoint(store, target.split("/")[1], ())
    assert found.place == ""
    assert "belongs elsewhere" in found.refused[0]


def test_the_key_of_an_attempt_signs_nothing_else(store: Store) -> None:
    root = root_of(RUN)
    key = given_key(store).derived(signing_scope(root, 1, 1))
    (again,) = parse_keys(key.to_text(), "the test")
    assert again == key
    assert key.secret != given_key(store).secret
    path = f"{root}/0001-02-000001-00000000/{DOCUMENT}"
    document = CheckpointDocument(step=1, files=()).to_bytes(path, key)
    store.write(path, document)
    assert "changed after it was signed" in newest_checkpoint(store, RUN, ()).refused[0]
    for purpose in (path, f"runs/{RUN}/generations/0001.json"):
        with pytest.raises(SignatureError, match="changed after it was signed"):
            signing.check_signed(seal(b'{\n  "x": 1\n}\n', purpose, key), purpose, purpose, store)


def test_what_is_changed_behind_the_drivers_look_is_refused_by_ranks(store: Store) -> None:
    folder = keep(store, "60")
    point = resume_point(store, RUN, (1,))
    forge(store, folder, "-664")
    rank = of_attempt(store, attempt=2, point=point)
    with pytest.raises(IntegrityError, match=re.escape("was changed since the driver saw")):
        rank.resume_from()


def test_a_key_is_replaced_by_two_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, "60")
    monkeypatch.setenv(KEYS_VARIABLE, f"{NEW}, {OLD}")
    assert resumed(store) == "60"
    monkeypatch.setenv(KEYS_VARIABLE, NEW)
    assert resumed(store) is None
    monkeypatch.delenv(KEYS_VARIABLE)
    assert resume_point(store, RUN, (1,)).place
