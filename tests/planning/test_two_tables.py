"""A study whose settings are scored on a second table, and trained on the first alone."""

import numpy as np
import pyarrow as pa
import pytest

from partwise import Backtest, HoldoutFraction, LightGBMTrainer, ScalingConfig, XGBoostTrainer
from partwise.calls.one_model import TuneCall
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.planning.study import prepare_study
from partwise.sources.opening import open_source

RNG = np.random.default_rng(3)


def table(rows: int, slope: float = 2.0) -> pa.Table:
    x = RNG.normal(size=rows)
    kinds = pa.array([f"kind {each % 3}" for each in range(rows)]).dictionary_encode()
    return pa.table({"x": x, "z": RNG.normal(size=rows), "kind": kinds, "y": slope * x})


FIRST, LATE = table(300), table(90, slope=-1.0)
TRAINERS = {
    "lightgbm": LightGBMTrainer(label="y", rounds=5),
    "xgboost": XGBoostTrainer(label="y", rounds=5),
}


def planned(trainer=TRAINERS["lightgbm"], late=LATE, first=FIRST, names=("late",), **changes):
    call = TuneCall(first, trainer, {"learning_rate": 0.3}, run_id="run", **changes)
    return prepare_study(call, open_source(first), {name: open_source(late) for name in names})


@pytest.mark.parametrize("name", TRAINERS)
def test_models_are_trained_on_the_first_table_and_scored_on_the_second(name) -> None:
    trainer = TRAINERS[name]
    # The order of its columns does not matter, nor that it has more.
    late = LATE.select(["y", "kind", "z", "x"]).append_column("more", LATE["x"])
    plan = planned(trainer, late)
    rows = pa.Table.from_batches(list(plan.source.batches()))
    assert rows.num_rows == 390
    assert rows["held_out"].to_pylist() == [0] * 300 + [1] * 90
    context = PartitionContext(params={"learning_rate": 0.3}, seed=5)
    found = plan.work.train.function(DataConnector(rows), context)
    names = found.model.feature_name() if name == "lightgbm" else found.model.feature_names
    assert "held_out" not in names
    alone = trainer.model_copy(update={"holdout": HoldoutFraction(fraction=1e-9)})
    same = alone(DataConnector(FIRST), PartitionContext(params={"learning_rate": 0.3}, seed=5))
    if name == "lightgbm":
        wide = np.column_stack([FIRST["x"], FIRST["z"], FIRST["kind"].combine_chunks().indices])
        np.testing.assert_array_equal(found.model.predict(wide), same.model.predict(wide))
        wide = np.column_stack([LATE["x"], LATE["z"], LATE["kind"].combine_chunks().indices])
        error = np.sqrt(np.mean((found.model.predict(wide) - LATE["y"].to_numpy()) ** 2))
        assert found.metrics["holdout_rmse"] == pytest.approx(error, rel=1e-6)
    # The slope of the second is another one: no model of the first is good there.
    assert found.metrics["holdout_rmse"] > 1


def test_a_column_that_is_named_like_the_mark_keeps_its_name() -> None:
    first, late = (each.append_column("held_out", each["z"]) for each in (FIRST, LATE))
    plan = planned(late=late, first=first)
    assert plan.source.schema.names[-1] == "held_out_"
    rows = pa.Table.from_batches(list(plan.source.batches()))
    assert rows["held_out"].to_pylist() == [*first["z"].to_pylist(), *late["z"].to_pylist()]


def test_only_columns_that_are_read_have_to_be_there() -> None:
    trainer = LightGBMTrainer(label="y", features=["x"], rounds=5)
    plan = planned(trainer, LATE.select(["x", "y"]))
    assert plan.source.schema.names == ["x", "y", "held_out"]


def test_the_second_table_decides_whether_a_resume_goes_on() -> None:
    one, two = planned().intent, planned(late=LATE.slice(1)).intent
    assert one != two
    assert planned().intent == one


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"names": ("late", "later")}, InputError, "one table, and eval_data= has late, later"),
        ({"holdout": HoldoutFraction(0.3)}, InputError, "leave out holdout="),
        ({"holdout": Backtest(time="x", horizon=3)}, InputError, "leave out holdout="),
        ({"fit_on": "all"}, InputError, "no model is trained on them"),
        ({"late": LATE.drop(["x"])}, ColumnError, "'x' of the rows is missing in eval_data 'late'"),
        (
            {"late": LATE.set_column(0, "x", LATE["x"].cast(pa.float32()))},
            ColumnError,
            "'x' is double, and float in eval_data 'late': give both one type",
        ),
        ({"scaling": ScalingConfig(ranks=2)}, InputError, "trains in one process: leave it out"),
        ({"trainer": lambda data, context: None}, InputError, "for LightGBMTrainer and XGBoostT"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, error, message) -> None:
    with pytest.raises(error, match=message):
        planned(**changes)
