import json
import subprocess
import sys
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.evaluation import HoldoutByTime, HoldoutFraction
from partwise.models.serdes import serde_for
from partwise.outcomes import Result, Skip
from partwise.trainers import (
    LightGBMTrainer,
    TrainerSettings,
    XGBoostTrainer,
    default_predict,
)
from partwise.trainers.ready import lightgbm as lightgbm_trainer
from tests.lazily import Lazily

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

N_ROWS = 150
RNG = np.random.default_rng(0)
X = RNG.normal(size=N_ROWS)
CODES = RNG.integers(0, 3, N_ROWS)
KINDS = np.array(["é [a], <b>", "zz", "á"])[CODES]
TABLE = pa.table(
    {
        "store": ["s-1"] * N_ROWS,
        "day": pa.array(np.datetime64("2026-01-01") + np.arange(N_ROWS)),
        "x [€]": pa.array(X, mask=RNG.random(N_ROWS) < 0.1),
        "size, n": pa.array(RNG.normal(size=N_ROWS).astype(np.float32)),
        "kind": KINDS,
        "code": pa.array(CODES * 10).dictionary_encode(),
        "sales": X + 3.0 * CODES + 10,
    }
)
TRAINERS = {"lightgbm": LightGBMTrainer, "xgboost": XGBoostTrainer}
CONTEXT = PartitionContext(key="s-1", key_columns=("store",), seed=5)
OBJECTIVES = {
    "lightgbm": ("regression", "binary", "multiclass"),
    "xgboost": ("reg:squarederror", "binary:logistic", "multi:softprob"),
}
FEATURES = ("x [€]", "size, n", "kind", "code")


@pytest.fixture(params=TRAINERS)
def kind(request):
    return request.param


@pytest.fixture
def trainer(kind):
    def make(**settings):
        defaults = {
            "label": "sales",
            "categorical": ("kind",),
            "rounds": 12,
            "holdout": HoldoutByTime(column="day"),
        }
        return TRAINERS[kind](**{**defaults, **settings})

    return make


def train(trainer, table=TABLE, context=CONTEXT):
    trainer.check(table.schema, frozenset(), context.key_columns)
    outcome = trainer(DataConnector(table), context)
    assert isinstance(outcome, Result)
    return outcome


def predict(model, table=TABLE):
    return default_predict(DataConnector(table), model, CONTEXT)


def with_labels(labels):
    return TABLE.set_column(TABLE.column_names.index("sales"), "sales", pa.array(labels))


def through_file(model, directory):
    serde = serde_for(model)
    path = str(directory / serde.filename)
    serde.write(model, path)
    return serde.read(path)


def test_metrics_are_those_of_the_held_out_rows(trainer):
    result = train(trainer())
    late = slice(120, N_ROWS)
    labels = TABLE.column("sales").to_numpy()[late]
    errors = predict(result.model, TABLE.slice(120)) - labels
    assert result.metrics == {
        "rounds": 12,
        "train_rows": 120,
        "holdout_rows": 30,
        "null_label_rows": 0,
        "holdout_rmse": pytest.approx(np.sqrt(np.mean(errors**2))),
        "holdout_mae": pytest.approx(np.mean(np.abs(errors))),
        "holdout_mape": pytest.approx(np.mean(np.abs(errors / labels))),
        "holdout_wape": pytest.approx(np.abs(errors).sum() / np.abs(labels).sum()),
        "holdout_smape": pytest.approx(
            np.mean(2 * np.abs(errors) / (np.abs(labels) + np.abs(errors + labels)))
        ),
    }
    assert result.metrics["holdout_rmse"] < np.std(labels)


def test_lightgbm_learns_what_it_learns_from_a_frame():
    frame = TABLE.select(["x [€]", "size, n", "kind", "code"]).to_pandas()
    frame["kind"] = frame["kind"].astype("category")
    frame["code"] = frame["code"].cat.set_categories([0, 10, 20])
    frame.columns = ["x", "n", "kind", "code"]
    params = {"num_threads": 1, "verbosity": -1, "seed": 5, "min_data_in_leaf": 3}
    bare = lightgbm.train(params, lightgbm.Dataset(frame, TABLE.column("sales").to_numpy()), 12)
    settings = {"label": "sales", "rounds": 12, "holdout": None, "categorical": ("kind",)}
    ours = train(
        TRAINERS["lightgbm"](**settings, params={"min_data_in_leaf": 3}, features=FEATURES)
    )
    np.testing.assert_array_equal(predict(ours.model), bare.predict(frame))
    assert ours.model.pandas_categorical == bare.pandas_categorical


