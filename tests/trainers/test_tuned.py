"""Settings that are searched on one partition, outside any run."""

import numpy as np
import pyarrow as pa
import pytest

from partwise import (
    Backtest,
    Budget,
    ColumnError,
    CrossValidation,
    HoldoutFraction,
    InputError,
    LightGBMTrainer,
    Skip,
    TrialsFailedError,
    Tuned,
    XGBoostTrainer,
    loguniform,
    randint,
    uniform,
)
from partwise.connector.context import PartitionContext, Share
from partwise.connector.data_connector import DataConnector
from partwise.trainers.candidate import Fit

SPACE = {"learning_rate": loguniform(0.01, 0.5), "num_leaves": randint(4, 32)}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(1)
    a, b = random.normal(size=(2, 150))
    label = np.sin(3 * a) + b + random.normal(size=150) * 0.1
    return pa.table({"day": np.arange(150), "a": a, "b": b, "y": label})


def search(trainer, table, **context):
    context = PartitionContext(**{"seed": 7, **context})
    result = trainer(DataConnector(table), context)
    return result, context.download("trials.json")


class Plain:
    """A trainer whose score is what its settings say: each fit predicts `bias` off."""

    label = "y"
    rounds = 4

    def __init__(self):
        self.fits = []

    def check(self, schema, empty_columns=frozenset(), key_columns=None):
        pass

    def prepare(self, data, context):
        return PlainRows(self, data.to_arrow())

    def __call__(self, data, context):
        raise NotImplementedError


class PlainRows:
    def __init__(self, trainer, table):
        self.trainer, self.table = trainer, table
        self.labels = table["y"].to_numpy()

    def fit(self, train, test=None, settings=None, look=None):
        bias = (settings or {}).get("bias", 1.0)
        if bias == "broken":
            raise ZeroDivisionError("no such bias")
        if bias == "skip":
            return Skip("too few rows")
        if bias == "memory":
            raise MemoryError
        for done in range(1, 5):
            if look is not None:
                look(done, lambda: self.labels[test] + bias)
        self.trainer.fits.append(bias)
        predictions = None if test is None else self.labels[test] + bias
        return Fit(model=f"biased by {bias}", predictions=predictions, task="regression")


@pytest.mark.parametrize("trainer", [LightGBMTrainer, XGBoostTrainer])
@pytest.mark.parametrize("pruner", ["none", "median"])
@pytest.mark.parametrize(
    "holdout",
    [HoldoutFraction(), Backtest(time="day", horizon=15, windows=3), CrossValidation(folds=3)],
    ids=lambda holdout: holdout.kind,
)
def test_nothing_worse_than_its_own_settings_is_kept(table, trainer, pruner, holdout):
    space = {"learning_rate": loguniform(0.01, 0.5), "max_depth": randint(2, 6)}
    settings = {"pruner": pruner, "holdout": holdout}
    tuned = Tuned(trainer(label="y", rounds=6), space, trials=14, **settings)
    few = Tuned(trainer(label="y", rounds=6), space, trials=3, **settings)
    for each in (tuned, few):
        each.check(table.schema, key_columns=())
    result, trials = search(tuned, table)
    assert result.metrics["holdout_rmse"] <= result.metrics["untuned_rmse"]
    rows = {"fraction": 30, "backtest": 45, "cross_validation": 150}
    assert result.metrics["holdout_rows"] == rows[holdout.kind]
    assert result.metrics["trials"] == len(trials["trials"]) == 14
    assert trials["trials"][0]["settings"] == {}
    if pruner == "none":
        best = min(trials["trials"], key=lambda trial: trial["value"])
        assert trials["best"] == best["settings"]
        assert best["value"] == pytest.approx(result.metrics["holdout_rmse"])
    if isinstance(holdout, Backtest):
        # The time column is what windows are told by, and no feature.
        names = getattr(result.model, "feature_names", None) or result.model.feature_name()
        assert names == ["a", "b"]
    again, repeated = search(tuned, table)
    of_both = [{**each.metrics, "tuning_seconds": 0} for each in (again, result)]
    assert of_both[0] == of_both[1]
    assert [each["settings"] for each in repeated["trials"]] == [
        each["settings"] for each in trials["trials"]
    ]
    assert search(few, table, seed=8)[1]["trials"][2] != trials["trials"][2]


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
@pytest.mark.parametrize("pruner", ["none", "median", "percentile", "halving", "hyperband"])
def test_every_sampler_and_pruner_is_repeatable(table, sampler, pruner):
    space = {"bias": [0.3, 0.9, 2.0, 5.0, 0.1] if sampler == "grid" else uniform(0.1, 3)}
    found = []
    for _ in range(2):
        tuned = Tuned(Plain(), space, trials=25, sampler=sampler, pruner=pruner)
        result, trials = search(tuned, table)
        found.append([(each["settings"], each["state"]) for each in trials["trials"]])
        assert result.metrics["holdout_rmse"] < 1
    assert found[0] == found[1]
    if sampler == "grid":
        assert [settings for settings, _ in found[0]] == [{}, *({"bias": b} for b in space["bias"])]


