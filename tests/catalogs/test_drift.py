"""Drift: found where there is some, and not where there is none, of whatever rows."""

import math
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.catalogs.drift import (
    FeatureDrift,
    chi_square_tail,
    drift_of,
    flagged,
)
from partwise.tables.sketches import decode, encode, make_sketch
from tests.lazily import Lazily

stats = Lazily("scipy.stats")


def drift_table(found: list[FeatureDrift]) -> pa.Table:
    p_values = pa.array([each.p_value for each in found], pa.float64())
    return pa.table({"kind": [each.kind for each in found], "p_value": p_values})


def compared(then: Any, now: Any) -> FeatureDrift:
    sketch = decode(encode(make_sketch(pa.table({"x": then}))))
    [found] = drift_of(sketch, pa.table({"x": now}))
    return found


DRAWS = {
    "numbers": lambda random, size: random.normal(size=size),
    "tied": lambda random, size: random.normal(size=size).round(1),
    "few values": lambda random, size: random.integers(0, 4, size),
    "mostly zero": lambda random, size: random.poisson(0.3, size),
    "constant": lambda random, size: np.full(size, 3.0),
    "all null": lambda random, size: pa.nulls(size, pa.float64()),
    "some missing": lambda random, size: np.where(
        random.random(size) < 0.2, np.nan, random.normal(size=size)
    ),
    "categories": lambda random, size: random.choice(list("abcde"), size),
    "many categories": lambda random, size: random.geometric(0.05, size).astype(str),
    "text of each row": lambda random, size: random.random(size).astype(str),
}


def without_drift(keys: int, then: int, now: int, draw: Any, features: int) -> np.ndarray:
    """Whether each feature of each key is flagged, of shape (keys, features)."""
    random = np.random.default_rng(33)
    found: list[FeatureDrift] = []
    for _ in range(keys):
        old, new = (
            pa.table({f"x{n}": draw(random, size) for n in range(features)}) for size in (then, now)
        )
        found += drift_of(make_sketch(old), new)
    table = drift_table(found)
    assert table.num_rows == keys * features
    return np.asarray(flagged(table)).reshape(keys, features)


@pytest.mark.parametrize("sizes", [(60, 30), (200, 100), (1000, 1000)], ids=str)
@pytest.mark.parametrize("kind", DRAWS)
def test_without_drift_hardly_a_key_is_flagged(kind, sizes):
    assert without_drift(50, *sizes, DRAWS[kind], features=4).any(axis=1).mean() <= 0.02


def test_p_values_are_no_smaller_than_chance_makes_them():
    """That is what flags rest on: of all, a share of 1/100 at most has p below 0.01."""
    random = np.random.default_rng(3)
    for draw in (DRAWS["numbers"], DRAWS["few values"], DRAWS["categories"]):
        pairs = ((draw(random, 60), draw(random, 30)) for _ in range(2000))
        p_values = np.array([compared(*pair).p_value for pair in pairs], float)
        for level in (0.1, 0.01, 0.002):
            assert np.mean(p_values < level) <= level + 3 * math.sqrt(level / 2000)


def test_a_shift_of_two_sigma_is_found_among_many_keys():
    random = np.random.default_rng(2)
    found, is_shifted = [], random.random(400) < 0.05
    for shifted in is_shifted:
        old = {f"x{n}": random.normal(size=60) for n in range(8)}
        new = {f"x{n}": random.normal(size=30) for n in range(8)}
        new["x3"] += 2 * shifted
        found += drift_of(make_sketch(pa.table(old)), pa.table(new))
    flags = np.asarray(flagged(drift_table(found))).reshape(400, 8)
    assert flags[is_shifted, 3].mean() >= 0.95
    assert flags.sum() - flags[is_shifted, 3].sum() <= 1


