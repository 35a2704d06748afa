"""What stands at `snowflake.ml.modeling.tune`: each `run` is a call of `tune_model`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import partwise.tuning.space as ours
from partwise.choices import Direction
from partwise.compat.snowflake.dataset_maps import Placed, placed, rank_datasets
from partwise.compat.snowflake.ml.data.data_connector import DataConnector
from partwise.compat.snowflake.ml.modeling.tune.search import (
    GridSearch,
    RandomSearch,
    SearchAlgorithm,
)
from partwise.engine.scaling import ScalingConfig
from partwise.errors import InputError
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Result
from partwise.ranks.context import RankContext
from partwise.runs.run import Run
from partwise.runs.trials import SETTING_PREFIX, TRIAL

DIRECTIONS: dict[str, Direction] = {"min": "minimize", "max": "maximize"}
NO_MODEL = "no model was reported"
"""Kept in its place: a trial without one would be SKIPPED here."""


def uniform(lower: float, upper: float) -> ours.Uniform:
    """Return any number between two."""
    return ours.uniform(lower, upper)


def loguniform(lower: float, upper: float) -> ours.LogUniform:
    """Return any number between two, evenly by its logarithm."""
    return ours.loguniform(lower, upper)


def randint(lower: int, upper: int) -> ours.RandInt:
    """Return any whole number from `lower` on that is less than `upper`."""
    return ours.randint(lower, upper)


def choice(categories: Sequence[Any]) -> ours.Choice:
    """Return one of some values."""
    return ours.choice(list(categories))


@dataclass(frozen=True)
class TunerConfig:
    """What makes a trial better, and how trials are run; 1 CPU each where nothing is said.

    Raises:
        InputError: There is no such mode, or trials are to train by the vendor's estimators.
    """

    metric: str
    mode: str
    search_alg: SearchAlgorithm | None = None
    num_trials: int = 5
    max_concurrent_trials: int | None = None
    resource_per_trial: Mapping[str, Any] | None = None
    uses_snowflake_trainer: bool = False

    def __post_init__(self) -> None:
        """Refuse what no trial could do."""
        if self.mode not in DIRECTIONS:
            raise InputError(f'mode is {self.mode!r}: it can be "min" or "max".')
        if self.uses_snowflake_trainer:
            raise InputError(
                "uses_snowflake_trainer is not taken: pass DistributedXGBoost or "
                "DistributedLightGBM as the trainer of tune_model."
            )

    @property
    def scaling(self) -> ScalingConfig:
        """What each trial may use."""
        resources = self.resource_per_trial or {}
        return ScalingConfig(ranks=1, cpus=resources.get("CPU", 1), gpus=resources.get("GPU", 0))


class TunerContext:
    """What a training function asks of its trial."""

    def __init__(self, rank: RankContext, datasets: Mapping[str, DataConnector]) -> None:
        self._rank = rank
        self._datasets = datasets
        self.reported: Result | None = None

    def get_hyper_params(self) -> dict[str, Any]:
        """Return the settings of the trial, by name."""
        return dict(self._rank.params)

    def get_dataset_map(self) -> dict[str, DataConnector]:
        """Return the rows by name."""
        return dict(self._datasets)

    def report(self, metrics: Mapping[str, float], model: Any = None) -> None:
        """Keep the metrics, and the model, by pickle; the last call counts."""
        self.reported = Result(NO_MODEL if model is None else model, metrics=metrics)


_current: TunerContext | None = None


def get_tuner_context() -> TunerContext:
    """Return the context of the trial that this process is.

    Raises:
        RuntimeError: It is none.
    """
    if _current is None:
        raise RuntimeError("get_tuner_context() works in the training function of a Tuner only.")
    return _current


@dataclass(frozen=True)
class TrialFunction:
    """A function of theirs as `tune_model` calls it."""

    function: Callable[[], Any]
    places: Mapping[str, Placed]

    def __call__(self, context: RankContext) -> Result:
        """Train one trial.

        Raises:
            InputError: The function has reported nothing.
        """
        global _current  # the function asks for it by no argument
        _current = trial = TunerContext(context, rank_datasets(context, self.places))
        try:
            self.function()
        finally:
            _current = None
        if trial.reported is None:
            raise InputError(
                "The function has reported nothing: call get_tuner_context().report(metrics)."
            )
        return trial.reported


class TunerResults:
    """What the trials came to."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def results(self) -> Any:
        """A frame of the trials: number, metric, and config/<name> of each setting."""
        best = self.run.best
        table = self.run.trials
        if best is None:
            return table.to_pandas()
        renamed = {"value": best.metric}
        for name in best.settings:
            prefixed = f"{SETTING_PREFIX}{name}"
            renamed[prefixed if prefixed in table.column_names else name] = f"config/{name}"
        return table.to_pandas().rename(columns=renamed)

    @property
    def best_result(self) -> Any:
        """The frame of the best trial's row."""
        best = self.run.best
        rows = self.results
        return rows[rows[TRIAL] == (None if best is None else best.number)]

    @property
    def best_model(self) -> Any:
        """Its model; None where it has reported none."""
        model = self.run.model(serde=PickleSerde())
        return None if isinstance(model, str) and model == NO_MODEL else model


class Tuner:
    """A function that is called with settings of a space, some trials side by side.

    Args:
        train_func: Called without arguments; it asks `get_tuner_context`.
        search_space: What may be tried, by name; a list is a grid.
        tuner_config: How it is searched.
    """

    def __init__(
        self,
        train_func: Callable[[], Any],
        search_space: Mapping[str, Any],
        tuner_config: TunerConfig,
    ) -> None:
        self._function = train_func
        self._space = search_space
        self._config = tuner_config

    def run(self, dataset_map: Mapping[str, Any] | None = None) -> TunerResults:
        """Run all trials, and wait for them; the run is kept in the store "artifacts".

        Raises:
            InputError: The space or the configuration does not fit; nothing was tried.
            RunFailedError: All trials failed; carries the run.
        """
        from partwise.flows import tune_model

        config, datasets = self._config, placed(dataset_map)
        search = config.search_alg or RandomSearch()
        run = tune_model(
            datasets.data,
            TrialFunction(self._function, datasets.places),
            dict(self._space),
            metric=config.metric,
            direction=DIRECTIONS[config.mode],
            trials=size_of(self._space) if isinstance(search, GridSearch) else config.num_trials,
            max_concurrent=config.max_concurrent_trials,
            sampler=search.sampler,
            seed=(search.random_state or 0) if isinstance(search, RandomSearch) else 0,
            scaling=config.scaling,
            eval_data=datasets.eval_data,
            serde=PickleSerde(),
        )
        return TunerResults(run)


def size_of(space: Mapping[str, Any]) -> int:
    """Return how many combinations a grid has; what is no list counts once."""
    values = ours.parse_space(space).values()
    return math.prod(len(each.values) for each in values if isinstance(each, ours.Choice))
