"""Runs in a bucket that fails: whole, or one sentence, and whole after a resume; no conflicts."""

import dataclasses
import io
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import StoreError
from partwise.runs.documents import run_path
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.fault_proxy import FAULTS, FaultProxy, fault_proxy, hurry
from tests.lazily import Lazily
from tests.one_shard import RUN_ID, check, drive

s3fs = Lazily("s3fs")

Values = dict[str, float]


@pytest.fixture(scope="module")
def proxy(s3_endpoint_url: str) -> Iterator[FaultProxy]:
    with pytest.MonkeyPatch.context() as patch, fault_proxy(s3_endpoint_url) as made:
        hurry(patch)
        yield made


def drive_twice(proxy: FaultProxy, direct: Store, partitions: int = 8) -> int:
    """Make a run and change it through a proxy that fails; where that ends, resume it without.

    Args:
        proxy: Spoils what it was told to.
        direct: The store, past the proxy.
        partitions: Of the run at first; then half of them change, and a quarter is added.

    Returns:
        How many of the calls ended with a sentence.
    """
    store = dataclasses.replace(direct, endpoint_url=proxy.url)
    refused: list[str] = []
    first = {f"k{number:03}": float(number) for number in range(partitions)}
    changed = range(partitions // 2, partitions + partitions // 4)
    second = first | {f"k{number:03}": 1000.0 + number for number in changed}
    for values in (first, second):
        try:
            drive(store, values)
        except StoreError as error:  # and no other: nobody else works on the run
            refused.append(str(error))
            check_whole(drive(direct, values), values)
        else:
            check_whole(Run.open(RUN_ID, direct), values)
    wrong = [text for text in refused if not text.endswith(".") or "\n" in text]
    assert wrong == [], "these are no sentences"
    return len(refused)


def check_whole(run: Run, values: Values) -> None:
    """See that a run is complete, and that its folder of rows holds each partition once."""
    check(run, values)
    paths = run.store.list(run_path(RUN_ID, "outputs") + "/")
    rows = pa.concat_tables(pq.read_table(io.BytesIO(run.store.read(path))) for path in paths)
    assert sorted(rows["key"].to_pylist()) == sorted(values), "rows are lost or double"


def rates_of(rate: float) -> dict[str, float]:
    """Divide a rate of failures evenly; some answers are late besides."""
    return dict.fromkeys(FAULTS, rate / (len(FAULTS) - 1)) | {"late": 0.01}


def test_a_bucket_that_fails_at_random(proxy, s3_store) -> None:
    proxy.spoil_at_random(random.Random(7), rates_of(0.2))
    drive_twice(proxy, s3_store)
    assert sum(proxy.spoilt.values()) > 5


# Beyond some share of failures a client gives up: that is one sentence.
@pytest.mark.slow
@pytest.mark.parametrize(("rate", "seed"), [(0.01, 1), (0.05, 2), (0.7, 3), (0.7, 4), (0.95, 5)])
def test_it_does_so_at_other_rates(proxy, s3_store, rate, seed) -> None:
    proxy.spoil_at_random(random.Random(seed), rates_of(rate))
    refused = drive_twice(proxy, s3_store)
    if rate <= 0.05:
        assert refused == 0
    if rate > 0.9:
        assert refused == 2


def test_a_lost_answer_to_every_first_request_is_no_conflict(proxy, s3_store) -> None:
    proxy.lose_first_answers()
    assert drive_twice(proxy, s3_store) == 0
    assert {"PUT if absent", "PUT", "copy", "DELETE"} <= set(proxy.spoilt)


def lose_answers_to_each_kind(proxy: FaultProxy, direct: Store, part: int) -> None:
    """Lose the answers to requests of all kinds, those of uploads in parts as well."""
    proxy.lose_first_answers()
    store, data = dataclasses.replace(direct, endpoint_url=proxy.url), random.Random(7)
    large = data.randbytes(2 * part)
    store.create("a/large", large)
    store.write("a/larger", large + b"x")
    store.create("a/small", b"x")
    store.write("a/smaller", b"y")
    store.move("a/small", "b/small")
    assert {path: direct.read(path) for path in direct.list("")} == {
        "a/large": large,
        "a/larger": large + b"x",
        "a/smaller": b"y",
        "b/small": b"x",
    }
    store.delete_folder("a")
    store.delete("b/small")
    assert direct.list("") == []


def test_what_the_deletion_of_many_left_is_deleted_or_an_error(proxy, s3_store) -> None:
    store = dataclasses.replace(s3_store, endpoint_url=proxy.url)
    store.write("a/1", b"x")
    store.write("a/2", b"x")
    proxy.forward_all()
    proxy.plan.extend(["200 AccessDenied", "403 AccessDenied"])
    with pytest.raises(StoreError, match="delete"):
        store.delete_folder("a")
    assert s3_store.list("") == ["a/1", "a/2"]
    proxy.plan.append("200 InternalError")
    store.delete_folder("a")
    assert s3_store.list("") == []


def test_a_lost_answer_to_each_kind_of_request(proxy, s3_store, monkeypatch) -> None:
    part = 5 * 2**20  # of 50 MB otherwise
    monkeypatch.setattr(s3fs.S3FileSystem._pipe_file, "__defaults__", (part, None, "overwrite"))
    lose_answers_to_each_kind(proxy, s3_store, part)
    parts = {"begin of parts", "PUT part", "end of parts"}
    assert {*parts, "PUT if absent", "PUT", "copy", "DELETE", "DELETE many"} <= set(proxy.spoilt)
