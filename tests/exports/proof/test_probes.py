"""What the probes hold, whatever the model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.proof.probes import EMPTY_BATCH, MOST_ROWS, ONE_ROW, make_probes
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.models.signature import (
    Feature,
    Signature,
    Tensor,
    feature_tensors,
    feeds_of_matrix,
    matrix_of_feeds,
)

CATEGORIES = ("north", "south", "west")


def description(dtype, layout, features, thresholds) -> ModelDescription:
    signature = Signature(
        inputs=feature_tensors(features, dtype, layout),
        outputs=(Tensor(name="y", dtype=dtype, shape=(None, 1)),),
        layout=layout,
        features=tuple(features),
        prediction="y",
        model_type="tests.Trees",
    )
    return ModelDescription(
        signature=signature, tolerance=Tolerance(atol=0, rtol=0), trees=stumps(thresholds, features)
    )


def stumps(thresholds, features) -> TreeEnsemble:
    """Trees of one split; numbers of a feature with categories are one set."""
    is_member = [feature.categories is not None for feature in features]
    splits = [
        (place, split, False)
        for place, found in enumerate(thresholds)
        for split in ([] if is_member[place] else found)
    ] + [(place, 0.0, True) for place in np.flatnonzero(is_member)]
    places = np.arange(len(splits))
    return TreeEnsemble(
        dtype="float64",
        comparison="LEQ",
        n_targets=1,
        roots=places,
        features=np.array([place for place, _, _ in splits], dtype=np.int64),
        splits=np.array([split for _, split, _ in splits], dtype=np.float64),
        is_member=np.array([member for _, _, member in splits], dtype=bool),
        true_branches=~(2 * places),
        false_branches=~(2 * places + 1),
        missing_tracks_true=places % 2 == 0,
        sets=[thresholds[place].astype(int) for place in np.flatnonzero(is_member)],
        leaf_targets=np.zeros(2 * len(splits), dtype=np.int64),
        leaf_weights=np.arange(2.0 * len(splits)),
    )


def matrices(probes, signature) -> dict[str, np.ndarray]:
    return {name: matrix_of_feeds(signature, feeds) for name, feeds in probes.cases.items()}


FINITE = st.floats(-1e30, 1e30)
THRESHOLDS = st.lists(
    st.lists(FINITE, max_size=12).map(lambda found: np.unique(np.array(found, np.float64))),
    min_size=1,
    max_size=3,
)


@settings(max_examples=60)
@given(
    thresholds=THRESHOLDS,
    dtype=st.sampled_from(["float32", "float64"]),
    layout=st.sampled_from(["tensor", "columns"]),
    n_rows=st.integers(0, 5),
)
def test_every_threshold_is_met_and_passed_by_one_ulp(thresholds, dtype, layout, n_rows):
    features = [Feature(name=f"f{place}") for place in range(len(thresholds))]
    described = description(dtype, layout, features, thresholds)
    real = np.linspace(-3, 7, n_rows * len(features)).reshape(n_rows, len(features))
    real = real.astype(dtype)
    probes = make_probes(described, feeds_of_matrix(described.signature, real))
    bases = real if n_rows else np.zeros((1, len(features)), dtype)
    found = matrices(probes, described.signature)
    for place, numbers in enumerate(thresholds):
        column = found["branches"][:, place] if "branches" in found else []
        inf = np.array(np.inf, dtype)[()]
        for threshold in numbers:
            # The largest number that the threshold lets pass, and the next one.
            on = threshold.astype(dtype)
            on = on if on <= threshold else np.nextafter(on, -inf)
            assert {on, np.nextafter(on, inf)} <= {*column}
    for name, rows in found.items():
        assert rows.dtype == np.dtype(dtype)
        if name not in (ONE_ROW, EMPTY_BATCH):
            # Each row is a real one but for one feature at most.
            differing = (rows[:, None, :] != bases[None]).sum(axis=2).min(axis=1)
            assert differing.max(initial=0) <= 1, name
    assert sum(len(rows) for name, rows in found.items() if name != "branches") <= MOST_ROWS
    assert len(found[EMPTY_BATCH]) == 0
    np.testing.assert_array_equal(found[ONE_ROW], bases[:1])
    assert bool(probes.notes) == (n_rows == 0)


def numeric(dtype):
    described = description(
        dtype, "tensor", [Feature(name="a"), Feature(name="b")], [np.array([0.1]), np.array([])]
    )
    probes = make_probes(described, {"features": np.full((4, 2), 3.0, dtype)})
    return matrices(probes, described.signature)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_numbers_are_put_into_every_feature(dtype):
    found = numeric(dtype)
    tiny = np.array(1e-35, dtype)[()]
    inf = np.array(np.inf, dtype)[()]
    for place in range(2):
        odd = found["odd numbers"][:, place]
        assert np.isnan(odd).any()
        zeros = odd[odd == 0]
        assert {*np.signbit(zeros)} == {True, False}
        for number in (tiny, np.nextafter(tiny, inf), np.nextafter(tiny, -inf)):
            assert {number, -number} <= {*odd}
        largest = 1e300 if dtype == "float64" else np.finfo(np.float32).max
        assert {largest, -largest} <= {*odd}
        assert np.array(1.7e9 + 0.123456, dtype)[()] in odd
        assert {np.inf, -np.inf} <= {*found["infinities"][:, place]}
    # Of their own, since not every library takes them.
    for name in ("odd numbers", "branches"):
        assert not np.isinf(found[name]).any()


@pytest.mark.parametrize("layout", ["tensor", "columns"])
def test_every_category_and_what_is_none_is_probed(layout):
    features = [Feature(name="a"), Feature(name="region", categories=CATEGORIES)]
    described = description("float32", layout, features, [np.array([1.0]), np.array([0.0, 2.0])])
    real = np.array([[0.5, 0], [1.5, 2]], np.float32)
    probes = make_probes(described, feeds_of_matrix(described.signature, real))
    if layout == "tensor":
        codes = probes.cases["categories"]["features"][:, 1]
        assert {0.0, 1.0, 2.0, 3.0, 1e6} <= {*codes}
        assert np.isnan(codes).any()
    else:
        texts = {*probes.cases["categories"]["region"][:, 0]}
        assert {*CATEGORIES} < texts
    branches = matrices(probes, described.signature)["branches"][:, 1]
    assert {*branches[~np.isnan(branches)]} == {0.0, 1.0, 2.0}, "members, and one that is none"
    assert np.isnan(branches).any()


def test_a_model_of_many_thresholds_is_probed_evenly_and_says_so(monkeypatch):
    monkeypatch.setattr("partwise.exports.proof.probes.MOST_WAYS", 5000)
    features = [Feature(name=f"f{place}") for place in range(40)]
    thresholds = [np.arange(500.0) + place for place in range(40)]
    described = description("float64", "tensor", features, thresholds)
    real = np.random.default_rng(0).normal(size=(50, 40))
    probes = make_probes(described, {"features": real})
    found = matrices(probes, described.signature)
    assert 4900 <= len(found["branches"]) <= 5100
    assert probes.metrics["export_ways"] == 60_000
    assert probes.metrics["export_ways_taken"] == len(found["branches"])
    for place in range(40):
        assert ~np.isin(found["branches"][:, place], real[:, place]).all()
    told = " ".join(probes.notes)
    assert "Rows take 5001 of the 60000 ways at the nodes of the trees, evenly spread." in told
    assert "odd numbers are probed" in told


def test_probes_are_the_same_every_time():
    first, again = numeric("float64"), numeric("float64")
    assert first.keys() == again.keys()
    for name, rows in first.items():
        np.testing.assert_array_equal(rows, again[name])


def test_inputs_of_ones_own_are_perturbed_and_cut():
    signature = Signature(
        inputs=(
            Tensor(name="x", dtype="float32", shape=(None, 2)),
            Tensor(name="ids", dtype="int64", shape=(None,)),
            Tensor(name="scale", dtype="float32", shape=(1,)),
        ),
        outputs=(Tensor(name="y", dtype="float32", shape=(None, 1)),),
        layout="custom",
        prediction="y",
        model_type="tests.Module",
    )
    described = ModelDescription(signature=signature, tolerance=Tolerance(atol=0, rtol=0))
    feeds = {
        "x": np.arange(6, dtype=np.float32).reshape(3, 2),
        "ids": np.arange(3),
        "scale": np.ones(1, np.float32),
    }
    probes = make_probes(described, feeds)
    assert {*probes.cases} == {"perturbed rows", ONE_ROW, EMPTY_BATCH}
    perturbed = probes.cases["perturbed rows"]
    assert perturbed["x"].dtype == np.float32
    assert (perturbed["x"] != feeds["x"]).all()
    assert np.isfinite(perturbed["x"]).all()
    np.testing.assert_array_equal(perturbed["ids"], feeds["ids"])
    for name, length in ((ONE_ROW, 1), (EMPTY_BATCH, 0)):
        case = probes.cases[name]
        assert {n: len(v) for n, v in case.items()} == {"x": length, "ids": length, "scale": 1}
