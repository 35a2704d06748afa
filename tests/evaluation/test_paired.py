"""Whether a model is better than another, or was lucky: tests over the same rows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.evaluation.paired import (
    RESAMPLES,
    confidence,
    student_t,
    t_confidence,
    worse_confidence,
)
from partwise.evaluation.scores import Predicted, find_metric
from tests.lazily import Lazily

stats = Lazily("scipy.stats")

ROWS = 60


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 59, 400, 999, 5000])
def test_the_distribution_is_students(degrees):
    for value in (-40.0, -3.1, -0.5, 0.0, 1e-9, 0.7, 3.1, 12.0):
        assert student_t(value, degrees) == pytest.approx(stats.t.cdf(value, degrees), abs=2e-5)


def test_a_paired_t_test_is_that_of_scipy():
    generator = np.random.default_rng(3)
    one, other = generator.normal(size=(2, ROWS))
    expected = stats.ttest_rel(one, other, alternative="greater").pvalue
    assert t_confidence(one - other) == pytest.approx(1 - expected)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([1.0, 1.0, 1.0], 1.0),
        ([-2.0, -2.0], 0.0),
        ([0.0, 0.0, 0.0], 0.5),
        ([1.0], math.nan),
        ([1.0, math.inf], math.nan),
    ],
)
def test_rows_that_say_all_or_nothing(gains, expected):
    assert t_confidence(np.array(gains)) == pytest.approx(expected, nan_ok=True)


def errors(generator, spread=1.0):
    return Predicted(labels=np.zeros(ROWS), predictions=generator.normal(0, spread, ROWS))


@pytest.mark.parametrize("name", ["rmse", "mae", "mape", "wape", "smape", "pinball:0.5"])
def test_a_much_better_model_is_surely_better(name):
    generator = np.random.default_rng(1)
    labels = generator.uniform(1, 2, ROWS)
    near, far = (
        Predicted(labels=labels, predictions=labels + generator.normal(0, spread, ROWS))
        for spread in (0.1, 1.0)
    )
    metric = find_metric(name)
    assert confidence(metric, near, far) > 0.999
    assert confidence(metric, far, near) < 0.001
    assert confidence(metric, near, near) == 0.5


@pytest.mark.parametrize("name", ["logloss", "accuracy", "auc"])
def test_classes_are_compared_as_well(name):
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, 200).astype(float)
    noise = generator.uniform(0.05, 0.95, 200)
    good = Predicted(labels=labels, predictions=np.clip(0.7 * labels + 0.3 * noise, 0.01, 0.99))
    blind = Predicted(labels=labels, predictions=noise)
    metric = find_metric(name)
    assert confidence(metric, good, blind) > 0.999
    assert confidence(metric, blind, good) < 0.001


def test_several_classes_go_by_the_probability_of_their_own():
    labels = np.arange(30.0) % 3
    sure = np.full((30, 3), 0.05)
    sure[np.arange(30), labels.astype(int)] = 0.9
    even = np.full((30, 3), 1 / 3)
    one, other = (Predicted(labels=labels, predictions=each) for each in (sure, even))
    assert confidence(find_metric("logloss"), one, other) == 1.0
    assert confidence(find_metric("accuracy"), one, other) > 0.999


def test_a_function_is_resampled_and_the_same_rows_give_the_same():
    def worst(labels, predictions):
        return np.abs(labels - predictions).max()

    generator = np.random.default_rng(5)
    metric = find_metric(worst)
    near, far = errors(generator, 0.1), errors(generator, 5.0)
    assert confidence(metric, near, far) == RESAMPLES / (RESAMPLES + 1)
    assert confidence(metric, far, near) == 1 / (RESAMPLES + 1), "the other way it is no surer"
    assert confidence(metric, near, near) == 0.5
    unclear = errors(generator), errors(generator)
    assert confidence(metric, *unclear) == confidence(metric, *unclear) < 1
    assert sum(confidence(metric, *each) for each in (unclear, unclear[::-1])) == pytest.approx(1)
    one = Predicted(labels=np.zeros(1), predictions=np.ones(1))
    assert math.isnan(confidence(metric, one, one))


def test_a_function_named_like_a_built_in_metric_is_no_such_metric():
    """That predictions are near is not all: too little costs ten times too much."""

    def mae(labels, predictions):
        gains = predictions - labels
        return np.where(gains < 0, -10 * gains, gains).mean()

    generator = np.random.default_rng(7)
    labels, noise = generator.normal(size=(2, ROWS))
    low, high = (
        Predicted(labels=labels, predictions=labels + by + noise / 10) for by in (-1.0, 1.5)
    )
    assert confidence(find_metric("mae"), high, low) < 0.001
    assert confidence(find_metric(mae), high, low) == RESAMPLES / (RESAMPLES + 1)
    assert math.isnan(worse_confidence(find_metric(mae), low, 1.5, ROWS))


@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.9]))
def test_the_two_sides_of_a_test_add_up(seed, correlation):
    generator = np.random.default_rng(seed)
    shared, *own = generator.normal(size=(3, ROWS))
    one, other = (
        Predicted(
            labels=np.zeros(ROWS),
            predictions=correlation**0.5 * shared + (1 - correlation) ** 0.5 * each,
        )
        for each in own
    )
    metric = find_metric("rmse")
    sure = confidence(metric, one, other)
    assert 0 <= sure <= 1
    assert sure + confidence(metric, other, one) == pytest.approx(1)