def test_psi_is_what_chance_makes_of_it_where_nothing_changed():
    random = np.random.default_rng(1)
    pairs = [compared(random.normal(size=200), random.normal(size=100)) for _ in range(300)]
    psi = [each.psi for each in pairs if each.psi is not None and each.psi_by_chance is not None]
    by_chance = [each.psi_by_chance for each in pairs if each.psi_by_chance is not None]
    assert np.mean(psi) == pytest.approx(np.mean(by_chance), rel=0.15)
    small = [compared(random.normal(size=60), random.normal(size=30)).psi for _ in range(300)]
    assert np.mean(np.array(small, float) > 0.25) > 0.05, "a bare 0.25 is an alarm by chance"


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ([5.0] * 60, [4.0] * 30),
        ([5.0] * 1000, [6.0] * 20),
        ([0, 1] * 30, [0] * 30),
        ([True, False] * 30, [True] * 30),
        ([*np.arange(60.0)], [None] * 30),
        ([None] * 60, [*np.arange(30.0)]),
        (["a", "b"] * 30, ["a", "c"] * 15),
        (["a", "b"] * 500, ["b", None, "c"] * 10),
        ([*map(str, range(60))], ["1"] * 30),
        ([*np.random.default_rng(0).normal(size=1000)], [None] * 10 + [0.0] * 20),
    ],
)
def test_of_odd_columns_a_change_is_found(then, now):
    if now == [None] * 30:
        now = pa.array(now, pa.float64())
    if then == [None] * 60:
        then = pa.array(then, pa.float64())
    found = compared(then, now)
    assert found.p_value < 1e-4
    assert found.rows_then == len(then)
    assert found.rows_now == len(now)


def test_of_few_rows_nobody_can_tell():
    assert compared([1.0, 2.0, 3.0], [2.0]).psi is None
    assert compared([1.0, 2.0] * 30, [1.0, 2.0]).p_value == 1
    assert drift_of(make_sketch(pa.table({"x": [1.0]})), pa.table({"x": pa.nulls(0)})) == []
    assert drift_of(make_sketch(pa.table({"x": pa.nulls(0)})), pa.table({"x": [1.0]})) == []


def test_missing_rates_and_new_categories_are_counted():
    found = compared(["a", "b", None, "a"], ["c", "d", "c", "e", "f", None, None, "a"])
    assert (found.missing_then, found.missing_now) == (0.25, 0.25)
    assert (found.new_categories, found.new_examples) == (4, ("c", "d", "e"))
    assert compared([*map(str, range(17))], ["x"]).new_categories is None, "17 are not all kept"
    assert compared([1.0], [2.0]).new_categories is None


def test_rows_that_are_all_of_a_new_category_are_found():
    """Without a warning: of what the training had there is nothing now."""
    found = compared(["a", "b"] * 5000, ["c"] * 20)
    assert (found.new_categories, found.psi_by_chance) == (1, None)
    assert (found.p_value < 1e-9, found.psi) == (True, None)


def test_columns_that_are_gone_or_of_another_kind_are_left_out():
    sketch = make_sketch(pa.table({"x": [1.0], "y": [2], "s": ["a"]}), label="y")
    found = drift_of(sketch, pa.table({"y": [1], "x": ["a"], "z": [1.0], "s": pa.nulls(1)}))
    assert [(each.feature, each.is_label) for each in found] == [("y", True), ("s", False)]


def test_times_are_compared_and_never_flagged():
    """Later rows are later: each key would be flagged, each night."""
    days = pa.array(np.arange(90, dtype=np.int32), pa.date32())
    then, now = days[:60], days[60:]
    found = compared(then, now)
    assert found.kind == "time"
    assert found.p_value < 1e-9
    assert flagged(drift_table([found])).to_pylist() == [False]
    later = pa.array(np.arange(60).astype("datetime64[D]").astype("datetime64[ns]"))
    assert compared(then, later).p_value == 1, "in whichever unit"


def test_a_million_rows_are_flagged_in_a_second_as_scipy_does():
    random = np.random.default_rng(0)
    p_values = random.random(1_000_000)
    p_values[:5000] *= 1e-6
    given = pa.array(p_values, mask=np.arange(1_000_000) >= 990_000)
    table = pa.table({"kind": pa.repeat("number", 1_000_000), "p_value": given})
    began = time.process_time()
    flags = np.asarray(flagged(table, 0.02))
    assert time.process_time() - began < 5
    expected = stats.false_discovery_control(p_values[:990_000]) <= 0.02
    assert (flags[:990_000] == expected).all()
    assert not flags[990_000:].any()
    low = np.flatnonzero(p_values[:990_000] <= 0.02)
    assert (np.asarray(flagged(table.take(pa.array(low)), 0.02, tests=990_000)) == flags[low]).all()
    assert not np.asarray(flagged(table.slice(990_000))).any()
    assert len(flagged(table.slice(0, 0))) == 0


def test_the_tail_of_chi_square_is_that_of_scipy():
    for degrees in range(1, 18):
        for value in (0.0, 1e-9, 0.5, 3.0, 17.0, 60.0, 300.0):
            expected = stats.chi2.sf(value, degrees)
            assert chi_square_tail(value, degrees) == pytest.approx(expected, rel=1e-9)
    assert chi_square_tail(1e6, 4) == 0
