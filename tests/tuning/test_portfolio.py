"""Which settings a portfolio has: those that a search through all of them finds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from partwise.tuning.portfolio import pick, regrets

_losses = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    elements=st.one_of(st.floats(-100, 100), st.just(float("nan"))),
)


def mean_regret(matrix, places) -> float:
    return float(matrix[:, list(places)].min(axis=1).mean()) if len(matrix) else 0.0


@given(losses=_losses, size=st.integers(1, 4))
def test_each_setting_is_the_best_that_could_be_added(losses, size):
    picked, matrix = pick(losses, size), regrets(losses)
    assert picked.places[0] == 0
    assert len(set(picked.places)) == len(picked.places) <= size
    for count in range(1, len(picked.places) + 1):
        known = picked.places[: count - 1]
        others = range(losses.shape[1]) if known else [0]
        best = min(mean_regret(matrix, [*known, other]) for other in others)
        assert picked.regrets[count - 1] == pytest.approx(best)
    if len(picked.places) < size:
        best = min(mean_regret(matrix, [*picked.places, each]) for each in range(losses.shape[1]))
        assert best == pytest.approx(picked.regrets[-1])


@given(losses=_losses)
def test_two_settings_are_the_best_pair(losses):
    picked, matrix = pick(losses, 2), regrets(losses)
    pairs = itertools.product([0], range(losses.shape[1]))
    assert picked.regrets[-1] == pytest.approx(min(mean_regret(matrix, pair) for pair in pairs))


@given(losses=_losses, factor=st.sampled_from([0.001, 1.0, 1e6]))
def test_regret_knows_no_scale(losses, factor):
    spread = np.nan_to_num(losses).max(axis=1) - np.nan_to_num(losses).min(axis=1)
    losses = losses[spread > 1e-3]
    found = regrets(losses)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.min(axis=1) == 0).all()
    np.testing.assert_allclose(regrets(losses * factor), found, atol=1e-6)


def test_partitions_that_no_setting_fits_say_nothing():
    losses = np.array([[np.nan, np.nan, np.nan], [2.0, 1.0, np.nan], [2.0, np.nan, 1.0]])
    assert regrets(losses).shape == (2, 3)
    assert sorted(pick(losses, 3).places) == [0, 1, 2]
    assert pick(losses[:1], 3).places == (0,)
