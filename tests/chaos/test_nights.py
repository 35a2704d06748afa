"""Nights of `lifecycle` that are killed before any of their writes, or are begun twice at once."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from partwise.runs.contents import list_runs
from partwise.store.store import Store
from tests.chaos.conftest import MINUTES, Experiment
from tests.nights import NIGHTS, seen

pytestmark = pytest.mark.slow


class Nights:
    """A catalog after its first night, and copies of its store, in folders and a bucket by turns.

    Args:
        folder: An empty folder.
        bucket: A URL.
        endpoint_url: Of the server of the bucket.
    """

    def __init__(self, folder: Path, bucket: str, endpoint_url: str) -> None:
        self._folder, self._bucket, self._endpoint_url = folder, bucket, endpoint_url
        self._numbers = itertools.count()
        self._first = folder / "first"
        self.finish(Store.parse(str(self._first)), NIGHTS[0])
        self.before = what_is_left(Store.parse(str(self._first)))
        """What others see after the first night."""
        whole = self.copy()
        self.changes = self.finish(whole, NIGHTS[1])
        """How many operations of the driver of the second night change the store."""
        self.after = what_is_left(whole)
        """What others see after the second night."""

    def copy(self) -> Store:
        """Return the store of a catalog before its second night."""
        number = next(self._numbers)
        if number % 2 == 0:
            shutil.copytree(self._first, self._folder / str(number))
            return Store.parse(str(self._folder / str(number)))
        store = Store.parse(f"{self._bucket}/{number}", endpoint_url=self._endpoint_url)
        for path in self._first.rglob("*"):
            if path.is_file():
                store.write(path.relative_to(self._first).as_posix(), path.read_bytes())
        return store

    def start(self, store: Store, day: date, dies_before: int = 0) -> subprocess.Popen[str]:
        """Begin a night, or go on with it."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.night", store.url, str(day), str(dies_before)],
            env=os.environ
            | {"PREFECT_LOGGING_LEVEL": "ERROR", "AWS_ENDPOINT_URL_S3": self._endpoint_url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, store: Store, day: date) -> int:
        """Go on with a night to its end, and return how many operations changed the store."""
        process = self.start(store, day)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        found = re.search(r"^CHANGES (\d+)$", output, re.MULTILINE)
        assert found, output
        return int(found[1])


def what_is_left(store: Store) -> dict[str, Any]:
    """What others see, and the runs that there are."""
    return {**seen(store), "runs": list_runs(store)}


@pytest.fixture(scope="module")
def nights(
    tmp_path_factory: pytest.TempPathFactory, s3_bucket: str, s3_endpoint_url: str
) -> Nights:
    bucket = f"s3://{s3_bucket}/{uuid.uuid4().hex}"
    return Nights(tmp_path_factory.mktemp("nights"), bucket, s3_endpoint_url)


@pytest.mark.skipif(not MINUTES, reason="a folder is compared with a bucket where there is time")
def test_a_night_in_a_bucket_is_as_one_in_a_folder(nights: Nights) -> None:
    stores = [nights.copy(), nights.copy()]
    assert len({store.url.partition("://")[0] for store in stores}) == 2
    for store in stores:
        nights.finish(store, NIGHTS[1])
        assert what_is_left(store) == nights.after


def test_a_killed_night_ends_as_any_other(experiment: Experiment, nights: Nights) -> None:
    assert nights.before["published"] != nights.after["published"]
    chance, places, wrong = experiment.chance, [], []
    for _ in experiment.tries(1):
        store = nights.copy()
        # Also what goes on with a killed night is killed.
        for _ in range(chance.randint(1, 2)):
            places.append(number := chance.randint(1, nights.changes))
            process = nights.start(store, NIGHTS[1], number)
            output, _ = process.communicate(timeout=600)
            # What is gone on with has less to write, and may come to its end.
            assert process.returncode in (-9, 0), output
            # Others see all of the old rows or all of the new ones.
            published = seen(store)["published"]
            if published not in (nights.before["published"], nights.after["published"]):
                wrong.append(f"{store}, {number}: half of the rows")
        nights.finish(store, NIGHTS[1])
        if (left := what_is_left(store)) != nights.after:
            wrong.append(f"{store}, {number}: {left}")
    experiment.tell(
        "G22",
        tried=len(places),
        lost=len(wrong),
        what=f"killed before one of {nights.changes} changes of the store {wrong or ''}",
    )


def test_a_night_that_is_begun_twice_at_once_is_one_night(
    experiment: Experiment, nights: Nights
) -> None:
    tried, wrong = 0, []
    for number in experiment.tries(1):
        tried, store = number, nights.copy()
        processes = [nights.start(store, NIGHTS[1]) for _ in range(2)]
        outputs = [process.communicate(timeout=600)[0] for process in processes]
        codes = sorted(process.returncode for process in processes)
        # Both find the same end, or one hears in a sentence who is at work.
        if codes not in ([0, 0], [0, 3]) or any("Traceback" in output for output in outputs):
            wrong.append(f"{codes}: {outputs}")
        if (left := what_is_left(store)) != nights.after:
            wrong.append(f"{store}: {left}")
    experiment.tell("G22", tried=tried, lost=len(wrong), what=f"begun twice at once {wrong or ''}")
