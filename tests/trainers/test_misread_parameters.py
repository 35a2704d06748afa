"""Parameters that a library takes without a word and does something else with than they say."""

import numpy as np
import pyarrow as pa
import pytest

from partwise import (
    DataConnector,
    DistributedLightGBM,
    DistributedXGBoost,
    HoldoutByTime,
    LightGBMTrainer,
    XGBoostTrainer,
    default_predict,
)
from partwise.connector.context import PartitionContext
from partwise.errors import InputError
from partwise.trainers.ready.by_feature import by_place
from tests.ranks.rank_threads import CutRows, run_rank_threads

ROWS = 400
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 3))
TABLE = pa.table(
    {
        "a": X[:, 0],
        "the b[1]": X[:, 1],
        "c": X[:, 2],
        "y": X[:, 0] * X[:, 1] + X[:, 2] + RANDOM.normal(size=ROWS) / 2,
    }
)
TRAINERS = {"xgboost": XGBoostTrainer, "lightgbm": LightGBMTrainer}
DISTRIBUTED = {"xgboost": DistributedXGBoost, "lightgbm": DistributedLightGBM}


def model_of(library, params, *, distributed=False):
    if not distributed:
        trainer = TRAINERS[library](label="y", rounds=20, holdout=None, params=params)
        trainer.check(TABLE.schema, key_columns=())
        return trainer(DataConnector(TABLE), PartitionContext(seed=1)).model
    trainer = DISTRIBUTED[library](label="y", rounds=20, params=params)
    sources, addresses = {"train": CutRows(TABLE, (150,))}, (("127.0.0.1", 0),) * 2
    return run_rank_threads(2, trainer, sources, "", seed=1, addresses=addresses)[0].model


def text_of(model):
    if hasattr(model, "model_to_string"):
        return model.model_to_string().partition("\nparameters")[0]
    return model.get_dump(with_stats=True)


def steps_along_b(model):
    rows = TABLE.slice(0, 50).set_column(1, "the b[1]", pa.array(np.linspace(-2, 2, 50)))
    for place, name in ((0, "a"), (2, "c")):
        rows = rows.set_column(place, name, pa.array(np.zeros(50)))
    return np.diff(default_predict(DataConnector(rows), model, PartitionContext()))


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("library", TRAINERS)
def test_constraints_are_of_names_or_places_in_both_libraries(library, distributed):
    free = text_of(model_of(library, {}, distributed=distributed))
    alike = [
        ("monotone_constraints", [{"the b[1]": -1}, [0, -1, 0], "(0,-1,0)", "0, -1, 0"]),
        (
            "interaction_constraints",
            [
                [["a", "c"], ["the b[1]"]],
                [[0, 2], [1]],
                "[[0, 2], [1]]",
                "[0,2],[1]",
                '[["a", "c"], ["the b[1]"]]',
            ],
        ),
    ]
    for parameter, forms in alike[: 1 if distributed and library == "lightgbm" else 2]:
        models = [model_of(library, {parameter: form}, distributed=distributed) for form in forms]
        assert text_of(models[0]) != free
        assert len({str(text_of(model)) for model in models}) == 1
        if parameter == "monotone_constraints":
            assert (steps_along_b(models[0]) <= 0).all()
            assert (steps_along_b(models[0]) < 0).any()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"monotone_constraints": [1, 0]}, "has 2 values, and there are 3 features, in this order"),
        ({"monotone_constraints": "(1,0)"}, "has 2 values, and there are 3 features"),
        ({"monotone_constraints": {"d": 1}}, "names 'd', which is none of the features"),
        ({"monotone_constraints": {"a": 2}}, "has 2 among its values"),
        ({"monotone_constraints": "up"}, "is 'up': give a list"),
        ({"interaction_constraints": [["a", "d"]]}, "names 'd', which is none of the features"),
        ({"interaction_constraints": [[0, 3]]}, "names 3, which is none of the features"),
        ({"monotone_constraints": 1}, "is 1: give a list"),
        ({"interaction_constraints": ["a"]}, "give lists of features"),
        ({"interaction_constraints": 3}, "is 3: give lists of features"),
        ({"interaction_constraints": "3"}, "is '3': give lists of features"),
    ],
)
@pytest.mark.parametrize("made", [*TRAINERS.values(), *DISTRIBUTED.values()])
def test_constraints_that_do_not_fit_are_refused_before_any_work(params, message, made):
    if made is DistributedLightGBM and "interaction_constraints" in params:
        message = "fails with them on several ranks"
    with pytest.raises((InputError, ValueError), match=message):
        made(label="y", params=params).check(TABLE.schema, key_columns=())


def test_params_of_a_partition_are_constraints_too():
    trainer = XGBoostTrainer(label="y", rounds=20, holdout=None)
    found = trainer(
        DataConnector(TABLE),
        PartitionContext(seed=1, params={"monotone_constraints": {"the b[1]": -1}}),
    )
    expected = model_of("xgboost", {"monotone_constraints": [0, -1, 0]})
    assert text_of(found.model) == text_of(expected)
    assert by_place({"monotone_constraints": None, "eta": 1}, ["a"]) == {
        "monotone_constraints": None,
        "eta": 1,
    }


