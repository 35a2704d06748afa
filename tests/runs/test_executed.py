"""What a run has executed: partitions that no function was ever called for do not count."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.flows.cli.main import main
from partwise.outcomes import CANCELLED, PartitionStatus
from partwise.runs.completion import Ending, UnfinishedShard, complete_run
from partwise.runs.run import Run


def end_with_unstarted(make_run, claim, keys: list[str], status: PartitionStatus) -> Run:
    """Complete a generation of which a shard never started: its rows have no attempt."""
    lost = UnfinishedShard(
        shard=1, keys=pa.table({"key": keys}), status=status, reason="its worker never answered"
    )
    ending = Ending(
        partitions=4,
        unfinished=(lost,),
        stopped=CANCELLED if status is PartitionStatus.CANCELLED else None,
        rows=4,
        dropped_rows=0,
        started_at=datetime.now(UTC),
        stages={},
    )
    run = complete_run(claim, ending)
    make_run.leave()
    return run


def shown(run: Run, capsys) -> tuple[str, dict]:
    """The line of `runs show` about partitions, and what it prints as JSON."""
    words = ["runs", "show", run.run_id, "--store", run.store.url]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    [line] = [line for line in lines if line.startswith("  partitions")]
    assert main([*words, "--json"]) == 0
    return line.strip(), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("status", [PartitionStatus.CANCELLED, PartitionStatus.INTERNAL_ERROR])
def test_what_never_ran_is_not_counted_as_executed(make_run, capsys, status) -> None:
    claim = make_run.begin()
    make_run.commit(("a", "DONE", 1.0), ("b", "FAILED", 2.0))
    first = end_with_unstarted(make_run, claim, ["c", "d"], status)
    assert first.counts == {"DONE": 1, "FAILED": 1, status.value: 2}
    assert (first.executed, first.kept) == (2, 0)
    assert shown(first, capsys)[1]["executed"] == 2

    # A resume that keeps what is done, and is stopped before anything else has begun.
    done = first.ledger.filter(pc.equal(first.ledger["status"], "DONE"))
    claim = make_run.begin()
    make_run.commit(carried=done)
    second = end_with_unstarted(make_run, claim, ["b", "c", "d"], status)
    assert second.counts == {"DONE": 1, status.value: 3}
    assert (second.executed, second.kept) == (0, 1)
    line, record = shown(second, capsys)
    assert line.endswith("(1 kept from before, 0 run)")
    assert (record["kept"], record["executed"]) == (1, 0)

    # One in which some of them run.
    claim = make_run.begin()
    make_run.commit(("b", "DONE", 2.0), ("c", "FAILED", 3.0), carried=done)
    third = end_with_unstarted(make_run, claim, ["d"], status)
    assert (third.executed, third.kept) == (2, 1)
    assert shown(third, capsys)[0].endswith("(1 kept from before, 2 run)")


def test_an_unfinished_run_has_executed_what_it_has_committed(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0), ("b", "SKIPPED", 2.0), ("c", "FAILED", 3.0))
    make_run.leave()
    assert (make_run.open().executed, make_run.open().kept) == (3, 0)
