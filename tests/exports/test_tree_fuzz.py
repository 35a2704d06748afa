"""Models of trees drawn at random: none is silently wrong, and each refusal has a known reason."""

import warnings

import pytest

from partwise.exports.proof.judge import close_judges
from tests.exports.tree_fuzz import outcomes, tabulate


@pytest.fixture(autouse=True, scope="module")
def judges_end_with_the_tests():
    yield
    close_judges()


def assert_none_fails(models: int, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries say of odd settings
        found = list(outcomes(range(models), seed, ["lightgbm", "xgboost"]))
    failures = [f"{each.number} {each.kind}: {each.what}: {each.detail}" for each in found
                if each.is_failure]  # fmt: skip
    assert not failures, "\n".join([tabulate(found), *failures])
    right = sum(each.kind == "right" for each in found)
    assert right > len(found) / 2, tabulate(found)


def test_a_few_models_drawn_at_random_are_right_or_refused():
    assert_none_fails(20, seed=14)


@pytest.mark.slow  # more than 200 models
def test_models_drawn_at_random_are_right_or_refused():
    assert_none_fails(250, seed=15)
