"""A model that is given a date is the model of the columns that pandas makes of it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError
from partwise.evaluation import HoldoutByTime, HoldoutFraction
from partwise.exports.trees.lightgbm import LightGBMOnnxExporter
from partwise.exports.trees.xgboost import XGBoostOnnxExporter
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_model import OnnxModel
from partwise.models.serdes import serde_for
from partwise.outcomes import Result
from partwise.trainers import (
    Best,
    LightGBMTrainer,
    Linear,
    RandomForest,
    Tuned,
    XGBoostTrainer,
    default_predict,
)
from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from partwise.tuning.space import randint
from tests.ranks.rank_threads import run_rank_threads
from tests.trainers.test_distributed_lightgbm import Shared

N_ROWS = 400
RNG = np.random.default_rng(0)
AT = "opened at"
"""LightGBM takes no spaces in names."""
TIMES = pd.Series(
    pd.date_range("2025-01-01", periods=N_ROWS, freq="31h", tz="Europe/Berlin").as_unit("us")
)
TIMES[RNG.random(N_ROWS) < 0.1] = pd.NaT
CLOCK = TIMES.dt.tz_localize(None)
X = RNG.normal(size=N_ROWS)
SALES = (
    X + CLOCK.dt.month.fillna(0) + 3.0 * (CLOCK.dt.day_of_week == 5) + CLOCK.dt.hour.fillna(0) / 4
)
OWN = pa.table({"x": X, "sales": SALES, "day": np.arange(N_ROWS)})
TABLE = OWN.append_column(AT, pa.array(TIMES, pa.timestamp("us", "Europe/Berlin")))
MADE = OWN
for part, values in {
    "year": CLOCK.dt.year, "month": CLOCK.dt.month, "day": CLOCK.dt.day,
    "weekday": CLOCK.dt.day_of_week, "day_of_year": CLOCK.dt.day_of_year,
    "week": CLOCK.dt.isocalendar().week.astype("float64"),
    "epoch_days": (CLOCK - pd.Timestamp(0)) / pd.Timedelta(days=1),
    "hour": CLOCK.dt.hour, "minute": CLOCK.dt.minute,
}.items():  # fmt: skip
    kind = pa.float64() if part == "epoch_days" else pa.int64()
    MADE = MADE.append_column(f"{AT}@{part}", pa.array(values, kind, from_pandas=True))
ALL = tuple(MADE.column_names[3:])
CONTEXT = PartitionContext(key="s", key_columns=(), seed=5)
TRAINERS = {
    "lightgbm": lambda **fields: LightGBMTrainer(rounds=12, **fields),
    "xgboost": lambda **fields: XGBoostTrainer(rounds=12, **fields),
    "linear": lambda **fields: Linear(**fields),
    "random_forest": lambda **fields: RandomForest(params={"n_estimators": 5}, **fields),
    "best": lambda **fields: Best(
        [Linear(**fields), LightGBMTrainer(rounds=12, **fields)], metric="mae"
    ),
    "tuned": lambda **fields: Tuned(
        LightGBMTrainer(rounds=12, **fields), {"num_leaves": randint(4, 9)}, trials=3
    ),
}


def train(trainer, table):
    read = trainer.reads(table.schema)
    table = table if read is None else table.select(read)
    trainer.check(table.schema, frozenset(), ())
    outcome = trainer(DataConnector(table), CONTEXT)
    assert isinstance(outcome, Result)
    return outcome.model


def train_on_ranks(trainer, table):
    trainer.check(table.schema, frozenset(), ())
    table = table.select(trainer.reads(table.schema) or table.column_names)
    sources = {"train": Shared(table, (0, 150, N_ROWS))}
    first, _ = run_rank_threads(2, trainer, sources, "", addresses=(("127.0.0.1", 0),) * 2, seed=7)
    return first.model


def content(model, tmp_path):
    serde = serde_for(model)
    path = tmp_path / serde.filename
    serde.write(model, str(path))
    return path.read_bytes()


def predict(model, table):
    return default_predict(DataConnector(table), model, CONTEXT)


FIELDS = pytest.mark.parametrize(
    ("with_dates", "with_columns"),
    [
        ({"features": ("x",), "calendar": (AT,)}, {"features": ("x", *ALL)}),
        (
            {"features": ("x", f"{AT}@month", f"{AT}@weekday"), "categorical": (f"{AT}@weekday",)},
            {"features": ("x", f"{AT}@month", f"{AT}@weekday"), "categorical": (f"{AT}@weekday",)},
        ),
    ],
    ids=["all", "named"],
)


@FIELDS
@pytest.mark.parametrize("kind", TRAINERS)
def test_it_is_the_model_of_the_columns_that_pandas_makes(kind, with_dates, with_columns, tmp_path):
    model = train(TRAINERS[kind](label="sales", **with_dates), TABLE)
    same = train(TRAINERS[kind](label="sales", **with_columns), MADE)
    assert content(model, tmp_path) == content(same, tmp_path)
    expected = predict(same, MADE)
    np.testing.assert_array_equal(predict(model, TABLE.drop_columns(["sales"])), expected)
    np.testing.assert_array_equal(predict(model, MADE), expected)


@FIELDS
@pytest.mark.parametrize("kind", [DistributedLightGBM, DistributedXGBoost])
def test_so_it_is_on_all_ranks(kind, with_dates, with_columns, tmp_path):
    fields = {"label": "sales", "rounds": 5}
    model = train_on_ranks(kind(**fields, **with_dates), TABLE)
    same = train_on_ranks(kind(**fields, **with_columns), MADE)
    assert content(model, tmp_path) == content(same, tmp_path)
    np.testing.assert_array_equal(predict(model, TABLE), predict(same, MADE))


@pytest.mark.parametrize("inputs", ["tensor", "columns"])
@pytest.mark.parametrize(
    ("kind", "exporter"), [("lightgbm", LightGBMOnnxExporter), ("xgboost", XGBoostOnnxExporter)]
)
def test_an_export_tells_them_by_name_and_makes_them_too(kind, exporter, inputs, tmp_path):
    model = train(TRAINERS[kind](label="sales", features=("x",), calendar=(AT,)), TABLE)
    options = ExportOptions(input_layout=inputs)
    description = exporter().describe(model, TABLE, None, options)
    path = str(tmp_path / "model.onnx")
    exporter().write(model, description, {}, options, path)
    exported = OnnxModel.from_file(path)
    assert exported.signature.column_names() == ["x", *ALL]
    expected = predict(model, TABLE)
    np.testing.assert_allclose(np.ravel(exported.predict(TABLE)), expected, rtol=1e-6)
    np.testing.assert_array_equal(exported.predict(TABLE), exported.predict(MADE))


def test_without_names_the_dates_of_the_calendar_are_features_in_their_numbers():
    trainer = LightGBMTrainer(label="sales", calendar=(AT,), holdout=HoldoutByTime(column="day"))
    assert trainer._choose_features(TABLE.schema, ()).names == ("x", *ALL)
    by_time = LightGBMTrainer(label="sales", calendar=(AT,), holdout=HoldoutByTime(column=AT))
    assert by_time._choose_features(TABLE.schema, ()).names == ("x", "day", *ALL)


OFFER = (
    rf"calendar \(--calendar '{AT}'\), which takes its year, .* hour and minute as features, "
    rf"name one as '{AT}@year', or leave it out of .* \(--features x,day\)\."
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, OFFER),
        ({"calendar": ("x",)}, "'x' is double: cast it to a date or a timestamp"),
        ({"features": (f"{AT}@mnth",)}, rf"'{AT}@mnth' are missing; .* Did you mean '{AT}@month'"),
    ],
)
def test_a_date_is_refused_with_what_can_be_typed(fields, message):
    trainer = LightGBMTrainer(label="sales", holdout=HoldoutFraction(), **fields)
    with pytest.raises(ColumnError, match=message):
        trainer.check(TABLE.schema, frozenset(), ())


def test_a_date_has_no_hour_for_a_model_of_times():
    model = train(XGBoostTrainer(label="sales", features=(f"{AT}@hour",), rounds=2), TABLE)
    dates = TABLE.set_column(3, AT, TABLE.column(AT).cast(pa.date32()))
    with pytest.raises(ColumnError, match=rf"The column '{AT}' is date32.*, which has no hour"):
        predict(model, dates)


def test_a_function_of_ones_own_names_them_too():
    dataset = DataConnector(TABLE).to_lightgbm("sales", columns=["x", f"{AT}@month"])
    dataset.construct()
    assert dataset.feature_name == ["x", "opened%20at@month"]
    matrix = DataConnector(TABLE).to_dmatrix("sales", columns=["x", f"{AT}@month"])
    assert matrix.feature_names == ["x", f"{AT}@month"]
