"""Checkpoints: only whole ones count, the newest wins, and damage is seen."""

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from partwise.errors import InputError, IntegrityError, RunBusyError, RunFormatError
from partwise.gangs import checkpoints
from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.gangs.resume_point import newest_checkpoint, resume_point
from partwise.ranks.context import RankContext
from partwise.runs.documents import generation_file, run_path
from partwise.store.store import Store

RUN = "forecast"


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.parse(tmp_path / "store")


class Attempts:
    """One attempt after the other, as the driver starts them."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.started = 0

    def start(
        self,
        attempt: int = 1,
        generation: int = 1,
        resumable: tuple[int, ...] = (),
        given: str = "",
    ) -> StoreCheckpoints:
        self.started += 1
        directory = self.folder / f"rank-{self.started}"
        directory.mkdir()
        point = resume_point(self.store, RUN, (*resumable, generation), given)
        return StoreCheckpoints(
            self.store,
            f"runs/{RUN}/checkpoints",
            run_id=RUN,
            generation=generation,
            attempt=attempt,
            directory=directory,
            resume_from=point.place,
            resume_sha256=point.sha256,
        )


@pytest.fixture
def attempts(store, tmp_path) -> Attempts:
    return Attempts(store, tmp_path)


def writing(text: str):
    """Return what writes a file of this text, one in a folder, and an empty one."""

    def write(folder: Path) -> None:
        (folder / "state.txt").write_text(text)
        (folder / "optimizer").mkdir()
        (folder / "optimizer" / "momentum.txt").write_text(text * 2)
        (folder / "nothing.txt").touch()

    return write


def content(folder: Path | None) -> str | None:
    if folder is None:
        return None
    text = (folder / "state.txt").read_text()
    assert (folder / "optimizer" / "momentum.txt").read_text() == text * 2
    assert (folder / "nothing.txt").read_bytes() == b""
    return text


def names(store: Store) -> list[str]:
    return store.list_folder(f"runs/{RUN}/checkpoints")


def test_a_later_attempt_goes_on_from_the_newest(attempts):
    first = attempts.start()
    assert first.resume_from() is None
    for step in (10, 9, 30):
        first.save(writing(f"step {step}"), step=step)
    second = attempts.start(attempt=2)
    assert content(second.resume_from()) == "step 30"
    assert second.resume_from() == second.resume_from()
    second.save(writing("of attempt 2"), step=1)
    assert content(attempts.start(attempt=3).resume_from()) == "of attempt 2"
    assert content(attempts.start(attempt=11, generation=2, resumable=(1,)).resume_from()) == (
        "of attempt 2"
    )


def test_a_generation_of_other_code_or_rows_starts_afresh(attempts, store):
    attempts.start().save(writing("old code"), step=500)
    attempts.start(generation=2).save(writing("new code"), step=1)
    attempts.start(generation=3).save(writing("rows changed"), step=1)
    assert attempts.start(generation=4).resume_from() is None
    assert content(attempts.start(generation=4, resumable=(1, 2)).resume_from()) == "new code"


def test_an_attempt_never_sees_its_own(attempts):
    attempt = attempts.start()
    attempt.save(writing("mine"), step=1)
    assert attempt.resume_from() is None


def test_the_last_two_are_kept_over_attempts_and_generations(attempts, store):
    for generation in (1, 2):
        for attempt in (1, 2, 10):
            gang = attempts.start(attempt=attempt, generation=generation, resumable=(1,))
            for step in range(3):
                gang.save(writing(f"{generation} {attempt} {step}"), step=step)
    assert [name[:14] for name in names(store)] == ["0002-10-000002", "0002-10-000003"]


def test_one_that_is_late_removes_nothing_of_a_later_attempt(attempts, store):
    late, later = attempts.start(), attempts.start(attempt=2)
    for step in range(3):
        later.save(writing("later"), step=step)
        late.save(writing("late"), step=step)
    assert content(attempts.start(attempt=3).resume_from()) == "later"
    assert len([name for name in names(store) if name.startswith("0001-02")]) == 2


def test_a_file_larger_than_a_part_comes_back(attempts, store, monkeypatch):
    monkeypatch.setattr(checkpoints, "PART_BYTES", 1000)
    whole = os.urandom(2500)
    attempts.start().save(lambda folder: (folder / "weights").write_bytes(whole), step=1)
    folder = f"runs/{RUN}/checkpoints/{names(store)[0]}"
    assert store.list_folder(folder) == ["00000", "00001", "00002", "checkpoint.json"]
    assert (attempts.start(attempt=2).resume_from() / "weights").read_bytes() == whole


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_part_is_refused_and_the_one_before_can_be_had(attempts, store, damage):
    attempt = attempts.start()
    for step in (1, 2):
        attempt.save(writing(f"step {step}"), step=step)
    newest = newest_checkpoint(store, RUN, ()).place
    part = f"{newest}/00001"
    if damage == "gone":
        store.delete(part)
    else:
        store.write(part, b"step 9" if damage == "changed" else b"ste")
    with pytest.raises(IntegrityError, match="differs from its checksum") as refused:
        attempts.start(attempt=2).resume_from()
    assert f"delete {newest}/checkpoint.json" in str(refused.value)
    store.delete(f"{newest}/checkpoint.json")
    assert content(attempts.start(attempt=2).resume_from()) == "step 1"


def test_no_file_is_written_outside_of_the_folder(attempts, store):
    attempts.start().save(writing("step 1"), step=1)
    path = f"{newest_checkpoint(store, RUN, ()).place}/checkpoint.json"
    store.write(path, store.read(path).replace(b'"state.txt"', b'"../state.txt"'))
    with pytest.raises(RunFormatError, match=r"'\.\./state\.txt' is not in its folder"):
        attempts.start(attempt=2).resume_from()


def test_nothing_written_is_refused(attempts, store):
    with pytest.raises(InputError, match="checkpoint of step 7 is empty"):
        attempts.start().save(lambda folder: None, step=7)
    assert newest_checkpoint(store, RUN, ()).place == ""


def test_what_the_user_raises_comes_back_and_leaves_nothing(attempts, store, tmp_path):
    attempt = attempts.start()
    with pytest.raises(ZeroDivisionError):
        attempt.save(lambda folder: 1 / 0, step=1)
    assert names(store) == []
    assert list((tmp_path / "rank-1").iterdir()) == []


@pytest.mark.parametrize("every", [1, 3, 10])
@pytest.mark.parametrize("stride", [1, 4])
def test_steps_are_counted_from_the_last_checkpoint_also_of_an_earlier_attempt(
    attempts, every, stride
):
    saved_at, step = [0], 0
    for attempt in (1, 2):
        gang = attempts.start(attempt=attempt)
        gang.resume_from()
        for _ in range(12):
            step += stride
            if gang.save(writing("state"), step=step, every_steps=every):
                saved_at.append(step)
    between = {after - before for before, after in pairwise(saved_at)}
    assert between == {stride * -(-every // stride)}


def test_minutes_are_counted_from_the_start_or_the_last_checkpoint(attempts, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    attempt = attempts.start()
    saved = []
    for _ in range(10):
        clock[0] += 50
        saved.append(attempt.save(writing("state"), step=1, every_minutes=2.5))
    assert saved == [False, False, True] * 3 + [False]


def test_steps_or_minutes_whichever_comes_first(attempts, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    attempt = attempts.start()
    both = {"every_steps": 10, "every_minutes": 1}
    assert not attempt.save(writing("state"), step=9, **both)
    assert attempt.save(writing("state"), step=10, **both)
    clock[0] = 60.0
    assert attempt.save(writing("state"), step=11, **both)
    assert not attempt.save(writing("state"), step=20, **both)


def test_only_rank_0_writes_and_each_rank_is_refused_alike(attempts):
    ranks = [
        RankContext(rank=rank, world_size=2, checkpoints=attempts.start()) for rank in range(2)
    ]
    assert [rank.checkpoint(writing("state"), step=1) for rank in ranks] == [True, False]
    for rank in ranks:
        for wrong in ({"step": -1}, {"step": 1, "every_steps": 0}, {"step": 1, "every_minutes": 0}):
            with pytest.raises(InputError, match="must be more than 0"):
                rank.checkpoint(writing("state"), **wrong)


def test_outside_of_a_gang_nothing_is_kept():
    context = RankContext(rank=0, world_size=1)
    assert context.resume_from() is None
    assert context.checkpoint(writing("state"), step=1) is False


class TestWhatTheCallerNames:
    def test_a_run_of_the_store(self, attempts, store, tmp_path):
        other = StoreCheckpoints(
            store,
            "runs/before/checkpoints",
            run_id="before",
            generation=3,
            attempt=1,
            directory=tmp_path,
        )
        other.save(writing("of another run"), step=900)
        gang = attempts.start(given="before")
        assert content(gang.resume_from()) == "of another run"
        # Its steps are not those of this run.
        assert not gang.save(writing("state"), step=4, every_steps=5)
        assert gang.save(writing("own"), step=5, every_steps=5)
        assert content(attempts.start(attempt=2, given="before").resume_from()) == "own"

    def test_a_run_without_a_checkpoint(self, attempts):
        with pytest.raises(InputError, match="resume_from='before': the run has no checkpoint"):
            attempts.start(given="before")

    def test_a_folder(self, attempts, tmp_path):
        (tmp_path / "given").mkdir()
        writing("given")(tmp_path / "given")
        assert content(attempts.start(given=str(tmp_path / "given")).resume_from()) == "given"

    def test_a_folder_that_is_not_there(self, attempts, tmp_path):
        gang = attempts.start(given=str(tmp_path / "elsewhere"))
        with pytest.raises(InputError, match="there is no such folder on"):
            gang.resume_from()


def test_a_rank_that_was_given_up_removes_nothing(attempts, store) -> None:
    """It was frozen, another generation began from its last checkpoint, and it goes on."""
    late = attempts.start()
    for step in (1, 2):
        late.save(writing(f"step {step}"), step=step)
    store.create(run_path(RUN, generation_file(2)), b"begun")
    successor = attempts.start(generation=2, resumable=(1,))
    there = set(names(store))
    for step in (3, 4):
        with pytest.raises(RunBusyError, match=f"'{RUN}' went on or ended without this rank"):
            late.save(writing(f"step {step}"), step=step)
    assert set(names(store)) == there
    assert content(successor.resume_from()) == "step 2"


KILLED = """
import os, signal, sys
from pathlib import Path
from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.store.store import Store

