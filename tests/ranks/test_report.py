"""What a rank reports: numbers are metrics, and what else JSON holds is kept."""

import numpy as np
import pytest

from partwise.connector.context import MemoryLink, PartitionContext
from partwise.engine.works import check_metrics
from partwise.errors import InputError
from partwise.ranks.context import RankContext
from tests.lazily import Lazily

torch = Lazily("torch")


def test_numbers_are_metrics_and_the_rest_is_reported() -> None:
    context = RankContext(rank=0, world_size=1)
    context.report(loss=np.float32(0.5), rows=3, good=True, of_torch=torch.tensor(2.0))
    context.report(one=np.array([1.5]), many=np.arange(3), both=torch.ones(2, 2), text="0.5")
    context.report(
        losses=[np.float64(1), torch.tensor(2)], pair=(1, None), by={"a": [True]}, loss=0.25
    )
    assert context.metrics == {
        "loss": 0.25,
        "rows": 3.0,
        "good": 1.0,
        "of_torch": 2.0,
        "one": 1.5,
    }
    assert context.reported == {
        "many": [0, 1, 2],
        "both": [[1.0, 1.0], [1.0, 1.0]],
        "text": "0.5",
        "losses": [1.0, 2],
        "pair": [1, None],
        "by": {"a": [True]},
    }


@pytest.mark.parametrize("value", [None, object(), {1: 2}, [object()], b"bytes", {1, 2}])
def test_what_json_does_not_hold_is_refused_and_nothing_of_the_call_set(value) -> None:
    context = RankContext(rank=0, world_size=1)
    with pytest.raises(InputError, match=r"given bad, a \w+, which is neither a number nor"):
        context.report(loss=1.0, bad=value)
    assert (context.metrics, context.reported) == ({}, {})


def test_a_number_that_no_double_holds_is_refused() -> None:
    with pytest.raises(InputError, match="given tokens, a number beyond"):
        RankContext(rank=0, world_size=1).report(tokens=10**400)
    with pytest.raises(InputError, match="given a number beyond"):
        PartitionContext(link=MemoryLink()).report(step=1, metric=10**400)
    with pytest.raises(TypeError, match="'tokens' is a number beyond"):
        check_metrics({"tokens": 10**400})


@pytest.mark.parametrize("value", ["0.5", "low", b"1"])
def test_a_text_is_no_metric_though_it_reads_as_a_number(value) -> None:
    with pytest.raises(TypeError, match=r"^The metric 'loss' is b?'.*', a text and not a number"):
        check_metrics({"loss": value})


def test_a_step_is_told_with_its_numbers() -> None:
    told = []
    context = RankContext(rank=0, world_size=1, on_step=lambda *step: told.append(step))
    context.report(step=2, loss=0.5, note="x")
    context.report(note="y")
    assert told == [(2, {"step": 2.0, "loss": 0.5})]


@pytest.mark.parametrize("step", [-1, float("nan"), float("inf"), 2**63])
def test_a_study_is_told_no_step_that_is_not_a_count(step) -> None:
    """Its pruner refuses them, and would have ended all trials for that of one."""
    told = []
    context = RankContext(rank=0, world_size=1, on_step=lambda *step: told.append(step))
    with pytest.raises(InputError, match=r"the step .*, which is not a count"):
        context.report(step=step, loss=0.5)
    assert (told, context.metrics) == ([], {})
    RankContext(rank=0, world_size=1).report(step=step)


@pytest.mark.parametrize("metric", [[1.0], "0.5", None, b"1"])
def test_a_partition_reports_one_number(metric) -> None:
    link = MemoryLink()
    with pytest.raises(InputError, match=r"no number: keep lists and texts by context\.upload"):
        PartitionContext(link=link).report(step=1, metric=metric)
    PartitionContext(link=link).report(step=1, metric=np.float32(0.5))
    assert link.reports == {1: 0.5}


@pytest.mark.parametrize("step", [-1, 0.5, 2**63, "1"])
def test_a_partition_reports_no_step_that_is_not_a_count(step) -> None:
    with pytest.raises(InputError, match=r"the step .*, which is not a count"):
        PartitionContext(link=MemoryLink()).report(step=step, metric=1.0)
