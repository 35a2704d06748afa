"""Dirt of neighbours through the flows: other workers, other shards, and after a resume."""

from collections.abc import Iterator

import pytest

from partwise.engine.options import ExecutionOptions
from partwise.flows import map_partitions
from partwise.runs.run import Run
from tests.engine.dirt import KINDS, differences, neighbours, only_see, soil_and_see
from tests.plain_cluster import plain_cluster

ORDERLY = [kind for kind in KINDS if "process" not in kind]


def seen_otherwise(run: Run, clean: Run) -> list[tuple[str, str, str, str]]:
    """Return what neighbours saw changed; a path of imports has the worker's own folder in it."""
    return [found for found in differences(run, clean) if found[1] != "sys.path"]


@pytest.fixture(scope="module")
def one_worker() -> Iterator[str]:
    """The address of a cluster of one worker, for runs of both isolations."""
    with plain_cluster(1) as client:
        yield client.scheduler.address


@pytest.fixture(scope="module")
def three_workers() -> Iterator[str]:
    """That of a cluster of several, which have run nothing that is on the other one."""
    with plain_cluster(3) as client:
        yield client.scheduler.address


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["shared", "partition"])
def test_neighbours_make_no_difference_on_any_workers(
    one_worker, three_workers, tmp_path, isolation: str
) -> None:
    table = neighbours(ORDERLY)

    def run(run_id: str, function, n_shards: int, cluster, rows=table, **more) -> Run:
        options = ExecutionOptions(n_shards=n_shards, isolation=isolation, **more)
        return map_partitions(
            rows,
            "key",
            function,
            run_id=run_id,
            store=tmp_path,
            version="1",
            on_existing_artifacts="resume",
            execution=options,
            cluster=cluster,
        )

    clean = run("clean", only_see, 1, one_worker)
    assert seen_otherwise(run("one-worker", soil_and_see, 1, one_worker), clean) == []
    run("resumed", soil_and_see, 3, one_worker, table.slice(0, len(ORDERLY)))
    again = run("resumed", soil_and_see, 3, three_workers)
    assert again.kept == len(ORDERLY)
    assert seen_otherwise(again, clean) == []
    assert seen_otherwise(run("three-workers", soil_and_see, 16, three_workers), clean) == []
