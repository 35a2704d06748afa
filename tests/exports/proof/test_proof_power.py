"""Files with one change each: the proof misses none that predicts otherwise on any row."""

import pytest

from tests.exports.proof.exported_models import LIBRARIES
from tests.exports.proof.mutation import Result, examine, tabulate

SEED = 14


def results_of(folder, libraries, count, seed, *, small: bool) -> list[Result]:
    models = [model for name in libraries for model in LIBRARIES[name](folder, small)]
    return [
        result
        for place, exported in enumerate(models)
        for result in examine(exported, count, seed + place, folder)
    ]


def assert_none_is_missed(results: list[Result]) -> None:
    altering = [result for result in results if result.shows != "none"]
    # Else it would say nothing: most single changes to a model alter some prediction.
    assert len(altering) > len(results) / 2, tabulate(results)
    missed = [f"{r.exported}, {r.kind}, {r.place}" for r in altering if r.is_missed]
    assert not missed, f"{tabulate(results)}\n{missed}"


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "torch"])
def test_no_change_that_alters_a_prediction_is_missed(library, tmp_path):
    results = results_of(tmp_path, [library], 20, SEED, small=True)
    assert_none_is_missed(results)


@pytest.mark.slow  # 1,000 files are proved
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "torch", "transformers"])
def test_no_change_of_many_is_missed(library, tmp_path):
    results = results_of(tmp_path, [library], 40, SEED + 100, small=False)
    assert_none_is_missed(results)
