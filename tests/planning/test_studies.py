"""What a study is refused before any row is read."""

import pyarrow as pa
import pytest

from partwise import HoldoutFraction, LightGBMTrainer
from partwise.calls.one_model import TuneCall
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError
from partwise.planning.study import prepare_study
from partwise.sources.opening import open_source
from partwise.studies.plan import StudyPlan

ROWS = pa.table({"x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0]})


def planned(own=None, **changes) -> StudyPlan:
    trainer = LightGBMTrainer(label="y", rounds=5, **own or {})
    call = TuneCall(ROWS, trainer, {"learning_rate": [0.1, 0.3]}, run_id="run", **changes)
    return prepare_study(call, open_source(ROWS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": 1}, "execution.sample=1 is a dry run.*fewer trials="),
        ({"n_shards": 4}, "execution.n_shards=4 divides partitions.*max_concurrent="),
    ],
)
def test_options_of_partitions_alone_are_refused(options, message) -> None:
    with pytest.raises(InputError, match=message):
        planned(execution=ExecutionOptions(**options))
    assert planned(execution=ExecutionOptions(cpus=2)).options.cpus == 2


@pytest.mark.parametrize("own", [{"fit_on": "all"}, {"holdout": HoldoutFraction(fraction=0.4)}])
def test_settings_of_the_trainer_that_would_not_count_are_refused(own) -> None:
    with pytest.raises(InputError, match=rf"Give {next(iter(own))}= to tune_model"):
        planned(own)
    assert planned(own, **own).options
