"""Damage to the files of a run and a dataset: bits, ends, stretches, exchanges, deletions.

`corruption_trials(seed, count)` makes a run of three generations and a dataset, does one damage at
a time, and reads all of it as a user does. Each damage has to be refused with a typed error, or to
change nothing of what is read. Whoever calls it configures a signing key: without one nothing
tells a run whose newest summary was deleted from one that is at work.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise.datasets.dataset import Dataset
from partwise.datasets.registration import register_dataset
from partwise.datasets.verification import verify_dataset
from partwise.errors import PartwiseError
from partwise.runs.run import Run
from partwise.runs.verification import verify_run
from partwise.store.store import Store
from tests.run_maker import RunMaker

TABLE = pa.table({"key": ["a", "b", "c"] * 20, "value": [float(i) for i in range(60)]})
KEYS = "abcdef"


@dataclass
class CorruptionTrials:
    """What came of the trials."""

    refused: int = 0
    """Damages that were found before anything was made of them."""
    harmless: int = 0
    """Those that changed nothing of what is read."""
    wrong: list[str] = field(default_factory=list)
    """Those by which something else was read, or that raised an error of no known type."""
    not_verified: list[str] = field(default_factory=list)
    """Those that readers refused, and verification did not find."""
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many there were."""
        return self.refused + self.harmless + len(self.wrong)


def make_store(folder: Path) -> Store:
    """Make a run of three generations, and a dataset of two versions."""
    store = Store.parse(folder)
    maker = RunMaker(store)
    for number in range(3):
        maker.begin("overwrite")
        for first in (0, 3):
            keys = KEYS[first : first + 3]
            maker.commit(*((key, "DONE", number + place / 7) for place, key in enumerate(keys)))
        maker.end(len(KEYS))
    register_dataset("sales", TABLE, store=store)
    register_dataset("sales", TABLE.slice(7), store=store)
    return store


def read_all(store: Store) -> dict[str, Any]:
    """Read what a user reads of the run and the dataset."""
    run = Run.open("run", store)
    return {
        "status": run.status,
        "counts": run.counts,
        "partitions": run.partitions.to_pylist(),
        "models": {key: run.artifact(key, "note.txt") for key in KEYS},
        "predictions": run.predictions().to_pylist(),
        "calls": [
            run.read_generation_document(number).model_dump() for number in (1, 2, run.generation)
        ],
        **{
            f"sales {number}": [
                row
                for batch in Dataset.open("sales", number, store).source().batches()
                for row in batch.to_pylist()
            ]
            for number in (1, 2)
        },
    }


def _flip(chance: random.Random, path: Path, _others: list[Path]) -> None:
    content = bytearray(path.read_bytes())
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def _cut(chance: random.Random, path: Path, _others: list[Path]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def _zero(chance: random.Random, path: Path, _others: list[Path]) -> None:
    content = bytearray(path.read_bytes())
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.choice([1, 16, 512, 4096]))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def _exchange(chance: random.Random, path: Path, others: list[Path]) -> None:
    alike = [other for other in others if other.suffixes == path.suffixes and other != path]
    other = chance.choice(alike or others)
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def _delete(_chance: random.Random, path: Path, _others: list[Path]) -> None:
    path.unlink()


DAMAGES: dict[str, Callable[[random.Random, Path, list[Path]], None]] = {
    "flip": _flip,
    "cut": _cut,
    "zero": _zero,
    "exchange": _exchange,
    "delete": _delete,
}


def corruption_trials(seed: int, count: int, folder: Path) -> CorruptionTrials:
    """Damage a store in so many ways, one at a time, and read it after each.

    Args:
        seed: Of the chance by which damages are drawn.
        count: How many.
        folder: An empty one, for the store and its copies.
    """
    chance = random.Random(seed)
    whole = folder / "whole"
    store = make_store(whole)
    expected = read_all(store)
    shutil.copytree(whole, folder / "kept")
    trials = CorruptionTrials()
    for number in range(count):
        # At the very place of the store, so that the newest generation seen there is remembered.
        copy = folder / "whole"
        shutil.rmtree(copy)
        shutil.copytree(folder / "kept", copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file() and not _is_lease(path))
        path, kind = chance.choice(files), chance.choice([*DAMAGES, "flip", "flip"])
        before = path.read_bytes()
        DAMAGES[kind](chance, path, files)
        what = f"{number}: {kind} of {path.relative_to(copy)}"
        trials.kinds[kind] += 1
        if path.exists() and path.read_bytes() == before:
            trials.harmless += 1
        else:
            _try(store, expected, what, trials)
    return trials


def _is_lease(path: Path) -> bool:
    """Leases say who works on a run, and nothing of what is in it."""
    return path.parent.name == "lease"


def _try(store: Store, expected: dict[str, Any], what: str, trials: CorruptionTrials) -> None:
    try:
        found = read_all(store)
    except PartwiseError:
        trials.refused += 1
        verified = []
        for verify in (lambda: verify_run("run", store), lambda: verify_dataset("sales", store)):
            try:
                verified += verify().damages
            except PartwiseError as error:
                verified.append(str(error))
        if not verified:
            trials.not_verified.append(what)
    except Exception as error:
        trials.wrong.append(f"{what}: {type(error).__name__}: {error}")
    else:
        if found == expected:
            trials.harmless += 1
        else:
            differs = [name for name in expected if found[name] != expected[name]]
            trials.wrong.append(f"{what}: {', '.join(differs)} differs")
