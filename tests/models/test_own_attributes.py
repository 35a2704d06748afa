"""What a function sets on a boosted model, such as `model.rmse = 0.3`, is there after reading."""

import json
import math
import timeit

import numpy as np
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.engine.worker.shard_run import run_on
from partwise.engine.works import TrainWork
from partwise.engine.written_models import read_written, write_model
from partwise.errors import IntegrityError, SerdeError
from partwise.models.serdes import LightGBMSerde, XGBoostSerde, serde_for
from partwise.runs.completion import complete_run
from partwise.runs.run import Run
from tests.engine.shards import ShardOfRun, table_of
from tests.lazily import Lazily
from tests.run_maker import ending

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

ROWS = np.random.default_rng(0).random((60, 3))
LABELS = ROWS[:, 0] * 3
QUIET = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}
KINDS = (
    *("XGBRegressor", "XGBClassifier", "XGBRanker", "XGBRFRegressor", "XGBRFClassifier"),
    *("LGBMRegressor", "LGBMClassifier", "LGBMRanker"),
)


def wrapper(kind="XGBRegressor"):
    labels = LABELS if kind.endswith("Regressor") else (LABELS > 1.5).astype(int)
    groups = {"group": [60], "eval_group": [[60]]} if kind == "XGBRanker" else {}
    model = getattr(xgboost, kind)(n_estimators=2, n_jobs=1)
    return model.fit(ROWS, labels, eval_set=[(ROWS, labels)], verbose=False, **groups)


def xgboost_booster():
    return xgboost.train({"nthread": 1}, xgboost.DMatrix(ROWS, LABELS), 2)


def lightgbm_booster():
    rows = lightgbm.Dataset(ROWS, LABELS)
    valid = lightgbm.Dataset(ROWS[:20], LABELS[:20], reference=rows)
    stop = lightgbm.early_stopping(2, verbose=False)
    return lightgbm.train(QUIET, rows, 2, valid_sets=[valid], callbacks=[stop])


def lightgbm_wrapper(kind="LGBMRegressor"):
    labels = LABELS if kind == "LGBMRegressor" else (LABELS > 1.5).astype(int)
    groups = {"group": [60], "eval_group": [[60]]} if kind == "LGBMRanker" else {}
    # The last one is no argument of theirs, and becomes an attribute all the same.
    model = getattr(lightgbm, kind)(n_estimators=2, n_jobs=1, verbosity=-1, min_data_in_leaf=5)
    return model.fit(ROWS, labels, eval_X=ROWS, eval_y=labels, **groups)


MODELS = (wrapper, xgboost_booster, lightgbm_booster, lightgbm_wrapper)
SERDES = (XGBoostSerde(), XGBoostSerde(), LightGBMSerde(), LightGBMSerde())


def stored(model, folder):
    serde = serde_for(model)
    written = write_model(model, serde, str(folder))
    return read_written(serde, written), written


@pytest.mark.parametrize("make", MODELS)
def test_plain_values_come_back_and_the_rest_is_named(make, tmp_path) -> None:
    model = make()
    plain = {
        "rmse": np.float32(0.25),
        "rows": np.int64(60),
        "good": np.bool_(True),
        "note": 'Zürich \ud83d "x"\nend of trees\npandas_categorical:[1]\0',
        "huge": 2**80,
        "nothing": None,
        "folds": [{"name": "a", "scores": (1.0, math.inf)}],
    }
    others = {"predict": 3, "curve": np.zeros(3), "by_number": {1: 2}, "fit_time": {1, 2}}
    others["itself"] = itself = []
    itself.append(itself)
    for name, value in (plain | others).items():
        setattr(model, name, value)
    back, written = stored(model, tmp_path)
    assert {name: vars(back)[name] for name in plain} == {
        **plain,
        "folds": [{"name": "a", "scores": [1.0, math.inf]}],
    }
    assert type(back.rmse) is float
    assert type(back.good) is bool
    assert written.not_kept == "by_number, curve, fit_time, itself, predict"
    assert callable(back.predict)
    given = xgboost.DMatrix(ROWS) if make is xgboost_booster else ROWS
    del vars(model)["predict"]
    np.testing.assert_array_equal(back.predict(given), model.predict(given))
    # Stored once more, as an export or a copy does; and the first is as it was.
    again, _ = stored(back, tmp_path)
    assert again.folds == back.folds
    if make in (wrapper, xgboost_booster):
        booster = getattr(model, "get_booster", lambda: model)()
        assert "partwise_attributes" not in booster.attributes()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_library_sets_is_no_attribute_of_the_callers(kind, tmp_path) -> None:
    model = wrapper(kind) if kind.startswith("XGB") else lightgbm_wrapper(kind)
    back, written = stored(model, tmp_path)
    assert written.not_kept == ""
    assert b"partwise_attributes" not in written.content
    assert vars(back).keys() <= vars(model).keys()


