"""Properties of the comparison."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from partwise.exports.proof.case_files import ArrayReader, ArrayWriter
from partwise.exports.proof.comparison import Comparison
from partwise.exports.proof.verdict import Case, Expectation, MetricGate, Verdict
from partwise.exports.protocol import Tolerance
from partwise.models.signature import Signature, Tensor

TOLERANCE = Tolerance(atol=1e-6, rtol=1e-4)
EXPECTATION = Expectation(
    format="onnx",
    signature=Signature(
        inputs=(),
        outputs=(Tensor(name="y", dtype="float64", shape=(None,)),),
        layout="custom",
        prediction="y",
        model_type="tests.None",
    ),
    tolerance=TOLERANCE,
    is_constant=True,
)
DOUBLES = arrays(
    np.float64,
    array_shapes(max_dims=3, max_side=4),
    elements=st.floats(width=64, allow_subnormal=True),
)


def compare(expected, actual, expectation=EXPECTATION) -> Verdict:
    comparison = Comparison(expectation)
    comparison.add(Case(name="c", feeds={}, expected={"y": expected}), {"y": actual})
    return comparison.verdict()


def classes(labels) -> Expectation:
    signature = EXPECTATION.signature.model_copy(update={"class_labels": labels})
    return replace(EXPECTATION, signature=signature)


@given(values=DOUBLES)
def test_anything_equals_itself(values):
    verdict = compare(values, values.copy())
    assert verdict.findings == ()
    assert verdict.metrics["export_differing"] == 0
    assert verdict.metrics["export_max_abs_diff"] == 0


@pytest.mark.parametrize("kind", ["real", "odd"])
def test_an_output_without_rows_is_compared(kind):
    comparison = Comparison(EXPECTATION)
    case = Case(name="c", feeds={}, expected={"y": np.array(1.0)}, kind=kind)
    comparison.add(case, {"y": np.array(2.0)})
    (finding,) = comparison.verdict().findings
    assert "by 1 at most, at its one value" in finding.message


def test_differences_of_the_largest_numbers_are_told_relatively():
    expected, given = np.array([1e30, 2.0]), np.array([1e30 * (1 + 1e-6), 2.0 + 1e-7])
    for kind, largest in (("odd", 0.0), ("real", 1e24)):
        comparison = Comparison(EXPECTATION)
        comparison.add(Case(name="c", feeds={}, expected={"y": expected}, kind=kind), {"y": given})
        verdict = comparison.verdict()
        assert verdict.findings == ()
        assert verdict.metrics["export_max_abs_diff"] == pytest.approx(largest, rel=1e-3)
        assert verdict.metrics["export_max_rel_diff"] == pytest.approx(1e-6, rel=1e-3)


@given(expected=DOUBLES, data=st.data())
def test_the_verdict_is_that_of_numpy(expected, data):
    """`numpy.isclose` is written by others, and its formula is the same."""
    places = st.integers(0, expected.size - 1)
    changes = st.sampled_from([0.0, 1e-7, 9e-7, 2e-6, 1.0, np.nan, np.inf, -np.inf])
    factors = st.sampled_from([0.0, 0.4, 0.9, 1.1, -0.9, -1.1])
    actual = expected.copy()
    for place in data.draw(st.sets(places, max_size=3)):
        with np.errstate(over="ignore", invalid="ignore"):
            actual.flat[place] *= 1 + data.draw(factors) * TOLERANCE.rtol
            actual.flat[place] += data.draw(changes)
    with np.errstate(over="ignore", invalid="ignore"):
        close = np.isclose(
            actual, expected, rtol=TOLERANCE.rtol, atol=TOLERANCE.atol, equal_nan=True
        )
    verdict = compare(expected, actual)
    assert (verdict.findings == ()) == bool(close.all())
    assert verdict.metrics["export_differing"] == np.count_nonzero(~close)
    assert sum(finding.count for finding in verdict.findings) == np.count_nonzero(~close)


@given(values=DOUBLES, data=st.data())
def test_one_changed_value_is_found_where_it_is(values, data):
    place = data.draw(st.integers(0, values.size - 1))
    actual = values.copy()
    actual.flat[place] = 2e9 if not values.flat[place] > 1e9 else -2e9
    (finding,) = compare(values, actual).findings
    assert finding.check == ("values" if np.isfinite(values.flat[place]) else "nan")
    assert finding.count == 1
    row, *rest = np.unravel_index(place, values.shape)
    where = f"at row {row}" + (f", column {', '.join(str(int(i)) for i in rest)}" if rest else "")
    assert f"{where}, where" in finding.message


@pytest.mark.parametrize(
    ("given", "check", "told"),
    [
        (np.array([[1.0], [2.0]]), "shape", r"shape \(2, 1\), where \(2,\) is expected"),
        (np.array([1.0, 2.0], np.float32), "dtype", "is float32, where float64 is expected"),
        (np.array(["1", "2"], object), "dtype", "is string, where float64 is expected"),
        (np.array([1.0, np.inf]), "nan", r"2\.0 is expected and inf given"),
        (np.array([1.0, np.nan]), "nan", r"2\.0 is expected and nan given"),
        (np.array([1.0, 2.1]), "values", r"0\.1 at most, at row 1, .*relative at most 0\.05"),
    ],
)
def test_each_difference_has_its_check(given, check, told):
    (finding,) = compare(np.array([1.0, 2.0]), given).findings
    assert finding.check == check
    with pytest.raises(Exception, match=told) as raised:
        compare(np.array([1.0, 2.0]), given).check()
    assert raised.value.check == check


def test_a_small_difference_of_doubles_is_told_in_full():
    expected = np.array([1.0, 1 / 3])
    exact = replace(EXPECTATION, tolerance=Tolerance(atol=0, rtol=0))
    (finding,) = compare(expected, np.nextafter(expected, 0), exact).findings
    assert "1.0 is expected and 0.9999999999999999 given" in finding.message


def test_a_gate_that_was_not_applied_is_told():
    gate = MetricGate(case="held-out rows", labels=None, task="regression", max_loss=1.0)
    values = np.array([1.0, 2.0])
    (finding,) = compare(values, values, replace(EXPECTATION, gate=gate)).findings
    assert finding.check == "metric"
    assert "'held-out rows' were not compared" in finding.message


@pytest.mark.parametrize("dtype", ["float32", "int64", "object"])
def test_an_output_without_rows_is_compared_too(dtype):
    first, second = np.array(1, dtype), np.array(2, dtype)
    assert compare(first, first.copy()).findings == ()
    (finding,) = compare(first, second).findings
    assert (finding.check, finding.count) == ("values", 1)
    assert "at its one value, where 1" in finding.message


def test_infinities_of_another_sign_differ():
    (finding,) = compare(np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])).findings
    assert (finding.check, finding.count) == ("nan", 1)


def test_a_difference_too_large_for_a_double_is_a_difference():
    found = compare(np.array([1e308, 1.0]), np.array([-1e308, 1.0]))
    assert found.findings[0].check == "values"
    assert found.findings[0].max_difference == np.inf


def test_outputs_without_classes_are_compared_exactly():
    (finding,) = compare(np.array([1, 2, 9]), np.array([1, 5, 7])).findings
    assert (finding.check, finding.count, finding.max_difference) == ("values", 2, 3.0)
    assert "first at row 1, where 2 is expected and 5 given" in finding.message


@given(
    gap=st.sampled_from([0.0, 1e-5, 7e-5, 1e-4, 2e-4, 1e-3, 0.1]),
    labels=st.sampled_from([(0, 1, 2), ("a", "b", "c"), (7, -1, 3)]),
)
def test_labels_may_differ_only_where_classes_are_equally_likely(gap, labels):
    probabilities = np.array([[0.45 + gap, 0.45, 0.1 - gap], [0.9, 0.1, 0.0]])
    dtype = object if isinstance(labels[0], str) else np.int64
    right, other = np.array([labels[0]] * 2, dtype), np.array([labels[1], labels[0]], dtype)
    impossible = np.array([labels[2], labels[0]], dtype)
    both = 2 * TOLERANCE.atol + TOLERANCE.rtol * (0.9 + gap)
    for wrong, is_tie in ((other, gap <= both), (impossible, False)):
        comparison = Comparison(classes(labels))
        case = Case(name="c", feeds={}, expected={"label": right, "y": probabilities})
        comparison.add(case, {"label": wrong, "y": probabilities})
        verdict = comparison.verdict()
        assert (verdict.findings == ()) == is_tie
        assert verdict.metrics["export_label_ties"] == is_tie
        assert verdict.metrics["export_labels_differing"] == (not is_tie)


def test_a_label_that_is_no_class_is_no_tie():
    comparison = Comparison(classes(("a", "b")))
    expected = {"label": np.array(["b", "b"], object), "y": np.full((2, 2), 0.5)}
    case = Case(name="c", feeds={}, expected=expected)
    comparison.add(case, {**expected, "label": np.array(["z", "b"], object)})
    (finding,) = comparison.verdict().findings
    assert (finding.check, finding.count) == ("labels", 1)


def test_a_missing_output_is_told_and_the_others_compared():
    comparison = Comparison(EXPECTATION)
    values = np.array([1.0, 2.0])
    case = Case(name="c", feeds={}, expected={"y": values, "z": values})
    comparison.add(case, {"z": values + 1})
    found = comparison.verdict().findings
    assert [(finding.check, finding.output) for finding in found] == [
        ("outputs", ""),
        ("values", "z"),
    ]


@pytest.mark.parametrize(
    ("batches", "is_vacuous"),
    [
        ([np.zeros(3), np.zeros(2)], True),
        ([np.zeros(3), np.ones(2)], False),
        ([np.full(4, np.nan)], True),
        ([np.array([[1.0, 2.0], [1.0, 2.0]])], True),
        ([np.array([[1.0, 2.0], [2.0, 1.0]])], False),
        ([np.array([1.0, np.nan])], False),
        ([np.zeros((1, 2)), np.zeros((1, 3))], True),
        ([np.zeros((1, 2)), np.ones((1, 3))], False),
        ([np.array([5.0])], True),
        ([np.array(5.0), np.array(6.0)], False),
        ([np.zeros(0)], True),
        ([], True),
    ],
)
def test_what_never_varies_over_all_cases_proves_nothing(batches, is_vacuous):
    comparison = Comparison(replace(EXPECTATION, is_constant=False))
    for batch in batches:
        comparison.add(Case(name="c", feeds={}, expected={"y": batch}), {"y": batch})
    found = [finding.check for finding in comparison.verdict().findings]
    assert found == (["vacuous"] if is_vacuous else [])


TEXTS = arrays(object, array_shapes(max_dims=2, max_side=3), elements=st.text(max_size=5))
NUMBERS = st.sampled_from(["float16", "float32", "int64", "uint8", "bool", ">f8"]).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=4))
)


@settings(max_examples=40)
@given(many=st.lists(TEXTS | NUMBERS | DOUBLES, max_size=4))
def test_arrays_travel_as_they_are(tmp_path_factory, many):
    path = tmp_path_factory.getbasetemp() / "arrays"
    with path.open("wb") as file:
        writer = ArrayWriter(file)
        places = [writer.add(array) for array in many]
    reader = ArrayReader(str(path))
    for array, place in zip(many, places, strict=True):
        found = reader.get(place)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
        assert found.flags.writeable


def test_what_is_no_number_or_text_does_not_travel(tmp_path):
    with (tmp_path / "arrays").open("wb") as file, pytest.raises(TypeError, match="complex128"):
        ArrayWriter(file).add(np.zeros(2, complex))


SCALED = replace(
    EXPECTATION, tolerance=Tolerance(atol=0, rtol=1e-4, scaled=1e-5), is_constant=False
)


def judged(expected, given, expectation=SCALED, odd=None) -> Verdict:
    """Compare real rows, and an odd case for which the file gives what the model does."""
    cases = [Case(name="held-out rows", feeds={}, expected={"y": expected})]
    if odd is not None:
        cases.append(Case(name="odd", feeds={}, expected={"y": odd}, kind="odd"))
    comparison = Comparison(expectation, cases)
    for case, actual in zip(cases, [given, odd], strict=False):
        comparison.add(case, {"y": actual})
    return comparison.verdict()


def checks(verdict) -> list[str]:
    return [finding.check for finding in verdict.findings]


NORMAL = np.random.default_rng(0).normal(size=40)


@pytest.mark.parametrize("size", [1e-300, 1e-13, 2e-6, 1e-5, 1.0, 1e13])
def test_outputs_of_every_size_are_judged_alike(size):
    values = NORMAL * size
    assert checks(judged(values, values + 5e-6 * size)) == []
    assert checks(judged(values, values + 5e-5 * size)) == ["values"]
    assert checks(judged(values, np.zeros(40))) == ["values"], "all leaves or weights are zero"


@pytest.mark.parametrize("large", [1e20, -1e300, np.inf, np.nan])
def test_one_odd_value_raises_nothing_that_is_allowed_elsewhere(large):
    few = np.append(NORMAL, [large])
    wrong = few.copy()
    wrong[3] += 1e-3
    assert checks(judged(few, few.copy())) == []
    (finding,) = judged(few, wrong).findings
    assert (finding.check, finding.count) == ("values", 1)
    assert "1e-05 * (the output's scale of 0.5" in finding.message


def test_an_odd_case_raises_nothing_that_is_allowed_elsewhere():
    wrong = NORMAL.copy()
    wrong[3] += 1e-3
    odd = np.full(1000, 1e20)
    assert checks(judged(NORMAL, wrong, odd=odd)) == ["values"]
    assert checks(judged(NORMAL, NORMAL, odd=odd)) == []


def test_each_column_has_a_scale_of_its_own():
    values = np.column_stack([NORMAL, NORMAL * 1e-6, np.zeros(40)])
    assert checks(judged(values, values.copy())) == []
    assert checks(judged(values, values * [1, 0, 1])) == ["values"]


def test_a_column_is_allowed_what_its_neighbours_round():
    """Of p and 1 - p, the smaller has the error of the larger."""
    likely = 1 - 1e-6 * (2 + NORMAL)
    values = np.column_stack([1 - likely, likely])
    values = np.concatenate([values, [[0.5, 0.5]]])
    verdict = judged(values, values + np.array([6e-8, 0.0]))
    assert checks(verdict) == []
    verdict = judged(values[:, :1], values[:, :1] + 6e-8)
    assert checks(verdict) == ["values"]


def test_columns_that_hardly_vary_are_told_where_others_vary():
    values = np.column_stack([NORMAL, 300 + 1e-3 * NORMAL])
    verdict = judged(values, values.copy())
    assert verdict.findings == ()
    assert verdict.notes == (
        "Of the output 'y', 1 of 2 places of a row vary by less than 100 times what is allowed.",
    )


def test_few_rows_have_the_scale_of_the_whole_output():
    values = NORMAL[:6].reshape(2, 3)
    values[:, 0] = 1e-9
    assert checks(judged(values, values + np.array([5e-7, 0, 0]))) == []


@pytest.mark.parametrize("kind", ["made", "odd"])
def test_without_real_rows_the_others_say_what_the_scale_is(kind):
    expected = {"y": NORMAL * 1e-6}
    case = Case(name="thresholds", feeds={}, expected=expected, kind=kind)
    comparison = Comparison(SCALED, [case])
    comparison.add(case, {"y": np.zeros(40)})
    assert checks(comparison.verdict()) == ["values"]


def test_an_output_that_hardly_varies_proves_nothing():
    values = 300 + 0.01 * NORMAL
    (finding,) = judged(values, values.copy()).findings
    assert (finding.check, finding.output) == ("vacuous", "y")
    assert "less than 100 times what is allowed (0.033: 1e-05 * (the output's" in finding.message
    varied = np.append(NORMAL, 300)
    assert checks(judged(varied, varied.copy())) == []


def test_numbers_made_to_go_wrong_are_no_variation():
    values = 300 + 0.01 * NORMAL
    odd = NORMAL * 1e30
    assert checks(judged(values, values, odd=odd)) == ["vacuous"]


def test_a_model_that_is_constant_by_its_structure_need_not_vary():
    values = 300 + 0.01 * NORMAL
    assert checks(judged(values, values.copy(), replace(SCALED, is_constant=True))) == []


def test_rows_of_several_lengths_vary_where_they_are_of_one_row_each():
    comparison = Comparison(SCALED)
    for length in (3, 4):
        values = NORMAL[:length].reshape(1, length)
        comparison.add(Case(name="c", feeds={}, expected={"y": values}), {"y": values})
    assert comparison.verdict().findings == ()


def test_what_the_user_allows_counts_in_place_of_the_scale():
    default = Tolerance(atol=0, rtol=1e-4, scaled=1e-5)
    assert default.given(None, None) is default
    assert default.given(0.5, None) == Tolerance(atol=0.5, rtol=1e-4, variation=2.0)
    assert default.given(None, 0.1) == Tolerance(atol=0, rtol=0.1, scaled=1e-5, variation=2.0)
    given = replace(SCALED, tolerance=default.given(0.1, 0.0))
    assert checks(judged(NORMAL, NORMAL + 0.09, given)) == []
    # A constant would pass.
    assert checks(judged(NORMAL / 40, NORMAL / 40, given)) == ["vacuous"]


@given(
    values=DOUBLES.filter(lambda values: np.abs(values).max() < 1e150), power=st.integers(-400, 300)
)
def test_the_verdict_does_not_depend_on_the_unit(values, power):
    factor = 2.0**power
    wrong = values + 3e-5
    scaled = judged(values * factor, wrong * factor)
    plain = judged(values, wrong)
    exact = (values * factor / factor == values).all() and (wrong * factor / factor == wrong).all()
    if exact and np.isfinite(values * factor).all():
        assert checks(scaled) == checks(plain)