def test_xgboost_learns_what_it_learns_from_a_frame():
    frame = TABLE.select(["x [€]", "size, n", "code"]).to_pandas()
    frame["kind"] = pd.Categorical(np.array(["b", "c", "a"])[CODES])
    frame.columns = ["x", "n", "code", "kind"]
    labels = TABLE.column("sales").to_numpy()
    matrix = xgboost.DMatrix(frame, labels, enable_categorical=True, nthread=1)
    bare = xgboost.train({"nthread": 1, "seed": 5}, matrix, num_boost_round=12)
    features = ("x [€]", "size, n", "code", "kind")
    settings = {"label": "sales", "rounds": 12, "holdout": None, "categorical": ("kind",)}
    ours = train(TRAINERS["xgboost"](**settings, features=features))
    np.testing.assert_array_equal(predict(ours.model), bare.predict(matrix))


def test_xgboost_itself_knows_the_categories_of_a_model(tmp_path):
    trainer = TRAINERS["xgboost"](label="sales", features=("kind",), categorical=("kind",))
    for changes in ({}, {"early_stopping_rounds": 2}):
        model = through_file(train(trainer.model_copy(update=changes)).model, tmp_path)
        texts = pa.array(KINDS).dictionary_encode()
        reordered = pa.table({"kind": texts})
        assert texts.dictionary.to_pylist() != sorted(set(KINDS))
        matrix = xgboost.DMatrix(reordered, enable_categorical=True)
        np.testing.assert_array_equal(model.predict(matrix), predict(model))


@pytest.mark.parametrize("early_stopping_rounds", [None, 2])
def test_categories_are_coded_alike_after_the_file(trainer, tmp_path, early_stopping_rounds):
    """Whatever other values, orders and encodings the rows to be inferred come with."""
    model = train(trainer(early_stopping_rounds=early_stopping_rounds, rounds=60)).model
    before = predict(model)
    model = through_file(model, tmp_path)
    np.testing.assert_array_equal(before, predict(model))
    some = TABLE.select(TABLE.column_names[::-1]).drop_columns(["sales", "store"]).slice(40, 50)
    shared = pa.array(["zz", "new", "á", "é [a], <b>"])
    codes = pa.array([shared.to_pylist().index(value) for value in KINDS[40:90]])
    encoded = some.set_column(
        some.column_names.index("kind"), "kind", pa.DictionaryArray.from_arrays(codes, shared)
    )
    doubles = encoded.set_column(
        encoded.column_names.index("code"), "code", pa.array(CODES[40:90] * 10.0)
    )
    for table in (some, encoded, doubles):
        np.testing.assert_array_equal(before[40:90], predict(model, table))
    unseen = some.set_column(some.column_names.index("kind"), "kind", pa.array(["new"] * 50))
    missing = some.set_column(some.column_names.index("kind"), "kind", pa.nulls(50))
    np.testing.assert_array_equal(predict(model, unseen), predict(model, missing))
    assert (predict(model, missing) != before[40:90]).any()


