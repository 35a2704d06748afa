"""Whether a loss grew beyond luck: between rows of two times, not between two models."""

import numpy as np
import pytest

from partwise.evaluation.paired import worse_confidence
from partwise.evaluation.scores import Predicted, find_metric


def rows(seed: int, count: int, spread: float = 1.0) -> Predicted:
    chance = np.random.default_rng(seed)
    return Predicted(labels=chance.normal(0, spread, count), predictions=np.zeros(count))


@pytest.mark.parametrize("name", ["rmse", "mae", "smape", "pinball:0.9"])
@pytest.mark.parametrize(("now", "then"), [(30, 12), (60, 60), (300, 60)])
def test_equal_spreads_are_rarely_called_worse(name: str, now: int, then: int) -> None:
    metric = find_metric(name)
    sure = [
        worse_confidence(metric, rows(seed, now), metric(rows(10_000 + seed, then)), then)
        for seed in range(2_000)
    ]
    assert np.mean(np.array(sure) >= 0.99) <= 0.025


@pytest.mark.parametrize("name", ["rmse", "mae"])
def test_twice_the_spread_is_found(name: str) -> None:
    metric = find_metric(name)
    sure = [
        worse_confidence(metric, rows(seed, 60, 2.0), metric(rows(10_000 + seed, 60)), 60)
        for seed in range(200)
    ]
    assert np.mean(np.array(sure) >= 0.99) >= 0.9


def test_nobody_can_tell_of_one_row_or_a_metric_that_is_no_mean() -> None:
    one = rows(1, 1)
    assert np.isnan(worse_confidence(find_metric("rmse"), one, 1.0, 5))
    assert np.isnan(worse_confidence(find_metric("auc"), rows(1, 9), 0.5, 5))
    assert np.isnan(worse_confidence(find_metric("wape"), rows(1, 9), 0.5, 5))


def test_what_never_errs_is_not_worse_than_what_never_erred() -> None:
    same = Predicted(labels=np.ones(9), predictions=np.ones(9))
    assert worse_confidence(find_metric("rmse"), same, 0.0, 9) == 0.5
    assert worse_confidence(find_metric("accuracy"), same, 1.0, 9) == 0.5
