"""Snowflake's tuner: what a notebook of theirs asks of it."""

from pathlib import Path

import pandas as pd
import pytest

from partwise.compat.snowflake.ml.data import DataConnector
from partwise.compat.snowflake.ml.modeling import tune
from partwise.compat.snowflake.ml.modeling.tune.search import BayesOpt, GridSearch
from partwise.engine.scaling import ScalingConfig
from partwise.errors import InputError
from partwise.ranks.context import RankContext

ROWS = pd.DataFrame({"X": [1.0, 2.0, 3.0]})


def train() -> None:
    context = tune.get_tuner_context()
    settings, rows = context.get_hyper_params(), context.get_dataset_map()
    seen = len(rows["train"].to_pandas()), len(rows["test"].to_pandas())
    context.report(metrics={"distance": abs(settings["x"] - 2)}, model={"seen": seen, **settings})


@pytest.mark.usefixtures("shared_cluster")
def test_trials_are_run_and_the_best_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tune.TunerConfig("distance", "min", GridSearch(), num_trials=1)
    rows = DataConnector.from_dataframe(ROWS)
    found = tune.Tuner(train, {"x": [1, 2], "depth": 3}, config).run(
        {"train": rows, "test": DataConnector.from_dataframe(ROWS.head(1))}
    )
    assert found.results["distance"].tolist().count(0) == 1
    assert sorted(found.results["config/x"]) == [1, 2]
    (best,) = found.best_result["config/x"]
    assert best == 2
    assert found.best_model == {"seen": (3, 1), "x": 2, "depth": 3}


def test_a_trial_has_to_report() -> None:
    context = RankContext(rank=0, world_size=1, params={"x": 1})
    with pytest.raises(InputError, match="reported nothing"):
        tune.TrialFunction(tune.get_tuner_context, {})(context)
    told = tune.TrialFunction(lambda: tune.get_tuner_context().report({"loss": 1}), {})(context)
    assert (told.model, told.metrics) == (tune.NO_MODEL, {"loss": 1})
    with pytest.raises(RuntimeError, match="of a Tuner only"):
        tune.get_tuner_context()


def test_a_configuration_is_translated_or_refused() -> None:
    config = tune.TunerConfig("loss", "max", resource_per_trial={"CPU": 2, "GPU": 1})
    assert config.scaling == ScalingConfig(ranks=1, cpus=2, gpus=1)
    assert config.num_trials == 5
    space = {"a": [1, 2], "b": tune.choice([1, 2, 3]), "c": 4, "d": tune.uniform(0, 1)}
    assert tune.size_of(space) == 6
    assert tune.randint(1, 3).high == 3
    assert tune.choice([1, "a"]).values == (1, "a")
    with pytest.raises(InputError, match='"min" or "max"'):
        tune.TunerConfig("loss", "minimize")
    with pytest.raises(InputError, match="uses_snowflake_trainer"):
        tune.TunerConfig("loss", "min", uses_snowflake_trainer=True)
    with pytest.raises(InputError, match="utility_kwargs"):
        BayesOpt(utility_kwargs={"kind": "ucb"})
