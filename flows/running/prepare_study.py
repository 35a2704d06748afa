"""What the flow of a study decides before a trial begins: most refusals are here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from partwise.engine.payload import name_of
from partwise.engine.scaling import ScalingConfig
from partwise.engine.works import TrainWork
from partwise.errors import InputError
from partwise.evaluation import Backtest, CrossValidation, Evaluation, FitOn, HoldoutFraction
from partwise.evaluation.metrics import MAXIMIZED
from partwise.evaluation.scores import Direction, check_metric, find_metric
from partwise.flows.running.calls import describe_intent, names_function
from partwise.flows.running.prepare import Request
from partwise.flows.running.prepare_gang import eval_fingerprint, gang_sources
from partwise.models.serdes import ModelSerde, resolve_serde
from partwise.runs.claim import Identity
from partwise.runs.trials import TRIAL_KEY
from partwise.sources.descriptions import Source
from partwise.studies.driver import Stopping
from partwise.studies.gang_trials import GangPlan, with_settings
from partwise.studies.plan import StudyPlan
from partwise.studies.search import SearchSpec, first_settings
from partwise.studies.work import ScoredTrainer, TrialWork
from partwise.trainers import resolve_trainer
from partwise.trainers.boosting import BoostingTrainer
from partwise.trainers.distributed_boosting import DistributedBoosting
from partwise.trainers.torch_distributor import TorchDistributor
from partwise.tuning.pruner import PrunerName
from partwise.tuning.sampler import SamplerName
from partwise.tuning.space import Space, SpaceFunction, parse_space

DEFAULT_HOLDOUT = HoldoutFraction()
DEFAULT_SCALING = ScalingConfig()
NO_SOURCES: Mapping[str, Source] = {}
NOT_CODE = ("trials", "timeout_s", "patience", "max_concurrent", "sampler", "pruner")
"""Arguments that say how much is searched, and how: with others a resume goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How a trial is scored, as a caller asks for it."""

    metric: str | Callable[..., Any] = ""
    direction: Direction = ""
    holdout: Evaluation = DEFAULT_HOLDOUT
    fit_on: FitOn = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """A train function that scores itself."""

    function: Callable[..., Any]
    metric: str
    """Its name among the metrics that the function returns."""
    maximized: bool


def prepare_study(
    source: Source,
    trainer: str | Callable[..., Any],
    space: Mapping[str, Any] | str | Callable[..., Any],
    request: Request,
    scoring: Scoring,
    stopping: Stopping,
    *,
    sampler: SamplerName,
    pruner: PrunerName,
    max_concurrent: int | None = None,
    serde: ModelSerde | str | None = None,
    scaling: ScalingConfig = DEFAULT_SCALING,
    eval_sources: Mapping[str, Source] = NO_SOURCES,
) -> StudyPlan:
    """Return the plan of a study, checked as far as it can be before any row is read.

    Args:
        source: The rows trained on.
        trainer: A trainer, a function of (data, context), or the name of one.
        space: What settings are drawn from, a function of an Optuna trial, or the name of one.
        request: What is asked of the run.
        scoring: How trials are scored.
        stopping: When the study has had enough.
        sampler: What draws settings.
        pruner: What gives trials up.
        max_concurrent: Trials that run at once, at most; None: as many as there is room for.
        serde: Writes the models.
        scaling: Of the gang that trains each trial, where one does.
        eval_sources: The rows of each eval set, by name, of such a gang.

    Raises:
        FunctionError: The name of a function leads nowhere.
        ColumnError: The trainer needs a column that the rows lack.
        SerdeError: There is no serde of this name.
        InputError: The space, the metric, or a number cannot be used.
    """
    _check_numbers(stopping, max_concurrent)
    chosen_serde = resolve_serde(serde)
    searched = _space_of(space)
    function = resolve_trainer(trainer)
    gang = None
    if _is_for_gangs(function, scaling, eval_sources):
        sources = gang_sources(source, eval_sources, function)
        gang = GangPlan(function=function, serde=chosen_serde, scaling=scaling, sources=sources)
    scored = _scored(function, gang, scoring, source)
    search = SearchSpec(
        space=searched,
        sampler=sampler,
        pruner=pruner,
        seed=request.seed % (1 << 31),
        metric=scored.metric,
        maximized=scored.maximized,
    )
    settings = first_settings(search)
    _check_settings(function, settings)
    arguments = {
        "trainer": trainer,
        "space": space if isinstance(space, str) or callable(space) else _plain(searched),
        **{name: getattr(scoring, name) for name in Scoring.__slots__},
        **{name: getattr(stopping, name) for name in Stopping.__slots__},
        "serde": chosen_serde,
        "seed": request.seed,
        "inputs": [str(path) for path in request.inputs],
        "max_concurrent": max_concurrent,
        "sampler": sampler,
        "pruner": pruner,
        "execution": request.execution,
    }
    about = {name: each.description() for name, each in eval_sources.items()}
    if gang is not None:
        recipes = {name: each.recipe for name, each in about.items()}
        arguments |= {"scaling": scaling, "eval_data": recipes}
    intent = describe_intent(
        "tune",
        source.description(),
        arguments,
        request.version or None,
        eval_fingerprint(about),
        not_code=NOT_CODE,
    )
    return StudyPlan(
        identity=Identity(run_id=request.run_id, kind="tune", key_columns=TRIAL_KEY),
        source=_narrowed(source, function, scoring.holdout),
        work=TrialWork(
            train=TrainWork(function=scored.function, serde=chosen_serde), metric=scored.metric
        ),
        name=name_of(function),
        intent=intent,
        seed=request.seed,
        on_existing=request.on_existing,
        options=request.execution,
        search=search,
        stopping=stopping,
        max_concurrent=max_concurrent,
        gang=gang,
    )


def _narrowed(source: Source, function: Any, holdout: Evaluation) -> Source:
    reads = function.reads(source.schema) if hasattr(function, "reads") else None
    if reads is None:
        return source
    held_out = holdout.columns if isinstance(function, BoostingTrainer) else ()
    return source.narrowed(list(dict.fromkeys([*reads, *held_out])))


def _is_for_gangs(
    function: Callable[..., Any], scaling: ScalingConfig, eval_sources: Mapping[str, Source]
) -> bool:
    """Tell whether each trial is trained by ranks that work together.

    Raises:
        InputError: What only such ranks need is given to a trainer that works alone.
    """
    if isinstance(function, DistributedBoosting | TorchDistributor):
        return True
    is_asked_for = scaling != DEFAULT_SCALING
    if isinstance(function, BaseModel) and (is_asked_for or eval_sources):
        raise InputError(
            f"scaling= and eval_data= are for trials that several ranks train, and a "
            f"{type(function).__name__} trains in one process: leave them out, or give "
            "DistributedXGBoost, DistributedLightGBM, or a function of a rank's context."
        )
    if eval_sources and not is_asked_for:
        raise InputError(
            "eval_data= is for trials that several ranks train: give scaling= too, such as "
            "ScalingConfig(num_workers=2)."
        )
    return is_asked_for


def _scored(
    function: Callable[..., Any], gang: GangPlan | None, scoring: Scoring, source: Source
) -> _Scored:
    if gang is not None:
        return _scored_gang(gang, scoring)
    if isinstance(function, BoostingTrainer):
        return _scored_trainer(function, scoring, source)
    return _scored_function(function, scoring)


def _scored_gang(gang: GangPlan, scoring: Scoring) -> _Scored:
    """Return what ranks call, which rank 0 returns the metric of."""
    name = scoring.metric
    if isinstance(gang.function, DistributedBoosting) and len(gang.sources) < 2:
        raise InputError(
            f"A {type(gang.function).__name__} measures its models on eval_data=: give rows that "
            'are not trained on, such as eval_data={"late": "late.parquet"}, and metric= the name '
            "of one of their metrics, such as late_rmse."
        )
    if not isinstance(name, str) or not name or names_function(name):
        raise InputError(
            "metric= has to name what the study goes by, among the metrics of rank 0: of a "
            "distributed trainer <eval set>_<metric>, such as late_rmse."
        )
    if scoring.holdout != DEFAULT_HOLDOUT or scoring.fit_on != "auto":
        raise InputError(
            "Ranks hold out no rows: leave out holdout= and fit_on=, and give eval_data=."
        )
    known = {*MAXIMIZED} | {f"{each}_{name}" for each in gang.sources for name in MAXIMIZED}
    maximized = scoring.direction == "maximize" if scoring.direction else name in known
    return _Scored(function=gang.function, metric=name, maximized=maximized)


def _check_numbers(stopping: Stopping, max_concurrent: int | None) -> None:
    counts = {
        "trials": stopping.trials,
        "patience": stopping.patience,
        "max_concurrent": max_concurrent,
    }
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"{name}={count} leaves nothing to do: give 1 or more.")
    if stopping.timeout_s is not None and not stopping.timeout_s > 0:
        raise InputError(f"timeout_s={stopping.timeout_s:g} leaves no time: give seconds above 0.")


def _space_of(space: Mapping[str, Any] | str | Callable[..., Any]) -> Space | SpaceFunction:
    if isinstance(space, str):
        function: SpaceFunction = resolve_trainer(space)
        return function
    if callable(space):
        return space
    try:
        parsed = parse_space(space)
    except ValidationError as error:
        raise InputError(f"The space cannot be used: {error.errors()[0]['msg']}.") from None
    if not parsed:
        raise InputError("The space is empty, so that there is nothing to tune: name parameters.")
    return parsed


def _plain(space: Any) -> dict[str, Any]:
    """Return a space as JSON can hold it, and `parse_space` reads it."""
    return {
        name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        for name, value in space.items()
    }


def _scored_trainer(trainer: BoostingTrainer, scoring: Scoring, source: Source) -> _Scored:
    """Return a built-in trainer, which is scored by the study's holdout."""
    holdout = scoring.holdout
    if trainer.holdout not in (DEFAULT_HOLDOUT, holdout):
        raise InputError("Give holdout= to tune_model, which scores all trials by it.")
    if scoring.fit_on == "train" and isinstance(holdout, CrossValidation):
        raise InputError(
            'fit_on="train" needs a last window, which a cross-validation does not have.'
        )
    trainer = trainer.model_copy(update={"holdout": holdout})
    name = scoring.metric or ("rmse" if trainer.task == "regression" else "logloss")
    metric = find_metric(name, scoring.direction, resolve_trainer)
    check_metric(metric, trainer.task, is_backtest=isinstance(holdout, Backtest))
    trainer.check(source.schema, key_columns=())
    # A function by its name: the workers' own is meant.
    function = ScoredTrainer(
        trainer=trainer,
        evaluation=holdout,
        metric=name,
        direction=scoring.direction,
        fit_on=scoring.fit_on,
    )
    return _Scored(function=function, metric=f"holdout_{metric.name}", maximized=metric.maximized)


