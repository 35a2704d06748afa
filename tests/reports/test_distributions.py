"""A histogram holds every partition once, and the ends name the right ones."""

import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partwise.formatting import number
from partwise.reports.distributions import describe_distribution, worst_end
from partwise.reports.scales import Scale, scale_of
from partwise.runs.metrics import median

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def describe(values, name="x"):
    array = np.array(values, dtype=float)
    return describe_distribution(name, np.arange(len(array)), array, lambda row: f"k{row}")


@given(st.lists(st.one_of(st.floats(), st.integers(-50, 50).map(float)), max_size=60))
@example([0.0] * 16 + [1.7976931348623157e308])
def test_every_partition_is_counted_once(values) -> None:
    found = describe(values)
    finite = [value for value in values if np.isfinite(value)]
    assert found.count == len(finite)
    assert found.count + sum(count for _, count, _ in found.odd) == len(values)
    if found.bins:
        assert sum(bar.count for bar in found.bins) == len(finite)
        assert max(bar.height for bar in found.bins) == 100
    if finite and min(finite) == max(finite):
        assert (found.bins, found.ends) == ((), ())
        assert found.constant is not None
    for end in found.ends:
        rows = [int(key[1:]) for key, _ in end.partitions]
        extreme = min(finite) if "lowest" in end.title else max(finite)
        assert values[rows[0]] == extreme


@given(st.lists(st.one_of(FINITE, st.integers(-50, 50).map(float)), min_size=1, max_size=60))
@example([1.0, 2.0])
@example([1.7976931348623157e308] * 2 + [1.0, 1.7e308])
def test_the_median_is_that_of_numpy(values) -> None:
    found = dict(describe(values).quantiles)
    array = np.array(values)
    # The mean of two numbers may be more than a double holds on the way, but is none itself.
    expected = float(np.median(array)) if np.abs(array).max() < 1e307 else median(array)
    assert found["median"] == number(expected)
    assert array.min() <= expected <= array.max()


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("rmse", "highest"),
        ("valid.RMSE", "highest"),
        ("holdout_mae", "highest"),
        ("trainLoss", "highest"),
        ("quantile-loss@0.9", "highest"),
        ("r2", "lowest"),
        ("R2_test", "lowest"),
        ("roc_auc", "lowest"),
        ("f1", "lowest"),
        ("precision@10", "lowest"),
        ("score_error", "highest"),
        ("days", None),
        ("terror", None),
        ("backlog", None),
        ("", None),
    ],
)
def test_which_end_is_bad_is_told_by_the_name(name, end) -> None:
    assert worst_end(name) == end


def test_the_bad_end_stands_first() -> None:
    high, low = describe([1, 2, 3, 4, 5, 6, 7], "rmse").ends
    assert (high.title, high.is_worst, high.partitions[0]) == ("worst (highest)", True, ("k6", "7"))
    assert (low.title, low.is_worst, low.partitions[0]) == ("best (lowest)", False, ("k0", "1"))
    low, high = describe([1, 2, 3, 4, 5, 6, 7], "auc").ends
    assert (low.title, high.title) == ("worst (lowest)", "best (highest)")
    assert [end.title for end in describe([1, 2], "days").ends] == ["lowest", "highest"]


def test_those_that_share_the_last_place_are_counted() -> None:
    low, high = describe([0] * 10 + [1, 2, 3]).ends
    assert (low.tied, high.tied) == (7, 0)


def test_a_few_far_values_do_not_hide_the_others() -> None:
    found = describe([*np.linspace(10, 20, 999), 1e6])
    assert found.bins[-1].is_open
    assert found.bins[-1].text.endswith("and more")
    assert sum(bar.count > 0 for bar in found.bins) > 15
    highest = found.ends[1].partitions[0]
    assert highest == ("k999", "1,000,000")


def test_values_over_many_sizes_have_a_logarithmic_axis() -> None:
    found = describe(np.logspace(-3, 3, 200))
    assert found.is_log
    assert {tick.text for tick in found.ticks} >= {"0.1", "10"}


def test_whole_numbers_have_a_bar_each() -> None:
    found = describe([1, 1, 2, 4])
    assert [(bar.text, bar.count) for bar in found.bins] == [("1", 2), ("2", 1), ("3", 0), ("4", 1)]
    assert [(tick.text, tick.at) for tick in found.ticks] == [
        ("1", 12.5),
        ("2", 37.5),
        ("3", 62.5),
        ("4", 87.5),
    ]
    assert found.median_at == 25.0  # 1.5, between the first bar's middle and the second's


@given(st.lists(FINITE, min_size=1, max_size=20))
@example([sys.float_info.max])
@example([-sys.float_info.max, sys.float_info.max])
def test_places_are_within_the_axis_and_ticks_on_it(values) -> None:
    array = np.array(values)
    scale = scale_of(array)
    # No axis is longer than a double can hold: larger values are at its ends.
    shown = np.clip(array, -sys.float_info.max / 4, sys.float_info.max / 4)
    assert scale.low <= shown.min() <= shown.max() <= scale.high
    places = scale.place(np.sort(array))
    assert np.all((places >= 0) & (places <= 100))
    assert np.all(np.diff(places) >= 0)
    ticks = scale.ticks(str, 5)
    assert len(ticks) <= 5
    assert all(0 <= tick.at <= 100 for tick in ticks)


@pytest.mark.parametrize(
    ("seconds", "texts"),
    [
        (7, ["0 s", "2 s", "4 s", "6 s"]),
        (0.03, ["0 s", "0.01 s", "0.02 s", "0.03 s"]),
        (300, ["0", "1 min", "2 min", "3 min", "4 min"]),
        (9000, ["0", "30 min", "1 h", "1 h 30 min", "2 h"]),
        (400_000, ["0", "24 h", "48 h", "72 h", "96 h"]),
    ],
)
def test_a_clock_axis_has_ticks_that_people_count_in(seconds, texts) -> None:
    assert [tick.text for tick in Scale(low=0, high=seconds).clock_ticks()] == texts
