from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import InputError
from partwise.evaluation.scores import Predicted, check_metric, find_metric, measure
from partwise.trainers import resolve_trainer
from tests.lazily import Lazily

theirs = Lazily("sklearn.metrics")

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30)


def predicted(pairs, **more):
    labels, predictions = (np.array(each) for each in zip(*pairs, strict=True))
    return Predicted(labels=labels, predictions=predictions, **more)


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.sampled_from([0.1, 0.5, 0.9]))
def test_metrics_of_numbers_are_those_of_scikit_learn(pairs, quantile):
    asked = predicted(pairs)
    y, p = asked.labels, asked.predictions
    assert find_metric("rmse")(asked) == pytest.approx(theirs.root_mean_squared_error(y, p))
    assert find_metric("mae")(asked) == pytest.approx(theirs.mean_absolute_error(y, p))
    pinball = theirs.mean_pinball_loss(y, p, alpha=quantile)
    assert find_metric(f"pinball:{quantile}")(asked) == pytest.approx(pinball)
    if quantile == 0.5:
        assert find_metric("pinball")(asked) == pytest.approx(pinball)


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_wape_and_smape_are_sums_of_errors_over_sums_of_sizes(pairs):
    asked = predicted(pairs)
    total = sum(abs(y) for y, _ in pairs)
    wape = find_metric("wape")(asked)
    if total:
        assert wape == pytest.approx(sum(abs(p - y) for y, p in pairs) / total)
    else:
        assert isnan(wape)
    terms = [0 if y == p == 0 else 2 * abs(p - y) / (abs(y) + abs(p)) for y, p in pairs]
    assert find_metric("smape")(asked) == pytest.approx(sum(terms) / len(terms))
    assert -1e-9 <= find_metric("smape")(asked) <= 2 + 1e-9


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.lists(NUMBERS, max_size=20), st.integers(1, 8))
def test_mase_compares_with_the_season_before(pairs, history, season):
    asked = predicted(pairs, history=np.array(history), season=season)
    found = find_metric("mase")(asked)
    naive = [abs(history[i] - history[i - season]) for i in range(season, len(history))]
    if not naive or sum(naive) == 0:
        assert isnan(found)
        return
    errors = sum(abs(p - y) for y, p in pairs) / len(pairs)
    assert found == pytest.approx(errors / (sum(naive) / len(naive)))


def test_mase_has_no_value_without_an_order():
    assert isnan(find_metric("mase")(predicted([(1.0, 2.0)])))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.floats(0.001, 0.999)), min_size=2))
def test_metrics_of_classes_are_those_of_scikit_learn(pairs):
    asked = predicted(pairs)
    y, p = asked.labels, asked.predictions
    assert find_metric("logloss")(asked) == pytest.approx(theirs.log_loss(y, p, labels=[0, 1]))
    assert find_metric("accuracy")(asked) == pytest.approx(np.mean((p > 0.5) == y))
    auc = find_metric("auc")(asked)
    if len(set(y)) < 2:
        assert isnan(auc)
        assert "auc" not in measure("binary", asked)
    else:
        assert auc == pytest.approx(theirs.roc_auc_score(y, p))


def test_several_classes_have_a_probability_each():
    asked = Predicted(
        labels=np.array([0.0, 2.0]), predictions=np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]])
    )
    assert find_metric("logloss")(asked) == pytest.approx(-np.log([0.7, 0.3]).mean())
    assert find_metric("accuracy")(asked) == 0.5


def maximum_error(labels, predictions):
    return np.abs(labels - predictions).max()


def test_a_function_is_a_metric_by_itself_and_by_its_name():
    for metric in (maximum_error, "mine:maximum_error"):
        found = find_metric(metric, load=lambda name: maximum_error)
        assert (found.name, found.maximized) == ("maximum_error", False)
        assert found(predicted([(1.0, 4.0), (2.0, 2.0)])) == 3.0
    assert find_metric(maximum_error, "maximize").loss(3.0) == -3.0


@pytest.mark.parametrize("name", ["accuracy", "mase", "pinball"])
def test_a_function_fits_anything_though_it_has_the_name_of_a_built_in_metric(name):
    def function(labels, predictions):
        return 0.0

    function.__name__ = name
    found = find_metric(function)
    assert (found.name, found.built_in) == (name, "")
    for task in ("regression", "binary", "multiclass"):
        check_metric(found, task, is_backtest=False)


@pytest.mark.parametrize(
    ("metric", "direction", "better", "worse"),
    [("rmse", "", 1.0, 2.0), ("auc", "", 0.9, 0.8), ("accuracy", "", 1.0, 0.0),
     ("rmse", "maximize", 2.0, 1.0), ("auc", "minimize", 0.1, 0.2)],
)  # fmt: skip
def test_the_lower_loss_is_better_and_nan_is_the_worst(metric, direction, better, worse):
    found = find_metric(metric, direction)
    assert found.loss(better) < found.loss(worse) < found.loss(nan)


@pytest.mark.parametrize("name", ["rmsle", "", "pinball:1.5", "pinball:0.00", "pinball:", "mine:f"])
def test_an_unknown_metric_is_refused_by_its_name(name):
    with pytest.raises(InputError, match=f"no metric '{name}'"):
        find_metric(name)


@pytest.mark.parametrize("name", ["pinball:1", "pinball:0.0", "mine:0"])
def test_what_names_no_function_is_not_looked_for_as_one(name):
    with pytest.raises(InputError, match=f"no metric '{name}'.* a quantile as"):
        find_metric(name, load=resolve_trainer)


@pytest.mark.parametrize(
    ("name", "task", "is_backtest", "reason"),
    [
        ("auc", "regression", False, "none of a regression model: give rmse"),
        ("rmse", "binary", False, "none of a binary model: give logloss, accuracy, auc"),
        ("auc", "multiclass", False, "none of a multiclass model"),
        ("pinball:0.9", "binary", False, "none of a binary model"),
        ("mase", "regression", False, r"score with Backtest\(time=...\)"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(name, task, is_backtest, reason):
    with pytest.raises(InputError, match=reason):
        check_metric(find_metric(name), task, is_backtest=is_backtest)
    check_metric(find_metric("mase"), "regression", is_backtest=True)
    check_metric(find_metric(name if name != "mase" else "mae"), None, is_backtest=False)
