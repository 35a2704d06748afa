"""What somebody puts into a run who may write its store, and has no key: marks and settings."""

import re
from functools import partial

import pytest

from partwise.errors import (
    NewerFormatError,
    RunFormatError,
    RunNotFoundError,
    SignatureError,
)
from partwise.runs.contents import list_generations, list_runs
from partwise.runs.garbage import collect_garbage
from partwise.runs.portfolio import PORTFOLIO_FILE, Portfolio, read_portfolio, write_portfolio
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.runs.steps import Step
from partwise.store.lease import Lease
from partwise.store.signing import KEYS_VARIABLE
from partwise.store.store import Store
from tests.run_maker import RunMaker
from tests.signing_key import CONFIGURED_KEY as KEY

FOLDER = "runs/run"
MARK = f"{FOLDER}/generations/0001.removed"
PORTFOLIO = Portfolio(
    trainer="LightGBMTrainer",
    metric="rmse",
    settings=({}, {"learning_rate": 0.1}),
    regrets=(0.5, 0.2),
    partitions=3,
    tried=7,
)


pytestmark = pytest.mark.usefixtures("configured_key")


@pytest.fixture
def run(local_store: Store) -> Run:
    return made(local_store)


def made(store: Store, run_id: str = "run") -> Run:
    maker = RunMaker(store, run_id)
    maker.begin()
    maker.commit(("a", "DONE", 1.0), ("b", "DONE", 2.0))
    return maker.end(2)


@pytest.mark.parametrize("of", ["nobody", "another key", "another run", "another generation"])
def test_a_removal_that_nobody_signed_does_not_count(
    run: Run, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, content = run.store, b"removed\n"
    if of == "another key":
        monkeypatch.setenv(KEYS_VARIABLE, f"2025:{'c3' * 32}")
        remove_run(made(store, "other").store, "other")
    elif of != "nobody":
        made(store, "other")
        remove_run(store, "other")
    if of != "nobody":
        content = store.read("runs/other/generations/0001.removed")
    monkeypatch.setenv(KEYS_VARIABLE, KEY)
    mark = MARK.replace("0001", "0007") if of == "another generation" else MARK
    store.create(mark, content)
    assert "run" in list_runs(store)
    assert Run.open("run", store).counts == {"DONE": 2}
    assert list_generations(store, "run").begun == 1
    # Who has no keys believes all, and who removes the run signs in its place.
    assert list_generations(store, "run", is_signed=False).is_removed
    remove_run(store, "run")
    with pytest.raises(RunNotFoundError, match="was removed"):
        Run.open("run", store)


def test_a_removal_that_was_signed_counts_with_and_without_keys(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_run(run.store, "run")
    assert run.store.read(MARK).startswith(b"removed\nhmac-sha256:2025:")
    assert list_runs(run.store) == []
    monkeypatch.delenv(KEYS_VARIABLE)
    assert list_runs(run.store) == []


def forge_step(store: Store, step: Step) -> str:
    """Leave a step as an owner would that is known to be dead; its checksum is right."""
    with Lease.acquire(store, FOLDER):
        pass
    claim = max(name for name in store.list_folder(f"{FOLDER}/lease") if name.endswith(".json"))
    number = claim.removesuffix(".json")
    store.delete(f"{FOLDER}/lease/{number}.released")
    path = f"{FOLDER}/lease/{number}.step-0001"
    store.create(path, step.to_bytes())
    return path


def test_a_step_that_nobody_signed_deletes_nothing_and_is_named(run: Run) -> None:
    store = run.store
    before = store.list(f"{FOLDER}/bundles/")
    path = forge_step(store, Step(delete=tuple(p.removeprefix(f"{FOLDER}/") for p in before)))
    for work in (partial(collect_garbage, dry_run=False), remove_run):
        with pytest.raises(SignatureError, match=re.escape(path)) as refused:
            work(store, "run")
        assert "is not signed" in str(refused.value)
        assert "Delete it if no process of yours was stopped" in str(refused.value)
    assert store.list(f"{FOLDER}/bundles/") == before
    store.delete(path)
    collect_garbage(store, "run", dry_run=False)
    assert Run.open("run", store).counts == {"DONE": 2}


@pytest.mark.parametrize("name", ["../other/run.json", "/etc/passwd", "a\0b", ""])
def test_a_step_that_leads_out_of_the_run_is_named(
    local_store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEYS_VARIABLE)
    made(local_store)
    made(local_store, "other")
    path = forge_step(local_store, Step(delete=(name,)))
    with pytest.raises(RunFormatError, match=re.escape(path)):
        collect_garbage(local_store, "run", dry_run=False)
    assert local_store.exists("runs/other/run.json")


def test_a_step_of_ones_own_is_carried_out_by_the_next(run: Run) -> None:
    store = run.store
    store.create(f"{FOLDER}/outputs/old", b"old")
    with Lease.acquire(store, FOLDER) as lease:
        lease.announce(Step(delete=("outputs/old",)).to_bytes(lease.next_step, store))
        number = f"{lease._number:04d}"
    store.delete(f"{FOLDER}/lease/{number}.released")
    collect_garbage(store, "run", dry_run=False)
    assert not store.exists(f"{FOLDER}/outputs/old")


def test_a_portfolio_of_a_newer_release_is_refused_and_not_misread(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEYS_VARIABLE)
    newer = PORTFOLIO.model_copy(update={"format_version": 2})
    write_portfolio(run.store, run.run_id, newer)
    with pytest.raises(NewerFormatError, match=r"portfolio\.json has format version 2, .* newer"):
        read_portfolio(run.store, run.run_id)


def test_a_portfolio_is_signed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{FOLDER}/{PORTFOLIO_FILE}"
    write_portfolio(run.store, run.run_id, PORTFOLIO)
    assert read_portfolio(run.store, run.run_id) == PORTFOLIO
    run.store.write(path, run.store.read(path).replace(b"0.1", b"9.1"))
    with pytest.raises(SignatureError, match=r"portfolio\.json was changed after it was signed"):
        read_portfolio(run.store, run.run_id)
    monkeypatch.delenv(KEYS_VARIABLE)
    write_portfolio(run.store, run.run_id, PORTFOLIO)
    assert b"sha256" not in run.store.read(path)
    assert read_portfolio(run.store, run.run_id) == PORTFOLIO
    monkeypatch.setenv(KEYS_VARIABLE, KEY)
    with pytest.raises(SignatureError, match="is not signed"):
        read_portfolio(run.store, run.run_id)
