"""Inferences that ask earlier runs and are overwritten, in histories that chance wrote.

A run uses the same others for ever, so an overwrite either asks those that stand in its document,
in their places, or is refused as it is claimed. Where it goes on, each key has the very model that
a new run would give it; where it is refused, some key would not.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from partwise.calls.partitions import InferCall
from partwise.errors import RunNotFoundError
from partwise.planning import previous_runs
from partwise.planning.models import UsedModels
from partwise.runs.stored_models import ModelSet

FIRST, OWN = "n-9", "used"
ALIKE = ("n-1", "n-2", "n-3", "n-4")
KEYS = "abcd"
FOUND = (6183,)
"""Histories beyond the others by which something was found."""


@dataclass
class World:
    """Runs with the keys that they have models of, those that did something last at the end."""

    runs: dict[str, frozenset[str]]
    fallback: Sequence[str] = ()
    """What the call names besides, which it cannot do without."""
    models: tuple[str, ...] = ()
    """Those that the inference uses, as its document says; none: there is none."""
    left: list[str] = field(default_factory=list)
    """What happened, for who reads a failure."""

    def open(self, run_id: str, *_: object) -> Any:
        if run_id == OWN and self.models:
            return SimpleNamespace(run_id=OWN, document=SimpleNamespace(models=self.models))
        if run_id not in self.runs:
            raise RunNotFoundError(f"no {run_id}")
        return SimpleNamespace(run_id=run_id)

    def earlier(self, run: Any, most: int) -> list[Any]:
        names = list(self.runs)
        before = names[: names.index(run.run_id)]
        there = [name for name in reversed(before) if name in ALIKE and self.runs[name]]
        return [SimpleNamespace(run_id=name, store=None) for name in there[:most]]

    def open_models(self, name: str, *_: object) -> ModelSet:
        run_id = name.removeprefix("run://")
        self.open(run_id)
        return models_of(f"run://{run_id}", self.runs[run_id])

    def change(self, chance: random.Random) -> None:
        """Have something happen to one of the runs."""
        name = chance.choice([*self.runs])
        what = chance.choice(("gains", "loses", "is removed", "is trained again", "another"))
        key = chance.choice(KEYS)
        match what:
            case "gains":
                self.runs[name] |= {key}
            case "loses":
                self.runs[name] -= {key}
            case "is removed" if f"run://{name}" not in (f"run://{FIRST}", *self.fallback):
                del self.runs[name]
            case "is trained again":
                self.runs[name] = self.runs.pop(name)
            case "another":
                name = chance.choice(ALIKE)
                self.runs[name] = self.runs.pop(name, frozenset()) | {key}
        self.left.append(f"{name} {what} {key}")

    def planned(self) -> UsedModels:
        """What the call asks now: that of the inference, where there is one."""
        action = "overwrite" if self.models else "error"
        call = InferCall(
            pa.table({"key": ["a"]}),
            "key",
            FIRST,
            run_id=OWN,
            on_missing_model="previous",
            on_existing_artifacts=action,
        )
        sets = [*map(self.open_models, (f"run://{FIRST}", *self.fallback))]
        used = UsedModels(sets=tuple(sets), fallback=None, recipe=None, reader=None)
        store: Any = None
        return previous_runs.with_previous_models(used, call, store)[0]


def models_of(name: str, keys: Sequence[str] | frozenset[str]) -> ModelSet:
    hashes = pa.array(sorted(map(ord, keys)), pa.uint64())
    return ModelSet(name=name, key_columns=(), models=pa.table({"hash": hashes}))


def answers(sets: Sequence[ModelSet]) -> dict[str, str]:
    """Which run has the model of each key: the first that has one."""
    found: dict[str, str] = {}
    for models in sets:
        for each in models.models["hash"].to_pylist():
            found.setdefault(chr(each), models.name)
    return found


def names_of(used: UsedModels) -> tuple[str, ...]:
    return tuple(models.name for models in used.sets)


def use(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previous_runs, "Run", SimpleNamespace(open=world.open))
    monkeypatch.setattr(previous_runs, "earlier_runs", world.earlier)
    monkeypatch.setattr(previous_runs, "open_models", world.open_models)
    monkeypatch.setattr(
        previous_runs, "written_arguments", lambda *_: {"on_missing_model": "previous"}
    )


def test_an_overwrite_gives_each_key_the_model_that_a_new_run_would(monkeypatch) -> None:
    went_on = refused = 0
    for seed in (*range(700), *FOUND):
        chance = random.Random(seed)
        some = [name for name in ("n-1", "n-2", "other") if chance.random() < 0.7]
        runs = {name: frozenset(key for key in KEYS if chance.random() < 0.4) for name in some}
        fallback = chance.sample([f"run://{name}" for name in some], chance.randint(0, len(some)))
        own = frozenset(key for key in KEYS if chance.random() < 0.5)
        world = World({**runs, FIRST: own}, fallback)
        use(world, monkeypatch)
        world.models = names_of(world.planned())
        began = {name: set(keys) for name, keys in world.runs.items()}
        for _ in range(chance.randint(0, 4)):
            world.change(chance)
        told = f"seed {seed}: {began}, {fallback}, {world.models}, then {world.left}: {world.runs}"
        found = world.planned()
        document, world.models = world.models, ()
        new = world.planned()
        world.models = document
        if names_of(found) == document:
            went_on += 1
            assert answers(found.sets) == answers(new.sets), told
            assert names_of(world.planned()) == document, told
        else:
            refused += 1
            assert must_be_refused(world, document, new), told
            assert world.left, told
    assert min(went_on, refused) > 40


def must_be_refused(world: World, document: Sequence[str], new: UsedModels) -> bool:
    """Whether a new run asks others, or in another order, or would give a key another model."""
    asked = names_of(new)
    if [name for name in document if name in asked] != [*asked]:
        return True
    # Asked as an earlier run once, and worked since, so that it is asked as the call names it.
    order = [f"run://{name}" for name in world.runs]
    if set(order[order.index(f"run://{FIRST}") + 1 :]) & set(world.fallback):
        return True
    there = [models_of(name, world.runs.get(name[6:], frozenset())) for name in document]
    return answers(there) != answers(new.sets)
