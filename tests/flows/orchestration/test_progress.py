"""The lines that tell of progress where there is no terminal."""

import logging

from partwise.engine.assignment import Remark, ShardProgress
from partwise.engine.driver.shards import Progress
from partwise.flows.orchestration.progress import KindLines, Lines


def test_lines_come_after_pauses_that_double(caplog) -> None:
    now = 0.0
    lines = Lines(logging.getLogger("test"), "r", 1000, clock=lambda: now)
    progress = Progress(partitions=1000)
    told = []
    with caplog.at_level(logging.INFO):
        for second in range(1, 700):
            now = float(second)
            progress.counts["DONE"] = second
            lines.update(progress, ShardProgress(execution="e", shard=0))
            if caplog.messages:
                told.append(second)
                caplog.clear()
    assert told == [10, 30, 70, 150, 310, 630]


def test_a_line_says_how_many_are_finished_and_failed(caplog) -> None:
    times = iter([0.0, 12.0])
    lines = Lines(logging.getLogger("test"), "r", 4000, clock=lambda: next(times))
    progress = Progress(partitions=4000)
    progress.counts.update({"DONE": 1200, "FAILED": 3})
    with caplog.at_level(logging.INFO):
        lines.update(progress, ShardProgress(execution="e", shard=0))
    assert caplog.messages == ["Run r: 1,203 of 4,000 partitions after 12 s, 3 failed."]


def test_a_remark_is_written_once(caplog) -> None:
    lines = KindLines(logging.getLogger("test"), "r")
    remark = Remark(kind="k", text="left its process changed: it replaced numpy.mean", sample="a")
    for shard in range(3):
        news = ShardProgress(execution="e", shard=shard, remarks=(remark,))
        lines.update(Progress(partitions=9), news)
    (message,) = caplog.messages
    assert message.startswith("Run r: partition a left its process changed: it replaced numpy.mean")