def test_worse_trials_are_given_up_between_rounds_and_windows(table):
    settings = [{"bias": 1.0 + place / 10} for place in range(9)]
    for holdout in (HoldoutFraction(), Backtest(time="day", horizon=15, windows=3)):
        plain = Plain()
        tuned = Tuned(plain, settings=settings, pruner="median", holdout=holdout)
        result, trials = search(tuned, table)
        states = [each["state"] for each in trials["trials"]]
        assert states == ["complete"] * 5 + ["pruned"] * 5
        assert result.metrics["trials_pruned"] == 5
        windows = 3 if isinstance(holdout, Backtest) else 1
        # The other windows of those given up are not fitted; the last fit is that of all rows.
        assert len(plain.fits) == 5 * windows + (1 if windows > 1 else 0)


def test_trials_are_given_up_by_what_they_are_compared_by(table):
    """A function named like a built-in metric counts itself, between rounds too."""
    asked = []

    def mae(labels, predictions):
        error = predictions - labels
        asked.append(np.where(error < 0, -50 * error, error).mean())
        return asked[-1]

    trainer = LightGBMTrainer(label="y", rounds=20)
    result, trials = search(Tuned(trainer, SPACE, "mae", trials=12, pruner="median"), table)
    assert result.metrics["trials_pruned"] > 0
    result, trials = search(Tuned(trainer, SPACE, mae, trials=12, pruner="median"), table)
    assert result.metrics["trials_pruned"] > 0
    assert len(asked) > 12
    assert {each["value"] for each in trials["trials"]} - {None} <= {*asked}


@pytest.mark.parametrize(
    ("trainer", "params"),
    [
        (LightGBMTrainer, {}),
        (LightGBMTrainer, {"metric": ["mape", "auc"]}),
        (XGBoostTrainer, {}),
        (XGBoostTrainer, {"eval_metric": ["rmse", "mape"]}),
    ],
)
def test_windows_stop_early_by_the_trainers_metric_whatever_the_pruner(table, trainer, params):
    labels = np.random.default_rng(3).exponential(size=len(table)) + 0.01
    table = table.set_column(3, "y", pa.array(labels))
    own = trainer(label="y", rounds=60, early_stopping_rounds=3, params=params)
    windows = []
    for pruner in ("none", "median"):
        holdout = Backtest(time="day", horizon=20, windows=2)
        tuned = Tuned(own, SPACE, "mae", trials=1, holdout=holdout, pruner=pruner)
        windows.append(search(tuned, table)[1]["trials"][0]["windows"])
    assert windows[0] == windows[1]


def test_equal_settings_are_fitted_once(table):
    plain = Plain()
    tuned = Tuned(plain, {"bias": [0.5, 2.0]}, sampler="random", trials=20)
    result, trials = search(tuned, table)
    assert sorted(plain.fits) == [0.5, 1.0, 2.0]
    assert [each["state"] for each in trials["trials"]].count("equal") == 17
    assert result.model == "biased by 0.5"


