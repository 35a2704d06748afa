"""Odd inputs hold what they are named for, wherever the model's own limits lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.exports.proof.odd_inputs import make_odd_cases
from partwise.models.guards import Guard
from partwise.models.signature import Feature, Signature, Tensor, feature_tensors

RANDOM = np.random.default_rng(0)


def signature(**shapes) -> Signature:
    return Signature(
        inputs=tuple(
            Tensor(name=name, dtype=str(values.dtype), shape=(None, *values.shape[1:]))
            for name, values in shapes.items()
        ),
        outputs=(Tensor(name="y", dtype="float64", shape=(None,)),),
        layout="custom",
        prediction="y",
        model_type="tests.None",
    )


def total(feeds):
    return {"y": np.zeros(len(next(iter(feeds.values()))))}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 4, 30), (0, 3)])
def test_each_kind_of_float_is_put_into_places_and_whole_rows(dtype, shape):
    feeds = {"x": RANDOM.normal(size=shape).astype(dtype)}
    before = feeds["x"].copy()
    cases = {case.name: case for case in make_odd_cases(signature(**feeds), feeds, total)}
    np.testing.assert_array_equal(feeds["x"], before)
    assert {case.kind for case in cases.values()} == {"odd"}
    limits = np.finfo(dtype)
    held = {
        "NaN in 'x'": np.isnan,
        "inf in 'x'": lambda x: x == np.inf,
        "-inf in 'x'": lambda x: x == -np.inf,
        "zeros and denormals in 'x'": lambda x: np.abs(x) <= limits.smallest_normal,
        f"+-{float(limits.max):.4g} in 'x'": lambda x: np.abs(x) == limits.max,
    }
    for name, is_odd in held.items():
        values = cases[name].feeds["x"]
        assert values.dtype == np.dtype(dtype)
        counts = is_odd(values.reshape(len(values), -1)).sum(1)
        assert (counts >= 1).all()
        if "+-" not in name:
            assert counts.max() == max(1, np.prod(shape[1:])), "a whole row"
    assert cases["NaN in 'x'"].guards == (Guard(input="x", refuses="nan"),)
    zeros = cases["zeros and denormals in 'x'"].feeds["x"]
    assert np.signbit(zeros[zeros == 0]).any()
    assert zeros[zeros > 0].min() == limits.smallest_subnormal


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_inputs_with_their_axes_in_another_order_hold_the_same_odd_values(dtype):
    """As images that a function made of rows with the channels last."""
    images = (9 * RANDOM.random(size=(5, 4, 3, 2))).astype(dtype)
    moved, plain = (
        make_odd_cases(signature(x=x), {"x": x}, total)
        for x in (images.transpose(0, 3, 1, 2), images.transpose(0, 3, 1, 2).copy())
    )
    for one, other in zip(moved, plain, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.feeds["x"], other.feeds["x"])


@settings(max_examples=60)
@given(
    limits=st.tuples(st.integers(-3000, 0), st.integers(9, 10**6)),
    dtype=st.sampled_from(["int16", "int32", "int64", "uint8", "uint64"]),
)
def test_whole_numbers_are_tried_where_the_model_begins_to_raise(limits, dtype):
    whole = np.iinfo(dtype)
    lowest, highest = max(limits[0], whole.min), min(limits[1], whole.max)
    feeds = {"shop": np.arange(10).astype(dtype)[:, None]}
    calls = []

    def predict(given):
        calls.append(given)
        for number in given["shop"].reshape(-1).tolist():
            if not lowest <= number <= highest:
                raise IndexError(f"{number} is out of range")
        return total(given)

    cases = make_odd_cases(signature(**feeds), feeds, predict)
    raises = {int(case.name.split()[0]): case.raises for case in cases}
    assert {whole.min, whole.max, lowest, highest, 0} <= raises.keys()
    for number, why in raises.items():
        assert bool(why) == (not lowest <= number <= highest)
    if highest < whole.max:
        assert highest + 1 in raises
    if lowest > whole.min:
        assert lowest - 1 in raises
    for case in cases:
        number = int(case.name.split()[0])
        wanted = {True: (), False: ("above", highest) if number > highest else ("below", lowest)}
        found = tuple((guard.refuses, guard.limit) for guard in case.guards)
        assert found == ((wanted[not case.raises],) if case.raises else ())
    assert len(calls) < 140, "a large model takes a second for each"


def test_columns_are_varied_together_and_bools_both_ways():
    features = tuple(Feature(name=name) for name in "abc")
    described = Signature(
        inputs=feature_tensors(features, "float32", "columns"),
        outputs=(),
        layout="columns",
        features=features,
        prediction="y",
        model_type="tests.None",
    )
    feeds = {name: RANDOM.normal(size=(4, 1)).astype(np.float32) for name in "abc"}
    cases = {case.name: case for case in make_odd_cases(described, feeds, total)}
    assert {guard.input for guard in cases["NaN"].guards} == {*"abc"}
    for name in "abc":
        column = cases["NaN"].feeds[name]
        assert 0 < np.isnan(column).sum() < len(column)
    mask = {"mask": np.array([[True, False]] * 3)}
    cases = make_odd_cases(signature(**mask), mask, total)
    assert [case.name for case in cases] == ["only true in 'mask'", "only false in 'mask'"]
    assert [case.feeds["mask"].tolist() for case in cases] == [[[True, True]], [[False, False]]]