def test_a_model_without_attributes_is_written_as_before(tmp_path) -> None:
    model = lightgbm_booster()
    _, written = stored(model, tmp_path)
    assert written.not_kept == ""
    model.save_model(tmp_path / "own.txt")
    assert written.content == (tmp_path / "own.txt").read_bytes()
    _, written = stored(xgboost_booster(), tmp_path)
    assert written.content == xgboost_booster().save_raw("ubj")


def test_to_look_for_attributes_takes_no_time() -> None:
    for make, serde in zip(MODELS, SERDES, strict=True):
        model = make()
        serde.not_kept(model)
        runs = timeit.repeat(lambda s=serde, m=model: s.not_kept(m), number=200, repeat=20)
        assert min(runs) / 200 < 20e-6


def test_the_librarys_own_reader_reads_such_a_file(tmp_path) -> None:
    for make, library in ((xgboost_booster, xgboost), (lightgbm_booster, lightgbm)):
        model = make()
        model.rmse = 0.25
        _, written = stored(model, tmp_path)
        path = tmp_path / written.filename
        path.write_bytes(written.content)
        read = library.Booster(model_file=str(path))
        assert read.num_boosted_rounds() == 2 if make is xgboost_booster else read.num_trees() == 2


def test_a_file_of_a_stranger_sets_no_method(tmp_path) -> None:
    forged = {"predict": 1, "__class__": 2, "_handle": 3, "params": {}, "rmse": 0.5}
    model = lightgbm_booster()
    model.rmse = 0.25
    _, written = stored(model, tmp_path)
    content = written.content.replace(b'{"rmse": 0.25}', json.dumps(forged).encode())
    path = tmp_path / "model.txt"
    path.write_bytes(content)
    back = LightGBMSerde().read(str(path))
    assert back.rmse == 0.5
    np.testing.assert_array_equal(back.predict(ROWS), model.predict(ROWS))
    path.write_bytes(content.replace(json.dumps(forged).encode(), b"[1]"))
    with pytest.raises(IntegrityError):
        LightGBMSerde().read(str(path))


def test_a_wrapper_of_a_stranger_has_its_methods(tmp_path) -> None:
    model = lightgbm_wrapper("LGBMClassifier")
    _, written = stored(model, tmp_path)
    path = tmp_path / "model.txt"
    forged = b'"n_estimators": 2, "predict": 1, "__class__": 2, "get_params": 3'
    path.write_bytes(written.content.replace(b'"n_estimators": 2', forged))
    back = LightGBMSerde().read(str(path))
    np.testing.assert_array_equal(back.predict(ROWS), model.predict(ROWS))
    path.write_bytes(written.content.replace(b'"LGBMClassifier"', b'"Booster"'))
    with pytest.raises(SerdeError, match="unknown wrapper 'Booster'"):
        LightGBMSerde().read(str(path))


def test_a_run_keeps_them_and_says_once_what_it_cannot(tmp_path) -> None:
    def function(data, context):
        model = lightgbm_booster()
        model.rmse, model.owner = 0.25, object()
        return model

    shard = ShardOfRun(tmp_path / "r")
    work = TrainWork(function=function, serde=None)
    with shard.assigned(table_of(a=1, b=2, c=3), work, ExecutionOptions()) as (claim, assignment):
        receipt = run_on(shard.host, assignment, lambda: False)
        complete_run(claim, ending(receipt.partitions))
    shard.host.close()
    run = Run.open("run", shard.store)
    assert run.model("b").rmse == 0.25
    assert not hasattr(run.model("b"), "owner")
    assert "Of the model is lost: owner." in run.logs("c")
    (remark,) = [each for news in shard.host.events for each in news.remarks]
    assert remark.text.startswith("made a model of which is lost: owner. The file")
