"""`Best` and the ready candidates, outside any run."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from partwise.connector.context import MemoryLink, PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError, SerdeError
from partwise.evaluation import Backtest, CrossValidation, HoldoutByTime
from partwise.flows.demo.table import write_demo_table
from partwise.models.serdes import PlainSerde, serde_for
from partwise.outcomes import Result, Skip
from partwise.trainers import (
    READY_TRAINERS,
    Best,
    Lagged,
    LastValue,
    LightGBMTrainer,
    Linear,
    Mean,
    RandomForest,
    SeasonalNaive,
    StatsForecast,
    TrainerSettings,
    Tuned,
    default_predict,
)
from partwise.tuning.space import loguniform

N_ROWS = 84
CHANCE = np.random.default_rng(2)
X = CHANCE.normal(size=N_ROWS)
X[5] = np.nan
SHAPES = CHANCE.choice(["a", "b", "c"], N_ROWS)
TABLE = pa.table(
    {
        "shop": ["s"] * N_ROWS,
        "day": np.datetime64("2026-01-05") + np.arange(N_ROWS),
        "x": pa.array(X, from_pandas=True),
        "shape": pa.array(SHAPES).dictionary_encode(),
        "y": 3 * np.nan_to_num(X) + (SHAPES == "b"),
        "two": (np.nan_to_num(X) > 0).astype(np.int64),
        "three": np.digitize(np.nan_to_num(X), [-0.5, 0.5]),
    }
)
BACKTEST = Backtest(time="day", horizon="7D", windows=3)
FEATURES = ("x", "shape")


def train(trainer, table=TABLE, **given_to_context):
    link = MemoryLink()
    context = PartitionContext(
        key="s", key_columns=("shop",), seed=3, link=link, **given_to_context
    )
    trainer.check(table.schema, frozenset(), ("shop",))
    return trainer(DataConnector(table), context), link.artifacts


def predict(model, table=TABLE):
    return default_predict(DataConnector(table), model, PartitionContext())


def told(artifacts):
    return {each["candidate"]: each for each in json.loads(artifacts["candidates.json"])}


def fit_mean(data, context):
    context.upload("note", "note.txt")
    values = data.to_arrow()["y"].to_numpy()
    return Result(float(values.mean()) + context.params.get("shift", 0))


def predict_constant(data, model, context):
    assert "y" not in data.to_arrow().column_names
    return [model] * data.to_arrow().num_rows


def fail(data, context):
    raise KeyError("gone")


def decline(data, context):
    return Skip("not mine")


def run_out_of_memory(data, context):
    raise MemoryError


def score_nothing(labels, predictions):
    return float("nan")


def candidates():
    boosted = LightGBMTrainer(rounds=10, features=FEATURES, params={"min_data_in_leaf": 3})
    return [boosted, Linear(features=FEATURES), SeasonalNaive(season=7), Mean()]


@pytest.mark.parametrize("metric", ["rmse", "mae", "wape", "mase", "pinball:0.8"])
def test_the_best_is_the_one_that_alone_has_the_best_score(metric):
    best, artifacts = train(Best(candidates(), label="y", metric=metric, holdout=BACKTEST))
    scores = {}
    for candidate in candidates():
        alone, _ = train(Best([candidate], label="y", metric=metric, holdout=BACKTEST))
        scores[alone.candidate] = alone.metrics[f"holdout_{metric}"]
        assert best.metrics[f"candidate_{alone.candidate}_{metric}"] == scores[alone.candidate]
    assert best.metrics[f"holdout_{metric}"] == min(scores.values()) == scores[best.candidate]
    assert [name for name, each in told(artifacts).items() if each["best"]] == [best.candidate]
    assert {len(each["windows"]) for each in told(artifacts).values()} == {3}


def test_a_trainer_has_the_same_score_alone_and_as_a_candidate():
    trainer = LightGBMTrainer(label="y", features=FEATURES, rounds=10)
    alone, _ = train(trainer.model_copy(update={"holdout": BACKTEST}))
    best, _ = train(Best([trainer], holdout=BACKTEST))
    for name in ("holdout_rmse", "holdout_mae", "holdout_rows", "windows", "rounds"):
        assert best.metrics[name] == alone.metrics[name]
    assert best.model.model_to_string() == alone.model.model_to_string()


def test_what_fails_skips_or_has_no_score_loses_with_its_reason():
    trainer = Best(
        [fail, decline, Mean(), RandomForest(min_rows=1000)], label="y", holdout=BACKTEST
    )
    result, artifacts = train(trainer)
    assert result.candidate == "mean"
    found = told(artifacts)
    assert found["fail"]["reason"] == "KeyError: 'gone'"
    assert found["decline"]["reason"] == "not mine"
    assert found["random_forest"]["reason"].startswith("too few rows: 63 of 1000")
    assert "candidate_fail_rmse" not in result.metrics
    assert result.metrics["candidates_failed"] == 1


def test_only_all_failing_fails_and_all_skipping_skips():
    with pytest.raises(
        InputError, match=r"None of the 2 candidates.*fail: KeyError.*not mine"
    ) as e:
        train(Best([fail, decline], label="y"))
    assert [type(error) for error in e.value.__cause__.exceptions] == [KeyError]
    outcome, _ = train(Best([decline, decline], label="y"))
    assert outcome == Skip("all 2 candidates skipped: decline: not mine; decline_2: not mine")
    with pytest.raises(InputError, match="mean: its score is nan"):
        train(Best([Mean(label="y")], metric=score_nothing))
    with pytest.raises(MemoryError):
        train(Best([run_out_of_memory, Mean()], label="y"))


def test_a_function_trains_on_some_rows_and_predicts_others():
    trainer = Best([fit_mean], label="y", holdout=BACKTEST, predict=predict_constant)
    result, artifacts = train(trainer, params={"fit_mean": {"shift": 1.0}})
    assert result.model == pytest.approx(TABLE["y"].to_numpy().mean() + 1)
    assert artifacts["note.txt"] == b"note"
    kept, artifacts = train(trainer.model_copy(update={"fit_on": "train"}))
    assert kept.model == pytest.approx(TABLE["y"].to_numpy()[:-7].mean())
    assert "note.txt" not in artifacts
    mean, _ = train(Mean(label="y", holdout=BACKTEST))
    assert kept.metrics["holdout_rmse"] == pytest.approx(mean.metrics["holdout_rmse"])


def predict_sorted(data, model, context):
    rows = data.to_pandas().sort_values("x")
    return 3 * rows["x"].fillna(0) + (rows["shape"] == "b")


def test_predictions_are_scored_beside_the_rows_that_their_index_names():
    result, _ = train(Best([fit_mean], label="y", predict=predict_sorted))
    assert result.metrics["candidate_fit_mean_rmse"] == pytest.approx(0, abs=1e-12)


def test_parameters_of_a_partition_are_for_all_or_for_one_candidate():
    boosted = LightGBMTrainer(rounds=3, features=FEATURES)
    trainer = Best([boosted, boosted, Linear(features=FEATURES)], label="y")
    result, artifacts = train(trainer, params={"lightgbm_2": {"rounds": 9}, "max_depth": 2})
    assert "max_depth" in told(artifacts)["linear"]["reason"]
    assert result.metrics["rounds"] == 9


def test_equal_candidates_are_told_apart_and_the_first_is_kept():
    result, _ = train(Best([Mean(label="y"), Mean(label="y"), Mean(label="y")]))
    assert result.candidate == "mean"
    names = [name for name in result.metrics if name.startswith("candidate_")]
    assert names == ["candidate_mean_rmse", "candidate_mean_2_rmse", "candidate_mean_3_rmse"]


def test_a_tuned_trainer_is_a_candidate():
    tuned = Tuned(Linear(features=FEATURES), {"alpha": loguniform(0.001, 100)}, trials=3)
    result, artifacts = train(Best([tuned, Mean()], label="y", holdout=BACKTEST))
    assert result.candidate == "tuned_linear"
    assert len(json.loads(artifacts["trials.json"])["trials"]) == 3


@pytest.mark.parametrize(
    ("label", "predicts", "metric"),
    [("two", "binary", "auc"), ("two", "binary", ""), ("three", "multiclass", "accuracy")],
)
def test_classes_are_compared_by_their_probabilities(label, predicts, metric):
    models = [Linear(features=FEATURES, predicts=predicts), Mean(predicts=predicts)]
    models.append(RandomForest(features=FEATURES, predicts=predicts, params={"n_estimators": 20}))
    classes = (0, 1, 2) if predicts == "multiclass" else ()
    holdout = CrossValidation(folds=3)
    best = Best(models, label=label, metric=metric, holdout=holdout, classes=classes)
    result, _ = train(best)
    assert result.candidate != "mean"
    found = predict(result.model)
    assert found.shape == ((N_ROWS, 3) if predicts == "multiclass" else (N_ROWS,))
    assert np.all((found >= 0) & (found <= 1))


def test_a_model_of_scikit_learn_predicts_as_it_did_there():
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import Ridge

    table = TABLE.filter(pa.array(~np.isnan(X)))
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    forest, _ = train(RandomForest(label="y", features=("x",), holdout=None), table)
    theirs = RandomForestRegressor(random_state=3).fit(x[:, None], y)
    np.testing.assert_allclose(predict(forest.model, table), theirs.predict(x[:, None]), rtol=1e-12)
    linear, _ = train(Linear(label="y", features=FEATURES, holdout=None), table)
    one_hot = np.stack([table["shape"].to_numpy() == name for name in "abc"], axis=1)
    matrix = np.hstack([x[:, None], one_hot])
    matrix = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)
    theirs = Ridge().fit(matrix, y)
    np.testing.assert_allclose(predict(linear.model, table), theirs.predict(matrix), rtol=1e-10)


def test_what_training_had_not_met_is_missing_to_a_model():
    for kind in (Linear, RandomForest):
        model = train(kind(label="y", features=FEATURES, holdout=None))[0].model
        odd = pa.table({"shape": ["b", "z", None], "x": pa.array([None, 1.0, np.inf])})
        assert np.isfinite(predict(model, odd)).all()


@st.composite
def _series(draw):
    """Steps of time with gaps, one of them with two rows, and labels."""
    # Most neighbours are one step apart.
    steps = sorted(draw(st.sets(st.integers(12, 40), min_size=1, max_size=10)))
    steps = [*range(12), *steps, steps[-1]]
    labels = draw(st.lists(st.integers(-9, 9), min_size=len(steps), max_size=len(steps)))
    return steps, [float(label) for label in labels]


@settings(max_examples=50, deadline=None)
@given(_series(), st.integers(1, 20), st.sampled_from(["D", "h", "us", ""]), st.randoms())
def test_a_naive_forecast_is_what_was_the_season_before(series, season, unit, chance):
    steps, labels = series
    known = {
        step: np.mean([v for s, v in zip(steps, labels, strict=True) if s == step])
        for step in steps
    }
    order = list(range(len(steps)))
    chance.shuffle(order)
    at = np.array(steps)

    def times(numbers):
        return (
            numbers
            if unit == ""
            else np.datetime64("2026-03-27T00:00:00", "us") + numbers * np.timedelta64(1, unit)
        )

    table = pa.table({"t": times(at[order]), "y": np.array(labels)[order]})
    ahead = np.arange(at[-1] + 1, at[-1] + 20)
    outcome, _ = train(SeasonalNaive(label="y", time="t", season=season, holdout=None), table)
    if at[-1] + 1 < season:
        assert isinstance(outcome, Skip)
        return
    found = predict(outcome.model, pa.table({"t": times(ahead)}))
    for step, value in zip(ahead.tolist(), found.tolist(), strict=True):
        back = range(step - season, -1, -season)
        earlier = [known[each] for each in back if each in known and each <= at[-1]]
        expected = earlier[0] if earlier else np.mean(list(known.values()))
        assert value == pytest.approx(expected)
    last, _ = train(LastValue(label="y", time="t", holdout=None), table)
    assert set(predict(last.model, pa.table({"t": times(ahead)})).tolist()) == {known[at[-1]]}


@pytest.mark.parametrize("zone", ["", "Europe/Amsterdam"])
@pytest.mark.parametrize(
    ("first", "count", "unit", "season"), [("2024-01", 24, "M", 12), ("2026-03-16", 14, "D", 7)]
)
def test_steps_may_be_months_and_days_of_23_hours(first, count, unit, season, zone):
    def column(start, n):
        times = np.arange(start, start + n).astype("datetime64[us]")
        naive = pa.array(times, pa.timestamp("us"))
        return pc.assume_timezone(naive, zone) if zone else naive

    start = np.datetime64(first, unit)
    labels = np.tile(np.arange(float(season)), 2)
    table = pa.table({"t": column(start, count), "y": labels})
    trainer = SeasonalNaive(label="y", time="t", season=season, holdout=None)
    model = train(trainer, table)[0].model
    # Beyond the ends of two summer times.
    ahead = column(start + 16 * season, count)
    assert predict(model, pa.table({"t": ahead})).tolist() == labels.tolist()
    if zone:
        elsewhere = ahead.cast(pa.timestamp("us", "UTC"))
        assert predict(model, pa.table({"t": elsewhere})).tolist() == labels.tolist()
    with pytest.raises(ColumnError, match="of another kind in training"):
        predict(model, pa.table({"t": [1.0]}))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["AutoETS", "AutoARIMA", "AutoTheta"])
def test_statsforecast_forecasts_from_the_end_of_training(model):
    week = np.array([1.0, 2, 8, 3, 5, 0, 4])
    table = TABLE.set_column(4, "y", pa.array(np.tile(week, N_ROWS // 7)))
    trainer = StatsForecast(model, season=7, horizon=21)
    gap = table.filter(pa.array(np.arange(N_ROWS) != 30))
    result, _ = train(Best([trainer, Mean()], label="y", holdout=BACKTEST), gap)
    assert result.candidate == model.lower()
    late = pa.table({"day": np.datetime64("2026-03-30") + np.arange(21)})
    np.testing.assert_allclose(predict(result.model, late), np.tile(week, 3), atol=0.7)
    for days in (late["day"][:1].to_numpy() + 21, TABLE["day"][-1:].to_numpy()):
        with pytest.raises(InputError, match="the 21 steps of time after the last row"):
            predict(result.model, pa.table({"day": days}))


@pytest.mark.parametrize("kind", [kind for kind in READY_TRAINERS if kind != "statsforecast"])
def test_a_model_comes_back_from_its_file_and_settings_from_json(kind, tmp_path):
    trainer = READY_TRAINERS[kind](label="y", holdout=HoldoutByTime(column="day"))
    if hasattr(trainer, "features"):
        trainer = trainer.model_copy(update={"features": FEATURES})
    written = trainer.model_dump(mode="json")
    assert TypeAdapter(TrainerSettings).validate_python(written) == trainer
    model = train(trainer)[0].model
    serde = serde_for(model)
    path = str(tmp_path / serde.filename)
    serde.write(model, path)
    np.testing.assert_array_equal(predict(serde.read(path)), predict(model))
    if serde.filename == "model.json":
        content = json.loads((tmp_path / "model.json").read_text())
        (tmp_path / "newer.json").write_text(json.dumps({**content, "format_version": 5}))
        with pytest.raises(SerdeError, match="format version 5"):
            serde.read(str(tmp_path / "newer.json"))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format_version": 1, "kind": "other"}'])
def test_what_is_no_plain_model_is_not_read(content, tmp_path):
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(SerdeError, match="not a model that PlainSerde reads"):
        PlainSerde().read(str(tmp_path / "model.json"))


def test_settings_of_best_come_back_from_json():
    tuned = Tuned(Linear(label="y"), {"alpha": loguniform(0.1, 1)})
    trainer = Best([*candidates(), tuned, "shop.models:fit"], metric="shop.models:cost")
    written = json.loads(json.dumps(trainer.model_dump(mode="json")))
    assert TypeAdapter(TrainerSettings).validate_python(written) == trainer


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda: Best([]), "at least 1 item"),
        (lambda: Best([Best([Mean()])]), "cannot be a Best themselves"),
        (lambda: Best([Mean]), "Mean is a class"),
        (lambda: Best([Mean(holdout=BACKTEST)]), "'mean' has a holdout of its own"),
        (lambda: Best([Mean()], holdout=None), "holdout"),
        (lambda: Best([Mean()], fit_on="train", holdout=CrossValidation()), "last window"),
    ],
)
def test_wrong_settings_are_refused_at_once(wrong, reason):
    with pytest.raises(InputError, match=reason):
        wrong()


def mae(labels, predictions):
    return 0.0


@pytest.mark.parametrize(
    ("trainer", "reason"),
    [
        (
            Best([Mean(fit_on="all")]),
            "The candidate 'mean' has fit_on='all', which does not count: give fit_on to Best",
        ),
        (Tuned(Linear(fit_on="all"), {"alpha": 1}), "'linear' has fit_on='all'.*to Tuned"),
        (
            Lagged(LightGBMTrainer(fit_on="train"), lags=[1], time="day"),
            "'lightgbm' has fit_on='train'.*to Lagged",
        ),
        (
            Best([Tuned(Linear(), {"alpha": 1}, "mae")]),
            "'tuned_linear' has the metric 'mae'.*by that of Best, 'rmse'",
        ),
        (Best([Tuned(Linear(), {"alpha": 1}, mae)], metric="mae"), "has the metric 'mae'"),
        (Best([Mean(fit_on="all"), Linear()], fit_on="all"), ""),
        (Best([Tuned(Linear(), {"alpha": 1}, "mae")], metric="mae"), ""),
        (Best([Tuned(Linear(), {"alpha": 1}, mae)], metric=mae), ""),
        (Best([Tuned(Linear(), {"alpha": 1}, mae)], metric=mae, direction="maximize"), ""),
        (
            Best([Tuned(Linear(), {"alpha": 1}, mae, direction="maximize")], metric=mae),
            "has the metric 'mae'",
        ),
    ],
)
def test_a_setting_within_that_would_not_count_is_refused_before_any_work(trainer, reason):
    trainer = trainer.model_copy(update={"label": "y"})
    if not reason:
        trainer.check(TABLE.schema)
        return
    with pytest.raises(InputError, match=reason):
        trainer.check(TABLE.schema)


@pytest.mark.slow
def test_on_the_demo_the_best_is_in_the_median_no_worse_than_the_best_single_one(tmp_path):
    write_demo_table(tmp_path / "sales.parquet")
    sales = pq.read_table(tmp_path / "sales.parquet")
    features = ["price", "promotion", "weekday", "temperature_c"]
    boosted = LightGBMTrainer(label="sales", features=features, rounds=20)
    singles = [boosted, Linear(label="sales", features=features), SeasonalNaive(season=7)]
    backtest = Backtest(time="date", horizon="28D", windows=2)
    scores = {"best": []}
    for number, store in enumerate(sales["store"].unique()[:20]):
        table = sales.filter(pc.equal(sales["store"], store))
        link = MemoryLink()
        context = PartitionContext(key_columns=("store",), seed=number, link=link)
        result = Best(singles, holdout=backtest)(DataConnector(table), context)
        scores["best"].append(result.metrics["holdout_rmse"])
        for name, each in told(link.artifacts).items():
            scores.setdefault(name, []).append(each["score"])
    medians = {name: np.median(values) for name, values in scores.items()}
    assert medians.pop("best") <= min(medians.values())
    assert len(medians) == 3


@pytest.mark.parametrize("candidates", [None, 3, [{"classes": 3}], [{"classes": None}]])
def test_candidates_that_are_none_are_refused(candidates) -> None:
    with pytest.raises(InputError, match="cannot use: candidates"):
        Best(candidates=candidates)
