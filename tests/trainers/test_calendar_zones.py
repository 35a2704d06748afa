"""What clocks show in training, they show in inference: rows in another time zone are the same."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.trained_rows import with_trained_categories
from partwise.engine.works import _categories_file
from partwise.errors import ColumnError
from partwise.evaluation import HoldoutFraction
from partwise.studies.work import ScoredTrainer
from partwise.tables.calendar import with_calendar, zones_among
from partwise.trainers import Best, LightGBMTrainer, Linear, Mean, Tuned, default_predict
from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from partwise.tuning.space import randint
from tests.ranks.rank_threads import CutRows, run_rank_threads

BERLIN = pa.timestamp("us", "Europe/Berlin")
TIMES = pa.array([datetime(2040, 6, 30, 22, tzinfo=UTC) + timedelta(hours=h) for h in range(48)])
LINEAR = Linear(label="y", features=["at@hour"])
ROWS = pa.table({"at": TIMES.cast(BERLIN), "y": np.arange(48.0), "other": TIMES})


def kept(trainer, rows=ROWS):
    zones = trainer.calendar_zones(rows.schema)
    files = _categories_file(DataConnector(rows), (), None, zones)
    with pa.ipc.open_stream(files["partwise-categories.arrow"]) as reader:
        return reader.read_all()


TRAINERS = [
    LINEAR,
    LightGBMTrainer(label="y", calendar=["at"]),
    Best([Mean(), LINEAR], label="y"),
    Tuned(LightGBMTrainer(label="y", calendar=["at"]), {"num_leaves": randint(2, 9)}),
]


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda each: type(each).__name__)
def test_the_zone_of_calendar_features_is_kept_and_used(trainer):
    trained = kept(trainer)
    assert zones_among(trained) == {"at": "Europe/Berlin"}
    for zone in ("UTC", "America/New_York", "+05:30", "Europe/Berlin"):
        given = ROWS.set_column(0, "at", TIMES.cast(pa.timestamp("ms", zone)))
        seen = with_trained_categories(DataConnector(given), trained).to_arrow()
        hours = with_calendar(seen, ["at@hour"])["at@hour"]
        assert hours == with_calendar(ROWS, ["at@hour"])["at@hour"]
        assert seen["other"] == given["other"]


def test_a_time_without_a_zone_is_no_time_with_one():
    naive = ROWS.set_column(0, "at", TIMES.cast(pa.timestamp("us")))
    with pytest.raises(ColumnError, match="'at' had the time zone 'Europe/Berlin' in training and"):
        with_trained_categories(DataConnector(naive), kept(LINEAR))
    with pytest.raises(ColumnError, match="'at' had none in training and has the time zone 'Euro"):
        with_trained_categories(DataConnector(ROWS), kept(LINEAR, naive))


def test_nothing_is_kept_where_no_feature_is_made_of_a_time():
    assert Linear(label="y", features=["other"]).calendar_zones(ROWS.schema) == {}
    assert Best([Mean()], label="y").calendar_zones(ROWS.schema) == {}


def predict(data, model):
    return default_predict(data, model, PartitionContext(key="", key_columns=()))


@pytest.mark.parametrize("distributed", [DistributedLightGBM, DistributedXGBoost])
@pytest.mark.parametrize("features", [{"features": ("at@hour",)}, {"calendar": ("at",)}])
def test_one_model_of_several_ranks_keeps_the_zone_and_reads_eval_sets_in_it(
    distributed, features, tmp_path
):
    times = pa.chunked_array([TIMES] * 20)
    at = {zone: times.cast(pa.timestamp("us", zone)) for zone in ("Europe/Berlin", "UTC")}
    hours = with_calendar(pa.table({"at": at["Europe/Berlin"]}), ["at@hour"])["at@hour"]
    tables = {zone: pa.table({"at": column, "y": hours}) for zone, column in at.items()}
    trainer = distributed(label="y", rounds=9, **features)
    sources = {"train": CutRows(tables["Europe/Berlin"], (300,))}
    sources |= {zone.lower()[-3:]: CutRows(table, (200,)) for zone, table in tables.items()}
    files: dict[str, bytes] = {}
    ports = (("127.0.0.1", 0),) * 2
    fields = {"seed": 5, "addresses": ports, "files": files}
    result, _ = run_rank_threads(2, trainer, sources, tmp_path, **fields)
    values = {name: [v for k, v in result.metrics.items() if name in k] for name in ("utc", "lin")}
    assert values["utc"] == values["lin"] != []
    with pa.ipc.open_stream(files["partwise-categories.arrow"]) as reader:
        trained = reader.read_all()
    assert zones_among(trained) == {"at": "Europe/Berlin"}
    found = {
        zone: predict(with_trained_categories(DataConnector(table), trained), result.model)
        for zone, table in tables.items()
    }
    np.testing.assert_array_equal(found["UTC"], found["Europe/Berlin"])
    assert np.abs(found["UTC"] - hours.to_numpy()).mean() < 4


def test_a_study_keeps_the_zones_and_classes_of_its_trainer():
    trainer = LightGBMTrainer(label="y", calendar=["at"], classes=["a", "b"])
    tried = ScoredTrainer(
        trainer=trainer,
        evaluation=HoldoutFraction(fraction=0.25),
        metric="log_loss",
        direction="minimize",
        fit_on="train",
    )
    rows = ROWS.set_column(1, "y", pa.array(["a", "b"] * 24))
    assert tried.calendar_zones(rows.schema) == {"at": "Europe/Berlin"}
    assert tried.label_classes(rows.schema) == trainer.label_classes(rows.schema)
    assert trainer.label_classes(rows.schema) is not None
