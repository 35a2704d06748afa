"""Files of a run that somebody changes who has no key: none is taken for what it was."""

import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_platform
from typing import Any

import pytest

from partwise.environments import building
from partwise.environments.building import open_environment
from partwise.environments.cache import (
    BuiltDocument,
    environments_folder,
    list_environments,
    read_document,
    write_document,
)
from partwise.environments.resolution import ResolvedEnvironment, python_version
from partwise.errors import PartwiseError
from partwise.gangs.checkpoints import StoreCheckpoints, upload_files
from partwise.gangs.folder_files import files_below
from partwise.gangs.resume_point import resume_point
from partwise.runs.checkpoints import signing_scope
from partwise.runs.contents import list_generations
from partwise.runs.portfolio import Portfolio, read_portfolio, write_portfolio
from partwise.runs.run import Run
from partwise.runs.sent_files import read_sent, sent_folder, write_sent
from partwise.scripts.inputs import UploadedPath
from partwise.scripts.snapshot import take_snapshot, unpack_snapshot
from partwise.shuffle.shard_cache import SCRATCH_VARIABLE
from partwise.store.signing import given_key
from partwise.store.store import Store
from tests.run_maker import RunMaker

FOLDER = "runs/run"
ROOT = f"{FOLDER}/checkpoints"
NOBODY = 65534
PORTFOLIO = Portfolio(
    trainer="LightGBMTrainer",
    metric="rmse",
    settings=({}, {"learning_rate": 0.1}),
    regrets=(0.5, 0.2),
    partitions=3,
    tried=7,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A kind of files, and what a reader makes of them."""

    paths: tuple[str, ...]
    read: Callable[[], Any]
    right: tuple[Any, ...]
    """What it may be: what was written, and what counts where that does not."""


@pytest.fixture
def run(configured_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))
    maker = RunMaker(Store.parse(tmp_path / "store"))
    maker.begin()
    maker.commit(("a", "DONE", 1.0), ("b", "DONE", 2.0))
    return maker.end(2)


def targets(run: Run, folder: Path) -> dict[str, Target]:
    """Write a file of each kind, and return how it is read."""
    store = run.store
    key = given_key(store).derived(signing_scope(ROOT, 2, 1))

    def rank() -> StoreCheckpoints:
        point = resume_point(store, "run", (2,))
        return StoreCheckpoints(
            store,
            ROOT,
            run_id="run",
            generation=2,
            attempt=1,
            directory=Path(tempfile.mkdtemp(dir=folder)),
            resume_from=point.place,
            resume_sha256=point.sha256,
            key=key,
        )

    def resumed() -> str | None:
        found = rank().resume_from()
        return None if found is None else files_of(found)

    keeper = rank()
    for step in (1, 2):
        keeper.save(lambda to, step=step: (to / "state").write_text(f"state {step}"), step=step)
    source = folder / "source"
    source.mkdir()
    (source / "main.py").write_text("print(60)\n" * 20)
    taken = take_snapshot(source)
    snapshot = f"{FOLDER}/{taken.name}"
    store.create(snapshot, taken.content)
    found = list(files_below(source, keep_links=True))
    sent = upload_files(store, sent_folder("run"), found, "12345678-")
    name = write_sent(store, "run", "12345678", sent)
    write_portfolio(run.store, run.run_id, PORTFOLIO)

    def unpacked() -> str:
        to = Path(tempfile.mkdtemp(dir=folder), "to")
        unpack_snapshot(store.read(snapshot), taken.name, to)
        return files_of(to)

    def brought() -> str:
        to = Path(tempfile.mkdtemp(dir=folder))
        files = read_sent(store, "run", name)
        place = sent_folder("run")
        UploadedPath(path="source", is_file=False, source=place, files=files).bring("x", to, store)
        return files_of(to)

    return {
        "checkpoints": Target(
            paths=tuple(store.list(f"{ROOT}/")),
            read=resumed,
            right=("state:state 2", "state:state 1", None),
        ),
        "snapshots": Target(paths=(snapshot,), read=unpacked, right=(unpacked(),)),
        "sent files": Target(
            paths=tuple(store.list(f"{sent_folder('run')}/")), read=brought, right=(brought(),)
        ),
        "portfolios": Target(
            paths=(f"{FOLDER}/portfolio.json",),
            read=lambda: read_portfolio(run.store, run.run_id),
            right=(PORTFOLIO,),
        ),
        "marks": Target(
            paths=tuple(f"{FOLDER}/generations/000{n}.removed" for n in (1, 2, 7)),
            read=lambda: (list_generations(store, "run").removed, Run.open("run", store).counts),
            right=((-1, {"DONE": 2}),),
        ),
        "documents": Target(
            paths=tuple(store.list(f"{FOLDER}/generations/")),
            read=lambda: (Run.open("run", store).counts, run.refresh().generation),
            right=(({"DONE": 2}, 1),),
        ),
    }


def environment(patch: pytest.MonkeyPatch) -> Target:
    """Build an environment, and return how it is opened: one that does not count is built again."""
    resolved = ResolvedEnvironment(
        name="mine", pins=("shop==1.0",), python=python_version(), platform=get_platform()
    )

    def build(_: ResolvedEnvironment, tree: Path, __: int) -> None:
        (tree / "bin").mkdir(parents=True)
        (tree / "bin" / "python").symlink_to(sys.executable)
        (tree / "lib" / "python3.11" / "site-packages").mkdir(parents=True)

    patch.setattr(building, "_build_with_uv", build)

    def opened() -> tuple[str, str]:
        with open_environment(resolved) as built:
            assert len(list_environments()) == 1
            return built.python, built.site_packages

    right = opened()
    (entry,) = (each for each in environments_folder().iterdir() if each.is_dir())
    assert Path(right[0]).parent == entry / "env" / "bin"
    assert Path(right[1]).is_relative_to(entry / "env")
    return Target(paths=(str(entry / "complete.json"),), read=opened, right=(right,))


def files_of(folder: Path) -> str:
    return ",".join(f"{each.name}:{each.read_text()}" for each in sorted(folder.iterdir()))


def changed(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Return a file as somebody would change it: in any byte, or knowing what it says."""
    how = chance.randrange(5)
    if how == 0 or not content:
        return chance.choice([b"", b"removed\n", *others])
    if how == 1:
        return content[: chance.randrange(len(content))]
    if how == 2 and content.startswith(b"{"):
        return forged(content, chance)
    place = chance.randrange(len(content))
    return (
        content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
    )


def forged(content: bytes, chance: random.Random) -> bytes:
    """Return a document with one value changed, and its checksum to suit."""
    members = json.loads(content)
    signature = members.pop("signature", None)
    members.pop("sha256", None)
    place = chance.choice([*sorted(members), "python", "site_packages"])
    members[place] = chance.choice([0, 1, "x", [], {}, None, -664, "/tmp/theirs"])
    body = json.dumps(members, indent=2).encode().removesuffix(b"\n}")
    body += f',\n  "sha256": "{hashlib.sha256(body).hexdigest()}"'.encode()
    kept = f',\n  "signature": "{signature}"' if signature and chance.random() < 0.5 else ""
    return body + kept.encode() + b"\n}\n"


@pytest.mark.parametrize(("seed", "count"), [(1, 60), pytest.param(2, 500, marks=pytest.mark.slow)])
def test_nothing_that_was_changed_without_a_key_is_accepted(
    run: Run, tmp_path: Path, seed: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, kinds = random.Random(seed), targets(run, tmp_path)
    kinds["environments"] = environment(monkeypatch)
    assert all(kind.read() in kind.right for kind in kinds.values())
    others = [
        Path(run.store.url, path).read_bytes()
        for k in kinds.values()
        for path in k.paths[:1]
        if Path(run.store.url, path).exists()
    ]
    accepted, refused = [], 0
    for number in range(count):
        kind = chance.choice(sorted(kinds))
        path = Path(run.store.url, chance.choice(kinds[kind].paths))
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(after := changed(before or b"", others, chance))
        try:
            if kinds[kind].read() not in kinds[kind].right:
                accepted.append((number, kind, path.name, after[:80]))
        except PartwiseError:
            refused += 1
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
    assert accepted == []
    assert refused > count / 5
    assert all(kind.read() in kind.right for kind in kinds.values())


@pytest.mark.skipif(os.getuid() != 0, reason="files of other users are made by root")
@pytest.mark.parametrize("seed", range(10))
def test_no_environment_that_another_user_made_is_accepted(run: Run, seed: int) -> None:
    chance = random.Random(seed)
    entry = environments_folder() / "1234"
    entry.mkdir()
    built = BuiltDocument(
        name="theirs",
        packages={},
        size_bytes=1,
        built_at="2026-11-25T00:00:00+00:00",
        seconds=1.0,
    )
    write_document(entry, built)
    theirs = chance.choice([entry, entry / "complete.json", entry.parent])
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(PartwiseError, match="was made by another user"):
        read_document(environments_folder() / "1234")
