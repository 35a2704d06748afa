"""What clocks show in training, they show in inference: rows in another time zone are the same."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.engine.works import _categories_file, with_trained_categories
from partwise.errors import ColumnError
from partwise.tables.calendar import with_calendar, zones_among
from partwise.trainers import Best, LightGBMTrainer, Linear, Mean, Tuned
from partwise.tuning.space import randint

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
