"""Files with one change each: the proof misses none that predicts otherwise on any row."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.exports.proof.exported_models import LIBRARIES, export, numbers, target_of
from tests.exports.proof.mutation import Result, examine, tabulate
from tests.lazily import Lazily
from tests.thoroughness import THOROUGH

lightgbm = Lazily("lightgbm")

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


@pytest.mark.slow  # 216 files are proved, or 1,080
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "torch", "transformers"])
def test_no_change_of_many_is_missed(library, tmp_path):
    results = results_of(tmp_path, [library], 40 if THOROUGH else 8, SEED + 100, small=False)
    assert_none_is_missed(results)


@pytest.mark.parametrize(
    ("settings", "noun"),
    [
        ({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}, "number of iterations"),
        ({"linear_tree": True}, "coefficients of term 0"),
    ],
)
def test_a_number_beside_the_trees_that_is_an_ulp_off_is_told(settings, noun, tmp_path):
    rows, path = numbers()(300, 0), str(tmp_path / "model.onnx")
    data = lightgbm.Dataset(rows.to_pandas(), target_of(rows))
    settings = {"verbosity": -1, "num_threads": 1, "num_leaves": 7, **settings}
    exported = export(lightgbm.train(settings, data, 6), rows, path)
    (known,) = [v for name, v in exported.subject.description.constants.items() if noun in name]
    file = onnx.load(path)
    for tensor in file.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        if np.array_equal(values, known):
            values.flat[-1] = np.nextafter(values.flat[-1], np.inf)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(file, path)
    assert set(exported.checks(path)) == {"weights"}
