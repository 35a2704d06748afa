"""Stores that fail: a bucket over a bad network, a disk that is full; clocks that are wrong."""

import itertools
import random
import statistics
import time
import uuid
from pathlib import Path

import pytest

from partwise.errors import PartwiseError
from partwise.store.store import Store
from tests.chaos.conftest import Experiment, tried_by
from tests.fault_proxy import FaultProxy, fault_proxy, hurry
from tests.lazily import Lazily
from tests.one_shard import drive
from tests.runs.test_failing_disk import DISKS, fail_everywhere
from tests.runs.test_faulty_bucket import drive_twice, lose_answers_to_each_kind, rates_of
from tests.runs.test_moved_clocks import meet, walk

s3fs = Lazily("s3fs")

pytestmark = pytest.mark.slow

PART_BYTES = 5 * 2**20
"""Of an upload in parts; 50 MB otherwise."""


def new_store(bucket: str, url: str) -> Store:
    return Store.parse(f"s3://{bucket}/{uuid.uuid4().hex}", endpoint_url=url)


def time_of(
    proxy: FaultProxy, bucket: str, rates: dict[str, float], chance: random.Random
) -> float:
    """Return how long a run of 24 partitions takes, in seconds."""
    proxy.spoil_at_random(chance, rates)
    began = time.perf_counter()
    drive(new_store(bucket, proxy.url), {f"k{number:03}": 1.0 for number in range(24)})
    return time.perf_counter() - began


@tried_by("runs/test_faulty_bucket.py")
def test_a_bucket_that_fails(
    experiment: Experiment, s3_bucket: str, s3_endpoint_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, lost, runs, spoilt, refused = experiment.chance, [], 0, 0, 0
    count = 5
    # The waits of the real client, with the 500s and 503s of which the goal speaks.
    with fault_proxy(s3_endpoint_url) as proxy:
        one = {"500 InternalError": 0.005, "503 SlowDown": 0.005}
        time_of(proxy, s3_bucket, {}, chance)
        pairs = [
            (time_of(proxy, s3_bucket, one, chance), time_of(proxy, s3_bucket, {}, chance))
            for _ in range(count)
        ]
    ratio = statistics.median(spoiled / quiet for spoiled, quiet in pairs)
    hurry(monkeypatch)
    deadline = time.monotonic() + experiment.seconds
    with fault_proxy(s3_endpoint_url) as proxy:
        for rate in itertools.cycle((0.01, 0.05, 0.2, 0.7)):
            proxy.spoil_at_random(random.Random(chance.random()), rates_of(rate))
            try:
                refused += drive_twice(proxy, new_store(s3_bucket, s3_endpoint_url), partitions=20)
            except (PartwiseError, AssertionError, OSError, LookupError) as error:
                lost.append(f"at {rate:.0%}: {type(error).__name__}: {error}"[:300])
            spoilt += sum(proxy.spoilt.values())
            runs += 2
            if runs >= 8 and time.monotonic() > deadline:
                break
    experiment.tell(
        "G5",
        tried=runs,
        lost=len(lost),
        what=f"runs at 1, 5, 20 and 70 %, {spoilt:,} requests spoilt, {refused} ended with a "
        f"sentence and were resumed; 1 % of 500 and 503 took {ratio:.2f} times as long as none "
        f"(median of {count})" + "".join(f"; {each}" for each in lost),
    )


@tried_by("runs/test_faulty_bucket.py")
def test_answers_that_are_lost(
    experiment: Experiment, s3_bucket: str, s3_endpoint_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(
        s3fs.S3FileSystem._pipe_file, "__defaults__", (PART_BYTES, None, "overwrite")
    )
    lost, tried, kinds = [], 0, set()
    with fault_proxy(s3_endpoint_url) as proxy:
        trials = (
            lambda: drive_twice(proxy, new_store(s3_bucket, s3_endpoint_url), partitions=20),
            lambda: lose_answers_to_each_kind(
                proxy, new_store(s3_bucket, s3_endpoint_url), PART_BYTES
            ),
        )
        for trial in trials:
            proxy.lose_first_answers()
            try:
                assert not trial(), "a run ended with an error"
            except (PartwiseError, AssertionError, OSError, LookupError) as error:
                lost.append(f"{type(error).__name__}: {error}"[:300])
            tried += sum(proxy.spoilt.values())
            kinds |= set(proxy.spoilt)
    experiment.tell(
        "G6",
        tried=tried,
        lost=len(lost),
        what=f"answers to {', '.join(sorted(kinds))}" + "".join(f"; {each}" for each in lost),
    )


@tried_by("runs/test_failing_disk.py")
def test_a_disk_that_fails(experiment: Experiment, tmp_path: Path) -> None:
    tried, lost = 0, []
    every = 2
    for kind in DISKS:
        count, problems = fail_everywhere(
            tmp_path / kind, kind, every, experiment.chance.randrange(every)
        )
        tried += count
        lost += problems
    experiment.tell(
        "G9",
        tried=tried,
        lost=len(lost),
        what=f"calls of the system that fail from there on: {', '.join(DISKS)}"
        + "".join(f"; {each}" for each in lost),
    )


def test_clocks_that_are_wrong(experiment: Experiment, tmp_path: Path) -> None:
    chance, lost, tried, collected = experiment.chance, [], 0, 0
    deadline = time.monotonic() + experiment.seconds
    while tried < 10 or time.monotonic() < deadline:
        try:
            collected += walk(Store.parse(tmp_path / f"walk-{tried}"), chance, 10)
        except (PartwiseError, AssertionError, OSError, LookupError) as error:
            lost.append(f"{type(error).__name__}: {error}"[:300])
        tried += 10
    # Where there is no time, those of runs/test_moved_clocks.py meet.
    for hours in (-1.0, 1.0) if experiment.seconds else ():
        tally = meet(tmp_path / f"meet {hours}", hours, 5)
        tried += tally.tried
        lost += tally.lost
    experiment.tell(
        "G16",
        tried=tried,
        lost=len(lost),
        what=f"generations and meetings of drivers, clocks an hour fast or slow, {collected} files "
        "collected" + "".join(f"; {each}" for each in lost),
    )