def test_another_process_predicts_the_same(tmp_path):
    settings = {"label": "sales", "categorical": ("kind",), "rounds": 12}
    paths, expected = {}, {}
    for kind, made in TRAINERS.items():
        model = train(made(**settings, holdout=HoldoutByTime(column="day"))).model
        expected[kind] = predict(model).tolist()
        serde = serde_for(model)
        paths[kind] = str(tmp_path / serde.filename)
        serde.write(model, paths[kind])
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), TABLE.schema) as writer:
        writer.write_table(TABLE)
    code = f"""
import json
import pyarrow as pa
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.models.serdes import serde_by_name
from partwise.trainers import default_predict
table = pa.ipc.open_file({str(tmp_path / "rows.arrow")!r}).read_all()
found = {{}}
for kind, path in {paths!r}.items():
    model = serde_by_name(kind, None).read(path)
    found[kind] = default_predict(DataConnector(table), model, PartitionContext()).tolist()
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected
    assert len(set(paths.values())) == len(TRAINERS) == 2


def test_early_stopping_keeps_the_best_round(trainer, tmp_path):
    """Labels without any pattern: whatever is learnt after the first rounds is noise."""
    noise = with_labels(np.random.default_rng(1).normal(size=N_ROWS))
    result = train(trainer(early_stopping_rounds=3, rounds=80), noise)
    rounds = int(result.metrics["rounds"])
    assert 1 <= rounds < 80
    model = through_file(result.model, tmp_path)
    np.testing.assert_array_equal(predict(model, noise), predict(result.model, noise))
    n_rounds = model.num_trees() if hasattr(model, "num_trees") else model.num_boosted_rounds()
    assert n_rounds == rounds
    unstopped = train(trainer(rounds=rounds), noise).model
    np.testing.assert_array_equal(predict(model, noise), predict(unstopped, noise))


def test_binary_labels(kind, trainer):
    table = with_labels(TABLE.column("sales").to_numpy() > 13)
    result = train(trainer(params={"objective": OBJECTIVES[kind][1]}), table)
    assert set(result.metrics) >= {"holdout_logloss", "holdout_auc", "holdout_accuracy"}
    assert result.metrics["holdout_auc"] > 0.8
    predictions = predict(result.model, table)
    assert predictions.shape == (N_ROWS,)
    assert 0 <= predictions.min() < 0.5 < predictions.max() <= 1


def test_multiclass_labels(kind, trainer):
    params = {"objective": OBJECTIVES[kind][2], "num_class": 4}
    table = with_labels(CODES.astype(np.int8))
    result = train(trainer(params=params, early_stopping_rounds=4), table)
    assert result.metrics["holdout_accuracy"] > 0.9
    assert predict(result.model, table).shape == (N_ROWS, 4)


@pytest.mark.parametrize(
    ("place", "labels", "message"),
    [
        (0, [1.0, float("inf")], "has to be a finite number .* but inf is among"),
        (1, [0.0, 2.0], "has to be a class from 0 to 1 .* but 2 is among"),
        (2, [1.0, 1.5], "has to be a class from 0 to 2 .* but 1.5 is among"),
        (2, [-1.0, 0.0], "but -1 is among"),
    ],
)
def test_labels_that_do_not_fit_the_objective_are_refused(kind, trainer, place, labels, message):
    params = {"objective": OBJECTIVES[kind][place], **({"num_class": 3} if place == 2 else {})}
    with pytest.raises(InputError, match=message):
        train(trainer(params=params), with_labels(np.resize(labels, N_ROWS)))


def test_rows_without_label_are_left_out_and_counted(trainer):
    labels = TABLE.column("sales").to_pylist()
    labels[3], labels[140], labels[141] = None, float("nan"), None
    result = train(trainer(), with_labels(labels))
    counts = {name: result.metrics[name] for name in ("train_rows", "holdout_rows")}
    assert counts == {"train_rows": 118, "holdout_rows": 29}
    assert result.metrics["null_label_rows"] == 3


def test_a_partition_without_any_label_fails(trainer):
    with pytest.raises(ColumnError, match="label 'sales' is null in all 150 rows"):
        train(trainer(), with_labels([None] * (N_ROWS - 1) + [float("nan")]))


def test_too_few_rows_are_a_skip(trainer):
    outcome = trainer(min_rows=50)(DataConnector(TABLE.slice(0, 60)), CONTEXT)
    assert outcome == Skip("too few rows: 48 of 50")


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_the_smallest_partitions_train_where_that_is_asked(trainer, n_rows, tmp_path):
    result = train(
        trainer(min_rows=1, holdout=HoldoutFraction(), features=FEATURES), TABLE.slice(0, n_rows)
    )
    assert result.metrics["train_rows"] + result.metrics["holdout_rows"] == n_rows
    assert ("holdout_rmse" in result.metrics) == (n_rows == 3)
    model = through_file(result.model, tmp_path)
    assert np.isfinite(predict(model)).all()


def test_all_null_and_constant_features_train(trainer, tmp_path):
    table = TABLE.select(["sales", "day"]).append_column("none", pa.nulls(N_ROWS))
    table = table.append_column("kind", pa.nulls(N_ROWS, pa.string()))
    table = table.append_column("one", pa.array([1] * N_ROWS))
    model = through_file(train(trainer(), table).model, tmp_path)
    texts = table.set_column(3, "kind", pa.array(["new"] * N_ROWS))
    np.testing.assert_array_equal(predict(model, table), predict(model, texts))


def test_the_seed_of_the_context_decides(kind, trainer):
    sampled = {
        "lightgbm": {"bagging_fraction": 0.5, "bagging_freq": 1},
        "xgboost": {"subsample": 0.5},
    }[kind]
    make = trainer(params=sampled, holdout=HoldoutFraction(), features=FEATURES)
    other = PartitionContext(key_columns=("store",), seed=6)
    first, again, another = (train(make, context=context) for context in (CONTEXT, CONTEXT, other))
    np.testing.assert_array_equal(predict(first.model), predict(again.model))
    assert first.metrics == again.metrics
    assert first.metrics["holdout_rmse"] != another.metrics["holdout_rmse"]


def test_params_of_a_partition_override_those_of_the_trainer(trainer):
    make = trainer(params={"learning_rate": 0.3})
    params = {"eta": np.float64(0.05), "max_depth": None}
    own = PartitionContext(key_columns=("store",), seed=5, params=params)
    slow = trainer(params={"learning_rate": 0.05})
    np.testing.assert_array_equal(
        predict(train(make, context=own).model), predict(train(slow).model)
    )
    assert (predict(train(make).model) != predict(train(slow).model)).any()


def test_parameters_that_lightgbm_does_not_know_are_refused():
    trainer = TRAINERS["lightgbm"](label="sales", params={"num_leavs": 3}, categorical=("kind",))
    with pytest.raises(InputError, match="LightGBM has no parameter 'num_leavs'"):
        trainer.check(TABLE.schema, frozenset(), ("store", "day"))
    typo = PartitionContext(key_columns=("store", "day"), params={"lerning_rate": 0.1})
    good = TRAINERS["lightgbm"](label="sales", categorical=("kind",))
    with pytest.raises(InputError, match="no parameter 'lerning_rate'"):
        good(DataConnector(TABLE), typo)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label": "profit"}, "label 'profit' is missing; there are 'store', 'day'"),
        ({"label": "kind"}, "label 'kind' is string, but numbers are needed"),
        ({"features": ("x [€]", "z"), "categorical": ()}, "features 'z' are missing"),
        ({"categorical": ()}, "feature 'kind' is string, and numbers are needed: list it"),
        ({"holdout": None}, r"feature 'day' is date32.*leave it out"),
        ({"holdout": HoldoutByTime(column="date")}, "time column 'date' .* is missing"),
        ({"categorical": ("kind", "z")}, "categorical columns 'z' are not among the features"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_any_work(trainer, settings, message):
    with pytest.raises(ColumnError, match=message):
        trainer(**settings).check(TABLE.schema, frozenset(), ("store",))


def test_without_key_columns_only_named_features_are_checked(trainer):
    trainer(holdout=None).check(TABLE.schema)
    with pytest.raises(ColumnError, match="features 'z' are missing"):
        trainer(features=("z",), categorical=()).check(TABLE.schema)


def test_an_empty_label_is_refused_before_any_work(trainer):
    with pytest.raises(ColumnError, match="label 'sales' is null in every row"):
        trainer().check(TABLE.schema, frozenset({"sales"}), ("store",))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"holdout": None, "early_stopping_rounds": 3}, "early_stopping_rounds needs a holdout"),
        ({"params": {"objective": "rank:ndcg"}}, "'rank:ndcg' cannot be trained here; choose one"),
        ({"params": {"objective": lambda: 0}}, "objective"),
        ({"rounds": 0}, "greater than or equal to 1"),
        ({"feature": ["x"]}, r"no feature \(did you mean features\?\)"),
    ],
)
def test_settings_that_do_not_fit_are_refused(trainer, settings, message):
    with pytest.raises(InputError, match=message):
        trainer(**settings)


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("lightgbm", {"num_threads": 4}, "Set threads of the trainer, not num_threads"),
        ("lightgbm", {"objective": "multiclass"}, "needs num_class"),
        ("lightgbm", {"objective": "multiclass", "num_class": None}, "needs num_class"),
        ("xgboost", {"objective": "multi:softprob", "num_class": None}, "needs num_class"),
        ("xgboost", {"n_jobs": 4}, "Set threads of the trainer, not n_jobs"),
        ("xgboost", {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.9]}, "one quant"),
        ("xgboost", {"objective": "reg:quantileerror"}, "needs a quantile_alpha in params"),
        ("xgboost", {"subsample": np.nan}, "subsample is nan in params: give a finite"),
        ("lightgbm", {"learning_rate": np.inf}, "learning_rate is inf in params: give a finite"),
    ],
)
def test_params_that_do_not_fit_are_refused(kind, params, message):
    with pytest.raises(InputError, match=message):
        TRAINERS[kind](label="y", params=params)


def test_early_stopping_of_linear_models_is_refused():
    with pytest.raises(InputError, match=r"keeps no rounds apart.*leave early_stopping_rounds"):
        TRAINERS["xgboost"](label="y", params={"booster": "gblinear"}, early_stopping_rounds=3)
    of_partition = PartitionContext(
        key_columns=("store", "day"), params={"booster": "gblinear", "objective": None}
    )
    trainer = TRAINERS["xgboost"](
        label="sales", categorical=("kind",), early_stopping_rounds=3, holdout=HoldoutFraction()
    )
    with pytest.raises(InputError, match="keeps no rounds apart"):
        trainer(DataConnector(TABLE), of_partition)


def test_aliases_of_reserved_params_are_refused():
    trainer = TRAINERS["lightgbm"](label="x", params={"n_estimators": 4})
    with pytest.raises(InputError, match="Set rounds of the trainer, not num_iterations"):
        trainer.check(pa.schema({"x": pa.int8(), "y": pa.int8()}))


def test_a_document_holds_a_trainer(trainer):
    adapter = TypeAdapter(TrainerSettings)
    settings = trainer(params={"max_depth": 3, "eta": 0.1}, holdout=HoldoutFraction(fraction=0.5))
    assert adapter.validate_json(adapter.dump_json(settings)) == settings


def test_every_field_is_explained(kind):
    schema = TRAINERS[kind].model_json_schema()
    assert schema["title"] in ("LightGBM", "XGBoost")
    fields = [*schema["properties"].items()]
    for definition in schema["$defs"].values():
        fields += definition.get("properties", {}).items()
    assert len(fields) > 12
    for name, field in fields:
        assert field["title"], name
        assert field["description"].endswith("."), name


def test_frames_give_what_arrow_gives(trainer):
    frame = pd.DataFrame({"x": X, "sales": X * 2, "kind": pd.Categorical(KINDS)})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    plain = table.set_column(2, "kind", pa.array(KINDS))
    models = [train(trainer(holdout=HoldoutFraction()), rows).model for rows in (table, plain)]
    np.testing.assert_array_equal(predict(models[0], plain), predict(models[1], table))


def test_a_trainer_says_which_columns_it_reads(kind):
    schema = pa.schema([(name, pa.float64()) for name in ("key", "y", "x", "day", "more")])
    made = TRAINERS[kind](label="y", features=["x"])
    assert made.reads(schema) == ["x", "y"]
    by_time = TRAINERS[kind](
        label="y", features=["x", "day"], holdout=HoldoutByTime(column="day", fraction=0.2)
    )
    assert by_time.reads(schema) == ["x", "day", "y"]
    assert TRAINERS[kind](label="y").reads(schema) is None

    class Derived(TRAINERS[kind]):
        """It may look at more."""

    assert Derived(label="y", features=["x"]).reads(schema) is None


@pytest.mark.parametrize(("own", "of_partition", "used"), [(1, 1, 1), (1, 3, 3), (4, 2, 4)])
def test_threads_are_those_of_the_partition_or_more(monkeypatch, own, of_partition, used):
    seen: list[int] = []
    real = lightgbm.train

    def noted(params, *arguments, **options):
        seen.append(params["num_threads"])
        return real({**params, "num_threads": 1}, *arguments, **options)

    monkeypatch.setattr("lightgbm.train", noted)
    trainer = TRAINERS["lightgbm"](label="sales", features=("size, n",), threads=own, rounds=2)
    trainer(DataConnector(TABLE), PartitionContext(threads=of_partition))
    assert seen == [used]


OF_TABLE = {"label": "sales", "features": FEATURES, "categorical": ("kind",)}


@pytest.mark.parametrize("settings", [{"holdout": None}, {}, {"params": {"boosting": "dart"}}])
def test_a_lightgbm_model_is_the_one_that_its_text_is_read_as(settings):
    trainer = TRAINERS["lightgbm"](**OF_TABLE, rounds=12, **settings)
    model = train(trainer).model
    read = lightgbm.Booster(model_str=model.model_to_string())
    assert read.model_to_string() == model.model_to_string()
    rows = RNG.normal(size=(50, model.num_feature()))
    np.testing.assert_array_equal(model.predict(rows), read.predict(rows))
    # Without its rows it can do no more than one that was read.
    with pytest.raises(AttributeError, match="train_set"):
        model.update()


def test_the_rows_of_a_lightgbm_model_live_as_long_as_the_model():
    trainer = TRAINERS["lightgbm"](**OF_TABLE, rounds=3)
    before = len(lightgbm_trainer._rows_of)
    model = train(trainer).model
    rows = weakref.ref(lightgbm_trainer._rows_of[model])
    assert rows() is not None
    del model
    assert rows() is None
    assert len(lightgbm_trainer._rows_of) == before


def test_a_lightgbm_model_that_stopped_early_has_no_more_trees_than_it_predicts_with():
    trainer = TRAINERS["lightgbm"](**OF_TABLE, rounds=300, early_stopping_rounds=3)
    model = train(trainer).model
    assert model.num_trees() == model.best_iteration < 300
