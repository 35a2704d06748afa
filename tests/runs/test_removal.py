"""Removing a run: what is left of it, and that nothing of a newer run under its name is lost."""

import io
import itertools
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.errors import (
    InputError,
    IntegrityError,
    RunBusyError,
    RunFormatError,
    RunNotFoundError,
)
from partwise.flows.cli.main import main
from partwise.runs import removal, steps
from partwise.runs.contents import list_runs, write_removal
from partwise.runs.garbage import collect_garbage
from partwise.runs.ledger import LedgerRow, segment_table
from partwise.runs.outputs import rewrite_partial_files
from partwise.runs.removal import all_uses, remove_run
from partwise.runs.run import Run
from partwise.runs.verification import verify_run
from partwise.store.lease import Lease
from partwise.store.store import Store
from tests.one_shard import RUN_ID, check, drive
from tests.run_maker import RunMaker
from tests.two_drivers import copies, points

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"a": 1.0, "b": 20.0, "d": 4.0}


def left(store: Store) -> set[str]:
    """Names of the run's files, but for those of leases."""
    names = {path.removeprefix(f"runs/{RUN_ID}/") for path in store.list(f"runs/{RUN_ID}/")}
    return {name for name in names if not name.startswith("lease/")}


def test_a_removed_run_is_gone_for_all_readers(store) -> None:
    drive(store, FIRST)
    removed = remove_run(store, RUN_ID)
    assert removed.files > 4
    assert removed.size_bytes > 1000
    assert left(store) == {"run.json", "generations/0001.removed"}
    assert list_runs(store) == []
    with pytest.raises(RunNotFoundError, match=r"The run 'run' in .+ was removed"):
        Run.open(RUN_ID, store)
    with pytest.raises(RunNotFoundError, match="was removed already"):
        remove_run(store, RUN_ID)
    assert collect_garbage(store, RUN_ID, dry_run=False, grace_hours=0).files == []


def test_a_handle_that_was_opened_before_says_that_it_was_removed(local_store) -> None:
    drive(local_store, FIRST)
    run = Run.open(RUN_ID, local_store)
    remove_run(local_store, RUN_ID)
    with pytest.raises(RunNotFoundError, match="was removed meanwhile"):
        assert run.status


@pytest.mark.parametrize("name", ["#report.html#", "copy [1].txt", "r\udce9.txt"])
def test_what_somebody_left_in_its_folder_is_left_alone(local_store, name) -> None:
    drive(local_store, FIRST)
    folders = ("", "bundles", "checkpoints", "generations", "held", "ledger", "outputs", "sent")
    places = [Path(local_store.url, "runs", RUN_ID, folder, name) for folder in folders]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        place.write_text("not ours")
    check(drive(local_store, SECOND, on_existing="overwrite"), SECOND)
    assert verify_run(RUN_ID, local_store).damages == []
    assert collect_garbage(local_store, RUN_ID, dry_run=False, grace_hours=0).files
    remove_run(local_store, RUN_ID)
    assert list_runs(local_store) == []
    assert all(place.exists() for place in places)


@pytest.mark.parametrize("on_existing", ["error", "resume", "overwrite"])
def test_its_id_can_be_begun_again_and_keeps_nothing(local_store, on_existing) -> None:
    drive(local_store, FIRST)
    drive(local_store, FIRST)
    remove_run(local_store, RUN_ID)
    run = drive(local_store, FIRST, on_existing=on_existing)
    check(run, FIRST)
    assert (run.generation, run.kept, run.executed) == (3, 0, 3)
    assert verify_run(RUN_ID, local_store).damages == []
    check(drive(local_store, FIRST, on_existing="resume"), FIRST)
    assert [end.generation for end in run.refresh().complete_generations()] == [3, 4]
    with pytest.raises(RunNotFoundError, match="no generation 2; its newest is 4"):
        Run.open(RUN_ID, local_store, generation=2)
    collect_garbage(local_store, RUN_ID, dry_run=False, grace_hours=0)
    check(Run.open(RUN_ID, local_store), FIRST)
    remove_run(local_store, RUN_ID)
    assert left(local_store) == {"run.json", "generations/0002.removed", "generations/0004.removed"}


def test_what_it_was_its_id_stays(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    make_run.end(1)
    remove_run(make_run.store, "run")
    other = RunMaker(make_run.store, kind="train")
    with pytest.raises(InputError, match=r"was removed, and had the kind 'map'.*one identity"):
        other.begin()


def test_one_that_never_was_complete_is_removed_and_begun_again(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0), ("b", "DONE", 2.0))
    make_run.die()
    remove_run(make_run.store, "run")
    make_run.begin("resume")
    assert make_run.claim.compatible == ()
    make_run.commit(("a", "DONE", 3.0))
    make_run.die()
    run = make_run.open()
    assert run.counts == {"DONE": 1}
    assert run.predictions().to_pylist() == [{"key": "a", "value": 3.0}]