def _scored_function(function: Callable[..., Any], scoring: Scoring) -> _Scored:
    """Return a train function, which scores itself and returns the metric."""
    name = scoring.metric
    if isinstance(function, BaseModel):
        raise InputError(
            f"A {type(function).__name__} is no trainer of one model on all rows: give "
            "LightGBMTrainer, XGBoostTrainer, or a function of (data, context)."
        )
    if not isinstance(name, str) or not name or names_function(name):
        raise InputError(
            "metric= has to name what the study goes by, among the metrics that the train "
            "function returns in its Result."
        )
    if scoring.holdout != DEFAULT_HOLDOUT or scoring.fit_on != "auto":
        raise InputError(
            "A train function holds out rows itself: leave out holdout= and fit_on=, or give a "
            "trainer such as LightGBMTrainer."
        )
    maximized = scoring.direction == "maximize" if scoring.direction else name in MAXIMIZED
    return _Scored(function=function, metric=name, maximized=maximized)


def _check_settings(trainer: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Refuse parameters that the library does not know, or that are settings of the trainer."""
    with_settings(trainer, settings)
    if not isinstance(trainer, BoostingTrainer):
        return
    names = {name: value for name, value in settings.items() if name != "rounds"}
    trainer.check_settings(list(settings))
    own = {"objective": trainer.DEFAULT_OBJECTIVE, **trainer._native_names(trainer.params)}
    trainer._task({**own, **trainer._native_names(names)})