def test_a_trial_that_fails_loses_with_its_reason(table):
    tuned = Tuned(Plain(), settings=[{"bias": "broken"}, {"bias": "skip"}, {"bias": 0.5}])
    result, trials = search(tuned, table)
    assert result.metrics["trials_failed"] == 2
    assert result.metrics["best_bias"] == 0.5
    reasons = [each["reason"] for each in trials["trials"]]
    assert reasons == ["", "ZeroDivisionError: no such bias", "too few rows", ""]


def test_only_all_failing_fails(table):
    class Broken(Plain):
        def prepare(self, data, context):
            rows = super().prepare(data, context)
            rows.fit = lambda *given: 1 / 0
            return rows

    context = PartitionContext(seed=7)
    first = (
        "None of 5 trials has a score; the first that failed, with the trainer's own settings: "
        "ZeroDivisionError"
    )
    with pytest.raises(TrialsFailedError, match=first) as caught:
        Tuned(Broken(), {"bias": uniform(0, 1)}, trials=5)(DataConnector(table), context)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(context.download("trials.json")["trials"]) == 5
    trainer = LightGBMTrainer(label="y", min_rows=1_000)
    assert search(Tuned(trainer, SPACE), table)[0] == Skip("too few rows: 120 of 1000")


def test_memory_that_is_gone_is_not_a_lost_trial(table):
    with pytest.raises(MemoryError):
        search(Tuned(Plain(), settings=[{"bias": "memory"}]), table)