store, folder, left = Store.parse(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
root = "runs/forecast/checkpoints"
names = {"run_id": "forecast", "generation": 1, "attempt": 2}
gang = StoreCheckpoints(store, root, directory=folder, **names)
create = Store.create

def create_some(self, path, data):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    create(self, path, data)

def write(folder):
    for number in range(3):
        (folder / f"{number}.txt").write_text("half")

Store.create = create_some
gang.save(write, step=2)
"""


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_writer_that_is_killed_leaves_nothing_that_counts(attempts, store, tmp_path, left):
    attempts.start().save(writing("whole"), step=1)
    arguments = [store.url, str(tmp_path), str(left)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(store)) == 1 + (left > 0)
    third = attempts.start(attempt=3)
    assert content(third.resume_from()) == "whole"
    for step in (3, 4):
        third.save(writing(f"step {step}"), step=step)
    assert [name[:7] for name in names(store)] == ["0001-03", "0001-03"]


def test_in_a_bucket(s3_store_url, tmp_path):
    """Also a folder there that the caller names by its URL."""
    attempts = Attempts(Store.parse(f"{s3_store_url}/models"), tmp_path)
    given = Store.parse(f"{s3_store_url}/given")
    writing_to = tmp_path / "given"
    writing_to.mkdir()
    writing("given")(writing_to)
    for path in writing_to.rglob("*.txt"):
        given.write(path.relative_to(writing_to).as_posix(), path.read_bytes())

    first = attempts.start(given=given.url)
    assert content(first.resume_from()) == "given"
    for step in (1, 2, 3):
        first.save(writing(f"step {step}"), step=step)
    assert content(attempts.start(attempt=2, given=given.url).resume_from()) == "step 3"
    assert len(names(attempts.store)) == 2
