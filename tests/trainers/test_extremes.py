"""Every trainer with extreme features: infinite, beyond single precision, tiny, huge, none."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from partwise import (
    Best,
    DataConnector,
    DistributedXGBoost,
    LightGBMTrainer,
    Linear,
    RandomForest,
    XGBoostTrainer,
)
from partwise.connector.context import MemoryLink, PartitionContext
from partwise.errors import InputError
from partwise.outcomes import Skip
from partwise.tables.features import LARGEST_SINGLE, column_within_single, within_single
from partwise.trainers.predict import default_predict
from partwise.trainers.ranks.xgboost_batches import FeatureTables
from tests.ranks.rank_threads import CutRows, run_rank_threads

ROWS = 60
PLAIN = np.random.default_rng(0).normal(size=ROWS)


def first(value):
    return pa.array(np.concatenate([[value] * 3, PLAIN[3:]]))


def whole(value, kind):
    return pa.array([value] * 3 + list(range(ROWS - 3)), kind)


COLUMNS = {
    "inf": first(np.inf),
    "-inf": first(-np.inf),
    "all infinite": pa.array(np.full(ROWS, np.inf)),
    "1e39": first(1e39),
    "1e308": first(1e308),
    "both ends": pa.array(np.concatenate([[1.7e308, -1.7e308], PLAIN[2:]])),
    "subnormal": pa.array(PLAIN * 1e-310),
    "wide single": pa.array((PLAIN * 8e37).astype(np.float32)),
    "2^53+1": whole(2**53 + 1, pa.int64()),
    "uint64": whole(2**64 - 1, pa.uint64()),
    "int64": whole(-(2**63), pa.int64()),
    "decimal(76,0)": whole(Decimal("9" * 76), pa.decimal256(76, 0)),
    "null": pa.nulls(ROWS, pa.float64()),
    "null without a type": pa.nulls(ROWS),
    "constant": pa.array(np.full(ROWS, 1e308)),
}
TOO_LARGE_TO_SQUARE = {
    *("inf", "-inf", "all infinite", "1e39", "1e308", "both ends", "wide single", "uint64"),
    *("decimal(76,0)", "constant"),
}
SETTINGS = {"label": "y", "features": ("x", "z"), "holdout": None}
TRAINERS = {
    "xgboost": XGBoostTrainer(**SETTINGS, rounds=3),
    "xgboost linear": XGBoostTrainer(**SETTINGS, rounds=3, params={"booster": "gblinear"}),
    "lightgbm": LightGBMTrainer(**SETTINGS, rounds=3),
    "random_forest": RandomForest(**SETTINGS, params={"n_estimators": 3}),
    "linear": Linear(**SETTINGS),
    "linear of classes": Linear(**SETTINGS, predicts="binary"),
    "best": Best(
        label="y",
        candidates=(
            XGBoostTrainer(features=("x", "z"), rounds=3),
            RandomForest(features=("x", "z"), params={"n_estimators": 3}),
            Linear(features=("x", "z")),
        ),
    ),
}


def rows_of(column, name):
    label = (PLAIN > 0) * 1.0 if name == "linear of classes" else PLAIN * 2
    return DataConnector(pa.table({"x": column, "z": PLAIN, "y": label}))


def predictions(trainer, trained_on, rows):
    context = PartitionContext(link=MemoryLink())
    model = trainer(trained_on, context).model
    return np.asarray(default_predict(rows, model, PartitionContext()))


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("column", COLUMNS)
def test_extreme_features_are_trained_on_and_predicted_from(column, name):
    rows = rows_of(COLUMNS[column], name)
    if name == "xgboost linear" and column in TOO_LARGE_TO_SQUARE:
        with pytest.raises(InputError, match=r"'x' has \d+ numbers beyond 1e\+18"):
            TRAINERS[name](rows, PartitionContext())
        return
    assert np.isfinite(predictions(TRAINERS[name], rows, rows)).all()
    # Met by a model that was trained without them.
    if name != "xgboost linear":
        plain = rows_of(pa.array(PLAIN), name)
        assert np.isfinite(predictions(TRAINERS[name], plain, rows)).all()


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "random_forest", "linear"])
@pytest.mark.parametrize("label", [np.inf, -np.inf, 1e39, -1e308])
def test_extreme_labels_are_refused_or_trained_on(name, label):
    labels = np.concatenate([[label], PLAIN[1:]])
    rows = DataConnector(pa.table({"x": PLAIN, "z": PLAIN, "y": labels}))
    if name in ("random_forest", "linear") and label == 1e39:
        assert np.isfinite(predictions(TRAINERS[name], rows, rows)).all()
        return
    with pytest.raises(InputError, match=f"[Ll]abel.* {label:g} is among".replace("+", r"\+")):
        TRAINERS[name](rows, PartitionContext())


@pytest.mark.parametrize("name", [name for name in TRAINERS if name != "best"])
def test_one_row_of_extremes_is_skipped(name):
    table = pa.table({"x": [np.inf], "z": [1e308], "y": [1.0]})
    assert isinstance(TRAINERS[name](DataConnector(table), PartitionContext()), Skip)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_beyond_single_precision_are_its_largest(dtype):
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, LARGEST_SINGLE], dtype)
    expected = np.array(
        [np.nan, LARGEST_SINGLE, -LARGEST_SINGLE, 0.0, -0.0, 1.5, LARGEST_SINGLE], dtype
    )
    np.testing.assert_array_equal(within_single(values), expected)
    column = pa.chunked_array([pa.array([None], pa.array(values).type), pa.array(values)])
    found = column_within_single(column)
    assert found.type == column.type
    assert not found[0].is_valid
    np.testing.assert_array_equal(found[1:].to_numpy(), expected)
    plain = np.array([1.0, np.nan], dtype)
    assert within_single(plain) is plain


def test_ranks_of_a_distributed_xgboost_take_extremes():
    features = FeatureTables(["x"], {})
    for name, column in COLUMNS.items():
        taken = features.of(pa.table({"x": column})).column(0).cast(pa.float64(), safe=False)
        assert np.nanmax(np.abs(taken.to_numpy()), initial=0) <= LARGEST_SINGLE, name


@pytest.mark.parametrize("objective", ["reg:gamma", "reg:tweedie"])
def test_labels_of_zero_are_refused_where_their_logarithm_counts(objective):
    """A model of XGBoost's tweedie predicted NaN for every row."""
    table = pa.table({"x": PLAIN, "z": PLAIN, "y": np.zeros(ROWS)})
    settings = {"label": "y", "rounds": 3, "params": {"objective": objective}}
    with pytest.raises(InputError, match=f"label is 0 in all rows trained on, and '{objective}"):
        XGBoostTrainer(**settings, holdout=None)(DataConnector(table), PartitionContext())
    ranks, sources = DistributedXGBoost(**settings), {"train": CutRows(table, (20,))}
    with pytest.raises(InputError, match="The label is 0 in all rows trained on"):
        run_rank_threads(2, ranks, sources, "", addresses=(("127.0.0.1", 0),) * 2)
