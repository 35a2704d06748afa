"""Which libraries processes find loaded before they begin: what their work names, and no others."""

import subprocess
import sys

import pytest

from partwise.engine.driver.named_modules import named_modules
from partwise.trainers import (
    Best,
    LightGBMTrainer,
    Linear,
    Mean,
    RandomForest,
    StatsForecast,
    Tuned,
    XGBoostTrainer,
    default_predict,
)

OURS = "partwise.trainers"


def fit(data, context):
    return data.num_rows


@pytest.mark.parametrize(
    ("trainer", "modules"),
    [
        (LightGBMTrainer(), {"lightgbm"}),
        (XGBoostTrainer(), {"xgboost"}),
        (Linear(), {"sklearn.linear_model"}),
        (RandomForest(), {"sklearn.ensemble"}),
        # Polars, which it imports, starts a thread.
        (StatsForecast("AutoETS"), set()),
        (Mean(), set()),
        (Best([LightGBMTrainer(), Mean(), fit, Linear()]), {"lightgbm", "sklearn.linear_model"}),
        (Tuned(XGBoostTrainer(), {"max_depth": [3, 4]}, trials=2), {"xgboost", "optuna"}),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_trainer_says_what_it_imports(trainer, modules):
    parts = dict.fromkeys(f"library {name}" for name in (*trainer.libraries, "partwise"))
    assert named_modules(trainer, parts) == tuple(sorted({OURS, *modules}))


def test_of_a_function_counts_what_its_code_names_and_nothing_that_has_parts():
    parts = {"python": "", "library torch": "", "library sklearn": "", "library scipy": ""}
    assert named_modules(fit, parts) == ("torch",)
    assert named_modules(fit, {"library numpy": ""}) == ()


def test_a_library_of_a_function_in_a_best_counts():
    best = Best([fit, Mean()])
    assert named_modules(best, {"library torch": "", "library partwise": ""}) == (OURS, "torch")


def test_stored_models_name_the_library_that_reads_them():
    assert named_modules(default_predict, {}, ["lightgbm", "pickle", "plain"]) == ("lightgbm", OURS)


def test_what_a_child_imports_first_of_all_is_none_of_them():
    """So a work that names nothing has children without them."""
    code = (
        "import partwise.engine.child.main; from partwise.engine.libraries import loaded_libraries;"
        "print(sorted(loaded_libraries()))"
    )
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"