@pytest.mark.parametrize(
    "params",
    [
        {"weight_column": "name:c"}, {"weight": 0}, {"ignore_column": "0"}, {"label": "0"},
        {"input_model": "model.txt"}, {"output_model": "model.txt"}, {"save_binary": True},
        {"task": "predict"}, {"header": True}, {"valid": "rows.csv"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("made", [LightGBMTrainer, DistributedLightGBM])
def test_what_lightgbm_reads_with_files_only_is_refused(params, made):
    with pytest.raises((InputError, ValueError), match="with its own files only"):
        made(label="y", params=params).check(TABLE.schema, key_columns=())


@pytest.mark.parametrize("name", ["machines", "workers", "num_machines", "local_listen_port"])
def test_a_partition_has_no_network(name):
    with pytest.raises((InputError, ValueError), match="trained by one process"):
        LightGBMTrainer(label="y", params={name: "2"}).check(TABLE.schema, key_columns=())


@pytest.mark.parametrize(
    ("made", "params", "message"),
    [
        (LightGBMTrainer, {"boosting": "dart"}, "does not stop early"),
        (LightGBMTrainer, {"boosting_type": "dart"}, "does not stop early"),
        (XGBoostTrainer, {"booster": "dart"}, "changes the trees of earlier rounds"),
        (LightGBMTrainer, {"metric": "None"}, "early_stopping_rounds needs a metric"),
    ],
)
def test_early_stopping_that_cannot_be_is_refused(made, params, message):
    with pytest.raises(ValueError, match=message):
        made(label="y", early_stopping_rounds=3, params=params)
    made(label="y", params=params)


def test_early_stopping_by_a_metric_that_lightgbm_does_not_have_names_it():
    """It said that a dataset and a metric are required, of which the one was there."""
    params = {"metric": ["rsme"]}
    trainer = LightGBMTrainer(label="y", features=("a",), early_stopping_rounds=3, params=params)
    with pytest.raises(InputError, match=r"LightGBM has no metric \['rsme'\]"):
        trainer(DataConnector(RARE), PartitionContext(seed=1))


PLACES = np.arange(500)
SIGNAL = np.where(PLACES < 400, RANDOM.normal(size=500), -1.0)
RARE = pa.table({"a": SIGNAL, "time": PLACES, "y": (SIGNAL > 1).astype(int)})
"""Of the second class there is none among the latest rows."""


@pytest.mark.parametrize(
    ("made", "metric", "stops"),
    [
        (XGBoostTrainer, "auc", False),
        (XGBoostTrainer, "aucpr", False),
        (XGBoostTrainer, ["logloss", "auc"], False),
        (XGBoostTrainer, ["auc", "logloss"], True),
        (LightGBMTrainer, "auc", False),
        (LightGBMTrainer, "average_precision", False),
        (LightGBMTrainer, "binary_logloss,auc", False),
        (LightGBMTrainer, "binary_logloss, auc", False),
        (LightGBMTrainer, "binary_logloss", True),
    ],
)
def test_a_metric_of_two_classes_stops_nothing_where_a_holdout_has_one(made, metric, stops, caplog):
    """It is 1, or NaN, from the first round on: models of one round told no row from another."""
    library = "xgboost" if made is XGBoostTrainer else "lightgbm"
    params = {
        "objective": {"xgboost": "binary:logistic", "lightgbm": "binary"}[library],
        {"xgboost": "eval_metric", "lightgbm": "metric"}[library]: metric,
    }
    trainer = made(
        label="y",
        features=("a",),
        params=params,
        rounds=40,
        early_stopping_rounds=3,
        holdout=HoldoutByTime(column="time"),
    )
    result = trainer(DataConnector(RARE), PartitionContext(seed=1))
    assert ("lack a class" in caplog.text) is not stops
    if not stops:
        assert result.metrics["rounds"] == 40
    found = np.asarray(default_predict(DataConnector(RARE), result.model, PartitionContext()))
    assert ((found > 0.5) == RARE["y"].to_numpy()).mean() > 0.97


@pytest.mark.parametrize(("library", "name"), [("xgboost", "eval_metric"), ("lightgbm", "metric")])
def test_a_metric_of_null_is_the_one_that_the_library_chooses(library, name):
    """As a document has it, or a form."""
    assert text_of(model_of(library, {name: None})) == text_of(model_of(library, {}))


@pytest.mark.parametrize("rounds", [0, -3, 0.5])
@pytest.mark.parametrize("made", TRAINERS.values())
def test_a_partition_has_a_round_at_least(made, rounds):
    context = PartitionContext(seed=1, params={"rounds": rounds})
    with pytest.raises(InputError, match=r"rounds is .*: give 1 boosting round or more"):
        made(label="y")(DataConnector(TABLE), context)


@pytest.mark.parametrize("made", TRAINERS.values())
def test_a_misspelled_parameter_of_a_partition_is_refused(made):
    context = PartitionContext(seed=1, params={"max_depht": 2, "eta": None})
    with pytest.raises(InputError, match=r"no parameter 'max_depht'.* Did you mean 'max_depth'"):
        made(label="y", rounds=2)(DataConnector(TABLE), context)


@pytest.mark.parametrize("made", [*TRAINERS.values(), *DISTRIBUTED.values()])
def test_two_names_of_one_parameter_are_refused_before_any_work(made):
    trainer = made(label="y", params={"eta": 0.1, "learning_rate": 0.9})
    with pytest.raises(InputError, match="Two of 'eta', 'learning_rate' name one parameter"):
        trainer.check(TABLE.schema, key_columns=())