def test_who_works_on_it_is_not_disturbed(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    with pytest.raises(RunBusyError, match="is worked on by process"):
        remove_run(make_run.store, "run")
    make_run.end(1)
    assert make_run.open().counts == {"DONE": 1}


def test_an_interrupted_removal_is_gone_for_readers_and_the_next_one_ends_it(
    local_store, monkeypatch
) -> None:
    drive(local_store, FIRST)
    monkeypatch.setattr(removal, "AT_ONCE", 1)
    deleted = 0

    def fail(store, run_id, step) -> None:
        nonlocal deleted
        deleted += 1
        if deleted > 3:
            raise OSError("the store is gone")
        carry_out(store, run_id, step)

    carry_out = steps.carry_out
    monkeypatch.setattr(steps, "carry_out", fail)
    with pytest.raises(OSError, match="the store is gone"):
        remove_run(local_store, RUN_ID)
    monkeypatch.undo()
    assert list_runs(local_store) == []
    assert len(left(local_store)) > 2
    remove_run(local_store, RUN_ID)
    assert left(local_store) == {"run.json", "generations/0001.removed"}


def resume(store: Store) -> None:
    drive(store, SECOND, gives_rows=False)


def whole(store: Store) -> None:
    run = Run.open(RUN_ID, store)
    check(run, SECOND, gives_rows=False)
    check(drive(store, SECOND, gives_rows=False), SECOND, gives_rows=False)


EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
"""Before which operations one is stopped: a sample, and all."""


@EVERY
@pytest.mark.parametrize("before", ["complete", "never complete"])
def test_a_removal_that_was_given_up_harms_nothing(tmp_path, monkeypatch, before, every) -> None:
    monkeypatch.setattr(removal, "AT_ONCE", 2)
    numbers = itertools.count()

    def new_store() -> Store:
        return Store.parse(tmp_path / f"{next(numbers)}")

    def complete(store: Store) -> None:
        drive(store, FIRST, gives_rows=False)

    def die() -> Store:
        maker = RunMaker(new_store())
        maker.begin()
        maker.commit(("a", "DONE", 9.0))
        maker.die()
        return maker.store

    def first(store: Store) -> None:
        remove_run(store, RUN_ID)

    prepare = copies(new_store, complete) if before == "complete" else die
    tally = points(prepare, first, resume, whole, every=every)
    # The last of it, the release of the lease, comes after the second one's whole work.
    # Who is stopped before he has looked comes after the newer run, and removes that.
    assert [each for each in tally.lost if not each.startswith("1: before list_folder")] == []
    assert tally.refused > 5 / every
    assert tally.tried > 20 / every


@EVERY
def test_a_driver_that_was_given_up_does_not_bring_a_removed_run_back(tmp_path, every) -> None:
    numbers = itertools.count()

    def gone(store: Store) -> None:
        # Who is stopped before he has looked comes after the removal, and begins the run again.
        if list_runs(store):
            assert Run.open(RUN_ID, store).generation == 2
            check(Run.open(RUN_ID, store), SECOND)
        else:
            assert Run.find(RUN_ID, store).is_removed

    def new_store() -> Store:
        return Store.parse(tmp_path / f"{next(numbers)}")

    tally = points(
        copies(new_store, lambda store: drive(store, FIRST)),
        lambda store: drive(store, SECOND),
        lambda store: remove_run(store, RUN_ID),
        gone,
        every=every,
    )
    # It ends with a sentence that says so, also where it does not know of the other one's lease.
    said = [re.sub(r".*: (\w+Error): .*(removed|deleted).*", r"\1 \2", each) for each in tally.lost]
    assert set(said) <= {"RunNotFoundError removed", "StoreError deleted"}
    assert tally.refused > 3 / every


def test_who_uses_a_run_is_found(local_store) -> None:
    from dataclasses import replace

    maker = RunMaker(local_store, "models", kind="train")
    maker.begin()
    maker.commit(("a", "DONE", 1.0))
    maker.end(1)
    for name in ("used", "used-2"):
        user = RunMaker(local_store, name, kind="infer")
        user.identity = replace(user.identity, models=("run://models",))
        user.begin()
        user.commit(("a", "DONE", 1.0))
        if name == "used":
            user.end(1)
        else:
            user.die()
    other = RunMaker(local_store, "other", kind="infer")
    other.begin()
    other.die()
    uses = all_uses(local_store).of
    assert [(use.run_id, use.is_at_work) for use in uses["models"]] == [
        ("used", False),
        ("used-2", True),
    ]
    assert "used" not in uses


@pytest.mark.parametrize(
    "call",
    [
        {"arguments": {"inputs": {"x": "run://models/k/model"}}},
        {"arguments": {"trainer": {"portfolio": "models"}}},
        {"arguments": {"resume_from": "models"}},
        {"arguments": {"inference_run_id": "models"}},
        {"arguments": {"candidates": ["run://models@2"]}},
        {"arguments": {"only": "models"}},
        {"arguments": {"only": "run://models"}},
    ],
)
def test_a_call_that_names_it_is_found(call) -> None:
    assert removal._named(call) == {"models"}
    assert not removal._named({"arguments": {"columns": ["models"]}})
    assert not removal._named({"arguments": {"only": ["models"]}})


def make(store: Store, name: str) -> None:
    maker = RunMaker(store, name)
    maker.begin()
    maker.commit(("a", "DONE", 1.0))
    maker.end(1)


class TestCommand:
    @pytest.fixture(autouse=True)
    def runs(self, local_store) -> None:
        for name in ("one", "two"):
            make(local_store, name)

    def test_it_wants_a_yes(self, local_store, capsys, monkeypatch) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        words = ["runs", "rm", "one", "two", "--store", local_store.url]
        assert main(words) == 2
        assert "Deleting these 2 runs cannot be undone: say --yes." in capsys.readouterr().err
        assert list_runs(local_store) == ["one", "two"]
        assert main([*words, "--yes"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("one: 6 files, ")
        assert lines[2:] == ["one: deleted", "two: deleted"]
        assert list_runs(local_store) == []
        assert main([*words, "--yes"]) == 2
        assert "was removed already" in capsys.readouterr().err

    def test_all_are_looked_at_before_the_first_is_deleted(self, local_store, capsys) -> None:
        words = ["runs", "rm", "one", "three", "--yes", "--store", local_store.url]
        assert main(words) == 2
        assert "There is no run 'three'" in capsys.readouterr().err
        with Lease.acquire(local_store, "runs/two"):
            assert main(["runs", "rm", "one", "two", "--yes", "--store", local_store.url]) == 1
        assert "two is worked on by process" in capsys.readouterr().err
        assert list_runs(local_store) == ["one", "two"]
        assert main(["runs", "rm", "--store", local_store.url]) == 2

    def test_runs_that_cannot_be_read_are_named_as_they_may_use_it(
        self, local_store, capsys
    ) -> None:
        local_store.delete("runs/two/run.json")
        local_store.create("runs/two/run.json", b'{"format_version": 99}')
        words = ["runs", "rm", "one", "--yes", "--store", local_store.url]
        assert main(words) == 0
        assert "two cannot be read, and may use any of them" in capsys.readouterr().out
        make(local_store, "one")
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["may_be_used_by"] == ["two"]

    def test_for_programs_it_prints_an_object_for_each(self, local_store, capsys) -> None:
        assert main(["runs", "rm", "one", "--yes", "--json", "--store", local_store.url]) == 0
        record = json.loads(capsys.readouterr().out)
        assert (record["run_id"], record["files"], record["used_by"]) == ("one", 6, [])

    @pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1), ("no", 1)])
    def test_at_a_terminal_it_asks(self, local_store, answer, code) -> None:
        theirs, ours = pty.openpty()
        os.write(theirs, f"{answer}\n".encode())
        command = [sys.executable, "-m", "partwise.flows.cli.main", "runs", "rm", "one"]
        ended = subprocess.run(
            [*command, "--store", local_store.url],
            stdin=ours,
            capture_output=True,
            text=True,
            timeout=60,
        )
        os.close(theirs)
        os.close(ours)
        assert ended.returncode == code
        assert "Delete the run one? This cannot be undone. [y/N] " in ended.stderr
        assert list_runs(local_store) == (["two"] if code == 0 else ["one", "two"])


def test_a_step_of_a_removal_is_refused_by_older_releases() -> None:
    from partwise.runs.steps import Step

    content = Step(remove=3).to_bytes()
    assert Step.from_bytes(content, "here").remove == 3
    assert b'"format_version": 2' in content
    with pytest.raises(RunFormatError):
        Step.from_bytes(content.replace(b"3", b"4"), "here")


@pytest.mark.parametrize("name", ["00000-g00020123abcd-001.parquet", "made-again.parquet"])
def test_a_file_that_a_newer_run_of_the_name_has_lost_is_no_removal(local_store, name) -> None:
    """Whatever the file is called: a rewritten one has no generation in its name."""
    write_removal(local_store, RUN_ID, 1)
    rows = [
        LedgerRow(
            partition_id="a",
            shard=0,
            generation=generation,
            status="DONE",
            rows=1,
            rows_file=f"outputs/{name}",
            rows_count=1,
            rows_in_file=2,
        )
        for generation in (1, 2)
    ]
    for row, error in zip(rows, (RunNotFoundError, IntegrityError), strict=True):
        ledger = segment_table(pa.table({"key": ["a"]}), [row])
        with pytest.raises(error):
            rewrite_partial_files(local_store, RUN_ID, ledger, str)
