"""What is typed to search settings."""

from dataclasses import replace

import pytest

from partwise import Backtest, Budget, HoldoutByTime, InputError, LightGBMTrainer, Tuned
from partwise.flows.cli import flow_calls
from partwise.flows.cli.main import main
from partwise.flows.cli.options import TrainerOptions
from partwise.flows.cli.tuning_options import TuningOptions, parse_tune
from partwise.tuning.space import choice, grid, loguniform, randint, uniform

TRAINER = TrainerOptions(trainer="lightgbm", label="y", holdout_by_time="day")


def test_spaces_are_read_as_they_are_written_in_python():
    typed = ["a=loguniform(0.01, 0.3)", "b = randint(4,64)", 'c=choice(gbdt, "1", 2)', "d=[15, 31]"]
    typed += ["e=uniform(-1,1)", "f=grid(true,false)", "g=dart", "h=0.5"]
    assert parse_tune(typed) == {
        "a": loguniform(0.01, 0.3),
        "b": randint(4, 64),
        "c": choice(["gbdt", "1", 2]),
        "d": grid([15, 31]),
        "e": uniform(-1, 1),
        "f": grid([True, False]),
        "g": "dart",
        "h": 0.5,
    }
    assert parse_tune(["mine.spaces:small"]) == "mine.spaces:small"


def test_the_holdout_of_the_trainer_is_that_of_the_search():
    options = TuningOptions(tune=("num_leaves=randint(4, 64)",), trials=9, total_trials=50)
    tuned = options.apply(TRAINER)
    assert isinstance(tuned, Tuned)
    assert (tuned.trials, tuned.holdout) == (9, HoldoutByTime(column="day"))
    assert tuned.budget == Budget(total_trials=50)
    assert TuningOptions().apply(TRAINER) == LightGBMTrainer(
        label="y", holdout=HoldoutByTime(column="day")
    )
    assert TuningOptions(portfolio="few").apply(TRAINER).portfolio == "few"


def test_a_train_function_is_scored_by_the_options_of_trainers():
    options = TrainerOptions(
        trainer="mine:fit", label="y", backtest_time="day", backtest_horizon="7D", metric="mae"
    )
    tuned = TuningOptions(tune=("penalty=loguniform(0.1, 9)",)).apply(options)
    assert (tuned.trainer, tuned.label, tuned.metric) == ("mine:fit", "y", "mae")
    assert tuned.holdout == Backtest(time="day", horizon="7D")
    named = TuningOptions(tune=("penalty=1",), predict="mine:predict").apply(options)
    assert named.predict == "mine:predict"
    rounds = replace(options, rounds=20)
    with pytest.raises(InputError, match="--rounds is a setting of partwise's own trainers"):
        TuningOptions(tune=("penalty=1",)).apply(rounds)
    no_holdout = TrainerOptions(trainer="mine:fit", label="y", no_holdout=True)
    with pytest.raises(InputError, match="--no-holdout does not go with --tune"):
        TuningOptions(tune=("penalty=1",)).apply(no_holdout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 5}, "--trials goes with --tune or --portfolio"),
        ({"tune": ("num_leaves",)}, "'num_leaves' is not of the form name=values"),
        ({"tune": ("a=normal(0, 1)",)}, "give uniform, loguniform, randint, choice or grid"),
        ({"tune": ("a=uniform(1)",)}, "uniform has a low and a high end"),
        ({"tune": ("a=uniform(2, 1)",)}, "The space of 'a' is wrong: uniform goes from 2 to 1"),
        ({"tune": ("a=uniform(x, 1)",)}, "The space of 'a' is wrong: Input should be a valid"),
        ({"tune": ("a=choice()",)}, "at least 1 item"),
        ({"tune": ("a=1",), "trials": 0}, "--trials: Input should be greater than or equal to 1"),
        ({"tune": ("a=1",), "total_seconds": 0.0}, "--total-seconds: Input should be greater"),
    ],
)
def test_what_cannot_be_read_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        TuningOptions(**options).apply(TRAINER)


def test_a_portfolio_of_a_function_is_asked_for_with_its_label(monkeypatch):
    called = {}
    monkeypatch.setattr(flow_calls, "call_and_print", lambda call: called.update(vars(call)) or 0)
    command = ["find-portfolio", "rows.parquet", "-p", "store", "--trainer", "mine:fit"]
    command += ["--label", "y", "--predict", "mine:predict", "--space", "a=uniform(0, 1)"]
    assert main([*command, "--backtest-time", "day", "--backtest-horizon", "7D"]) == 0
    assert [called[name] for name in ("trainer", "label", "predict")] == [
        "mine:fit", "y", "mine:predict",
    ]  # fmt: skip
    assert called["holdout"] == Backtest(time="day", horizon="7D")


def test_without_a_holdout_there_is_nothing_to_compare_by(capsys):
    command = ["train", "rows.parquet", "-p", "store", "--trainer", "lightgbm", "--label", "y"]
    code = main([*command, "--no-holdout", "--tune", "num_leaves=randint(4, 64)"])
    assert code == 2
    assert "--no-holdout does not go with --tune" in capsys.readouterr().err


def test_intervals_are_of_the_settings_that_are_found():
    options = TrainerOptions(trainer="lightgbm", label="y", intervals=("0.8",))
    tuned = TuningOptions(tune=("num_leaves=randint(4, 64)",)).apply(options)
    assert tuned.intervals == (0.8,)
    assert tuned.trainer.intervals == ()
