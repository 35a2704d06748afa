"""What the driver makes of the news of its workers."""

from partwise.engine.assignment import FailureGroup, Remark, ShardProgress
from partwise.engine.driver.shards import Progress

FAILURE = FailureGroup(fingerprint="f", error_type="E", message="m", sample="a", count=2)


def news(execution: str, shard: int = 0, kept: int = 0, **counts: int) -> ShardProgress:
    return ShardProgress(shard=shard, execution=execution, counts=counts, kept=kept)


def test_news_of_a_shard_add_up() -> None:
    progress = Progress(partitions=10)
    for one in (news("a", DONE=2, kept=1), news("a", FAILED=1), news("b", shard=1, DONE=3)):
        progress.add(one)
    assert (progress.finished, progress.failed, progress.kept) == (6, 1, 1)


def test_of_several_executions_of_a_shard_the_newest_counts() -> None:
    progress = Progress(partitions=10)
    progress.add(news("c", shard=1, DONE=1))
    progress.add(news("a", DONE=2, FAILED=2, kept=2))
    progress.add(news("b", DONE=2, FAILED=1))
    # One that was only cut off goes on to tell.
    progress.add(news("a", FAILED=3))
    progress.add(news("b", FAILED=1))
    assert (progress.finished, progress.failed, progress.kept) == (5, 2, 0)


def test_a_message_holds_all_of_the_news() -> None:
    whole = ShardProgress(
        shard=3,
        execution="a",
        counts={"FAILED": 2},
        kept=1,
        failures=(FAILURE,),
        remarks=(Remark(kind="k", text="t", sample="a"),),
    )
    assert ShardProgress.from_message(whole.to_message()) == whole


def test_what_was_begun_stays_begun() -> None:
    progress = Progress(partitions=10)
    for execution, place in (("a", 0), ("a", 3), ("a", 2), ("b", -1), ("b", 1)):
        progress.add(ShardProgress(shard=7, execution=execution, place=place))
        assert ShardProgress.from_message(progress.latest[7][0].to_message()).place == place
    assert progress.begun == {7: 4}