def test_a_metric_without_a_value_loses(table):
    def strange(labels, predictions):
        off = float(np.mean(predictions - labels))
        return float("nan") if off > 0.9 else off

    tuned = Tuned(Plain(), settings=[{"bias": 0.5}], metric=strange)
    result, trials = search(tuned, table)
    assert result.model == "biased by 0.5"
    assert trials["trials"][0]["reason"] == "the metric strange has no value"
    assert "untuned_strange" not in result.metrics
    with pytest.raises(TrialsFailedError, match="the metric strange has no value"):
        search(Tuned(Plain(), settings=[{"bias": 2.0}], metric=strange), table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to try: give a space"),
        ({"space": SPACE, "trials": 0}, "greater than or equal to 1"),
        ({"space": {"a": {"kind": "uniform", "low": 2, "high": 1}}}, "from 2 to 1"),
        ({"space": SPACE, "budget": {"total_trials": 0}}, "greater than or equal to 1"),
        ({"space": SPACE, "budget": {"total_seconds": 0}}, "greater than 0"),
        ({"space": SPACE, "budget": {}}, "either total_trials or total_seconds"),
        (
            {"space": SPACE, "budget": {"total_trials": 5, "total_seconds": 5}},
            "either total_trials or total_seconds",
        ),
        (
            {"space": SPACE, "fit_on": "train", "holdout": CrossValidation()},
            "needs a last window",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Tuned(LightGBMTrainer(label="y"), **options)


def test_a_trainer_that_is_tuned_has_no_holdout_of_its_own():
    with pytest.raises(InputError, match="give holdout to Tuned"):
        Tuned(LightGBMTrainer(label="y", holdout=HoldoutFraction(fraction=0.5)), SPACE)
    with pytest.raises(InputError, match="a Tuned cannot be tuned"):
        Tuned(Tuned(LightGBMTrainer(label="y"), SPACE), SPACE)


@pytest.mark.parametrize(
    ("tuned", "message"),
    [
        (Tuned(LightGBMTrainer(label="y"), {"leaves": randint(2, 5)}), "no parameter 'leaves'"),
        (Tuned(LightGBMTrainer(label="y"), {"num_trees": randint(2, 5)}), "Search rounds"),
        (
            Tuned(XGBoostTrainer(label="y"), {"eta": uniform(0, 1), "learning_rate": 0.1}),
            "name one parameter",
        ),
        (Tuned(LightGBMTrainer(label="y"), SPACE, "auc"), "'auc' is none of a regression model"),
        (Tuned(LightGBMTrainer(label="y"), SPACE, "mase"), "score with Backtest"),
        (Tuned(LightGBMTrainer(label="y"), SPACE, "rms"), "There is no metric 'rms'"),
        (Tuned(LightGBMTrainer(label="y"), SPACE, sampler="grid"), "with endlessly many"),
        (
            Tuned(
                LightGBMTrainer(label="y"), {"num_leaves": randint(2, 40)}, sampler="grid"
            ),
            "The grid has 38 settings, and trials=30 leaves 29 for them: give trials=39",
        ),
        (
            Tuned(
                LightGBMTrainer(label="y"),
                dict.fromkeys(("num_leaves", "max_bin", "bagging_freq"), randint(2, 5002)),
                sampler="grid",
            ),
            "The grid has 125,000,000,000 settings",
        ),
        (Tuned(LightGBMTrainer(label="z"), SPACE), "label 'z' is missing"),
        (
            Tuned(LightGBMTrainer(label="y"), SPACE, holdout=Backtest(time="t", horizon=1)),
            "'t' of the backtest is missing",
        ),
        (Tuned(LightGBMTrainer(label="y"), settings=[{"leaves": 5}]), "no parameter 'leaves'"),
        (Tuned(LightGBMTrainer(label="y"), lambda trial: None), "returned a NoneType"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_any_work(table, tuned, message):
    with pytest.raises(InputError, match=message):
        tuned.check(table.schema, key_columns=())


def test_a_document_can_have_it():
    tuned = Tuned(
        LightGBMTrainer(label="y"), SPACE, "mae", pruner="median", budget=Budget(total_trials=90)
    )
    assert Tuned.model_validate_json(tuned.model_dump_json()) == tuned
    named = Tuned(LightGBMTrainer(label="y"), "partwise.tuning.space:parse_space", "pinball:0.9")
    assert callable(named.resolved().space)
    assert named.resolved().metric == "pinball:0.9"


def test_a_budget_is_divided_by_rows_and_never_exceeded(table):
    random = np.random.default_rng(5)
    for _ in range(50):
        rows = random.integers(1, 1_000, size=random.integers(1, 40))
        budget = Budget(total_trials=int(len(rows) + random.integers(0, 5_000)))
        shares = [Share(rows=n / rows.sum(), partitions=len(rows)) for n in rows]
        trials = [budget.trials_of(share) for share in shares]
        assert min(trials) >= 1
        assert budget.total_trials - len(rows) <= sum(trials) <= budget.total_trials
        ordered = [trials[place] for place in np.argsort(rows)]
        assert ordered == sorted(ordered)
    with pytest.raises(InputError, match="A budget of 3 trials is less than one for each of 4"):
        Tuned(Plain(), SPACE, budget=Budget(total_trials=3)).check_partitions(4)


def test_a_partition_leaves_what_brings_nothing(table):
    settings = [{"bias": 0.5}] + [{"bias": 2.0 + place} for place in range(20)]
    share = Share(rows=0.5, partitions=2)
    tuned = Tuned(Plain(), settings=settings, budget=Budget(total_trials=36, patience=6))
    assert search(tuned, table, share=share)[0].metrics["trials"] == 8
    tuned = Tuned(Plain(), settings=settings, budget=Budget(total_trials=36, patience=99))
    assert search(tuned, table, share=share)[0].metrics["trials"] == 18
    tuned = Tuned(Plain(), settings=settings, budget=Budget(total_seconds=1e-9))
    assert search(tuned, table, share=share)[0].metrics["trials"] == 1
    tuned = Tuned(Plain(), {"bias": uniform(0.1, 3)}, max_duration_s=1e-9)
    assert search(tuned, table)[0].metrics["trials"] == 1


class Clock:
    """A second goes by each time that somebody looks."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1
        return self.now


def spends(table, budget, run_id):
    settings = [{"bias": 0.9 - place / 1000} for place in range(200)]
    tuned = Tuned(Plain(), settings=settings, trials=None, budget=budget)
    share = Share(partitions=4, rows=0.25)
    return search(tuned, table, run_id=run_id, share=share)[0].metrics


def test_seconds_that_a_partition_leaves_go_to_those_after_it(table, monkeypatch):
    monkeypatch.setattr("partwise.trainers.choosing.trials.time", Clock())
    budget = Budget(total_seconds=400)
    first = spends(table, budget, "one")
    own = first["trials"]
    stops = Tuned(
        Plain(), settings=[{"bias": 9.0}] * 5, budget=budget.model_copy(update={"patience": 2})
    )
    left = search(stops, table, run_id="two", share=Share(partitions=4, rows=0.25))[0].metrics
    after = [spends(table, budget, "two") for _ in range(2)]
    assert left["trials"] < own < after[0]["trials"]
    assert after[1]["trials"] < after[0]["trials"], "it is given once"
    spent = sum(each["tuning_seconds"] for each in (left, *after))
    # Each may go on with the trial that it is in.
    assert spent <= 3 * 100 + 10
    assert spends(table, budget, "three")["trials"] == own, "another run has its own budget"


def test_trials_that_a_partition_leaves_go_to_nobody(table):
    budget = Budget(total_trials=40, patience=2)
    share = Share(partitions=4, rows=0.25)
    stops = Tuned(Plain(), settings=[{"bias": 9.0}] * 5, budget=budget)
    assert search(stops, table, run_id="four", share=share)[0].metrics["trials"] < 10
    falling = [{"bias": 0.9 - place / 1000} for place in range(200)]
    tuned = Tuned(Plain(), settings=falling, budget=budget)
    assert search(tuned, table, run_id="four", share=share)[0].metrics["trials"] == 10


class Slope:
    """A model of our own: `default_predict` does not know it."""

    def __init__(self, weights):
        self.weights = weights


def fit_slope(data, context):
    """Least squares with a penalty, which is the setting."""
    penalty = context.params.get("penalty", 1000.0)
    if penalty > 2000:
        return Skip("too strong")
    x, y = data.to_numpy(["a", "b"]), data.to_numpy("y")
    assert np.isfinite(y).all()
    context.upload("seen", "seen.txt")
    return Slope(np.linalg.solve(x.T @ x + penalty * np.eye(2), x.T @ y))


def predict_slope(data, model, context):
    return data.to_numpy(["a", "b"]) @ model.weights


@pytest.mark.parametrize("named", [False, True])
def test_the_settings_of_a_train_function_are_found(table, named):
    labels = table["y"].to_numpy().copy()
    rows = table.set_column(3, "y", pa.array(labels, mask=np.arange(150) % 10 == 0))
    functions = [f"{__name__}:{each.__name__}" if named else each for each in FUNCTIONS]
    tuned = Tuned(
        functions[0],
        {"penalty": [0.01, 100.0, 5000.0]},
        label="y",
        predict=functions[1],
        sampler="grid",
        holdout=CrossValidation(folds=3),
    )
    if named:
        tuned = Tuned.model_validate_json(tuned.model_dump_json())
    tuned.check(rows.schema)
    context = PartitionContext(seed=7)
    result = tuned(DataConnector(rows), context)
    assert isinstance(result.model, Slope)
    assert context.download("trials.json")["best"] == {"penalty": 0.01}
    assert result.metrics["holdout_rmse"] < result.metrics["untuned_rmse"]
    assert result.metrics["trials_failed"] == 1
    # That of the model that is kept.
    assert context.download("seen.txt") == "seen"


FUNCTIONS = (fit_slope, predict_slope)


def test_a_train_function_needs_a_label(table):
    with pytest.raises(ColumnError, match="given no label"):
        Tuned(fit_slope, {"penalty": [1.0]}).check(table.schema)
    with pytest.raises(ColumnError, match="'sales' is missing"):
        Tuned(fit_slope, {"penalty": [1.0]}, label="sales").check(table.schema)
    with pytest.raises(InputError, match="predicts 'y', and Tuned 'a'"):
        Tuned(LightGBMTrainer(label="y"), SPACE, label="a")
