"""What the flow of a study decides before a trial begins: most refusals are here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from partwise.calls.intent import describe_intent
from partwise.calls.one_model import TuneCall
from partwise.engine.driver.payload import name_of
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.engine.works import TrainWork
from partwise.errors import InputError
from partwise.evaluation import (
    Backtest,
    CrossValidation,
    Evaluation,
    HoldoutByTime,
    HoldoutFraction,
)
from partwise.evaluation.metrics import MAXIMIZED, default_metric
from partwise.evaluation.scores import check_metric, find_metric, names_function
from partwise.models.serdes import resolve_serde
from partwise.planning.gang import eval_fingerprint, gang_sources
from partwise.planning.kept_models import refuse_unkept
from partwise.runs.claim import Identity
from partwise.runs.trials import TRIAL_KEY
from partwise.sources.derived import with_held_out
from partwise.sources.descriptions import Source
from partwise.studies.driver import Stopping
from partwise.studies.gang_trials import GangPlan, with_settings
from partwise.studies.plan import StudyPlan
from partwise.studies.search import SearchSpec, first_settings
from partwise.studies.work import ScoredTrainer, TrialWork
from partwise.tables.keys.partition_keys import plain_seed
from partwise.trainers import resolve_trainer
from partwise.trainers.ranks.boosting import DistributedBoosting
from partwise.trainers.ranks.torch import TorchDistributor
from partwise.trainers.ready.boosting import BoostingTrainer, is_larger_better
from partwise.tuning.space import Space, SpaceFunction, parse_space, plain_space

DEFAULT_HOLDOUT = HoldoutFraction()
DEFAULT_SCALING = ScalingConfig()
NO_SOURCES: Mapping[str, Source] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """A train function that scores itself."""

    function: Callable[..., Any]
    metric: str
    """Its name among the metrics that the function returns."""
    maximized: bool


def prepare_study(
    call: TuneCall, source: Source, eval_sources: Mapping[str, Source] = NO_SOURCES
) -> StudyPlan:
    """Return the plan of a study, checked as far as it can be before any row is read."""
    _check_numbers(call)
    _check_execution(call.execution)
    serde = resolve_serde(call.serde)
    space = _space_of(call.space)
    function = resolve_trainer(call.trainer)
    refuse_unkept(function, serde)
    gang = None
    if _is_for_gangs(function, call.scaling, eval_sources):
        sources = gang_sources(source, eval_sources, function)
        gang = GangPlan(function=function, serde=serde, scaling=call.scaling, sources=sources)
    rows, scoring = source, call
    if eval_sources and gang is None:
        read = _narrowed(source, function, DEFAULT_HOLDOUT)
        rows, scoring = _with_eval_rows(call, read, eval_sources)
    scored = _scored(function, gang, scoring, rows)
    search = SearchSpec(
        space=space,
        sampler=call.sampler,
        pruner=call.pruner,
        # Optuna's samplers seed numpy's RandomState, which takes 0 to 2^32 - 1 only.
        seed=plain_seed(call.seed),
        metric=scored.metric,
        maximized=scored.maximized,
    )
    settings = first_settings(search)
    _check_settings(function, settings)
    about = {name: each.description() for name, each in eval_sources.items()}
    call = replace(
        call,
        space=plain_space(call.space),
        serde=serde,
        files=[str(path) for path in call.files or ()],
        eval_data={name: each.recipe for name, each in about.items()},
    )
    return StudyPlan(
        identity=Identity(run_id=call.run_id, kind=call.run_kind(), key_columns=TRIAL_KEY),
        source=_narrowed(rows, function, scoring.holdout),
        work=TrialWork(
            train=TrainWork(function=scored.function, serde=serde), metric=scored.metric
        ),
        name=name_of(function),
        intent=describe_intent(call, source.description(), eval_fingerprint(about)),
        seed=call.seed,
        on_existing=call.on_existing_artifacts,
        options=call.execution,
        search=search,
        stopping=Stopping(
            trials=call.trials, max_duration_s=call.max_duration_s, patience=call.patience
        ),
        max_concurrent=call.max_concurrent,
        gang=gang,
    )


def _with_eval_rows(
    call: TuneCall, source: Source, eval_sources: Mapping[str, Source]
) -> tuple[Source, TuneCall]:
    """Return the rows of both tables, and the call with what holds out those of the second one."""
    if len(eval_sources) > 1:
        raise InputError(
            f"Settings are scored on one table, and eval_data= has {', '.join(eval_sources)}."
        )
    if call.holdout != DEFAULT_HOLDOUT or call.fit_on == "all":
        raise InputError(
            "With eval_data= settings are scored on its rows, and no model is trained on them: "
            'leave out holdout= and fit_on="all".'
        )
    [(name, held_out)] = eval_sources.items()
    rows = with_held_out(source, held_out, f"eval_data {name!r}")
    return rows, replace(call, holdout=HoldoutByTime(column=rows.name, start=1))


def _narrowed(source: Source, function: Any, holdout: Evaluation) -> Source:
    reads = function.reads(source.schema) if hasattr(function, "reads") else None
    if reads is None:
        return source
    held_out = holdout.columns if isinstance(function, BoostingTrainer) else ()
    return source.narrowed(list(dict.fromkeys([*reads, *held_out])))


def _is_for_gangs(
    function: Callable[..., Any], scaling: ScalingConfig, eval_sources: Mapping[str, Source]
) -> bool:
    """Tell whether each trial is trained by ranks that work together."""
    if isinstance(function, DistributedBoosting | TorchDistributor):
        return True
    is_asked_for = scaling != DEFAULT_SCALING
    if isinstance(function, BaseModel) and is_asked_for:
        raise InputError(
            f"scaling= is for trials that several ranks train, and a {type(function).__name__} "
            "trains in one process: leave it out, or give DistributedXGBoost, "
            "DistributedLightGBM, or a function of a rank's context."
        )
    if eval_sources and not is_asked_for and not isinstance(function, BoostingTrainer):
        raise InputError(
            "eval_data= is for LightGBMTrainer and XGBoostTrainer, and for trials that ranks "
            "train: give scaling= too, as ScalingConfig(ranks=1) for a function of the context of "
            "one rank, which has each table as context.data(name)."
        )
    return is_asked_for


def _scored(
    function: Callable[..., Any], gang: GangPlan | None, call: TuneCall, source: Source
) -> _Scored:
    if gang is not None:
        return _scored_gang(gang, call)
    if isinstance(function, BoostingTrainer):
        return _scored_trainer(function, call, source)
    return _scored_function(function, call)


def _scored_gang(gang: GangPlan, call: TuneCall) -> _Scored:
    """Return what ranks call, which rank 0 returns the metric of."""
    name = call.metric
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
    if call.holdout != DEFAULT_HOLDOUT or call.fit_on != "auto":
        raise InputError(
            "Ranks hold out no rows: leave out holdout= and fit_on=, and give eval_data=."
        )
    maximized = call.direction == "maximize" if call.direction else _is_maximized(name, gang)
    return _Scored(function=gang.function, metric=name, maximized=maximized)


def _is_maximized(name: str, gang: GangPlan) -> bool:
    """Whether more of a metric of rank 0 is better, as its name says."""
    plain = next(
        (name[len(each) + 1 :] for each in gang.sources if name.startswith(f"{each}_")), name
    )
    if not isinstance(gang.function, DistributedBoosting):
        return plain in MAXIMIZED
    own = gang.function.metric_function.rpartition(":")[2]
    return plain != own and is_larger_better(plain)


def _check_numbers(call: TuneCall) -> None:
    for name in ("trials", "patience", "max_concurrent"):
        if (count := getattr(call, name)) is not None and count < 1:
            raise InputError(f"{name}={count} leaves nothing to do: give 1 or more.")
    if call.max_duration_s is not None and not call.max_duration_s > 0:
        raise InputError(
            f"max_duration_s={call.max_duration_s:g} leaves no time: give seconds above 0."
        )


def _check_execution(options: ExecutionOptions) -> None:
    """Refuse what is for the partitions of other runs: a caller would wait for its effect."""
    if options.sample is not None:
        raise InputError(
            f"execution.sample={options.sample} is a dry run of a part of the partitions, and a "
            "study has trials, each on all rows: leave it out, and give fewer trials= under "
            "another run_id."
        )
    if options.n_shards is not None:
        raise InputError(
            f"execution.n_shards={options.n_shards} divides partitions, and a study has trials, "
            "each on all rows: leave it out; max_concurrent= says how many run at once."
        )


def _space_of(space: Mapping[str, Any] | str | Callable[..., Any]) -> Space | SpaceFunction:
    if isinstance(space, str):
        function: SpaceFunction = resolve_trainer(space)
        return function
    if callable(space):
        return space
    parsed = parse_space(space)
    if not parsed:
        raise InputError("The space is empty, so that there is nothing to tune: name parameters.")
    return parsed


def _scored_trainer(trainer: BoostingTrainer, call: TuneCall, source: Source) -> _Scored:
    """Return a built-in trainer, which is scored by the study's holdout."""
    holdout = call.holdout
    if trainer.holdout not in (DEFAULT_HOLDOUT, holdout):
        raise InputError("Give holdout= to tune_model, which scores all trials by it.")
    if trainer.fit_on not in ("auto", call.fit_on):
        raise InputError("Give fit_on= to tune_model, which trains the models that are kept.")
    if call.fit_on == "train" and isinstance(holdout, CrossValidation):
        raise InputError(
            'fit_on="train" needs a last window, which a cross-validation does not have.'
        )
    trainer = trainer.model_copy(update={"holdout": holdout})
    name = call.metric or default_metric(trainer.task)
    metric = find_metric(name, call.direction, resolve_trainer)
    check_metric(metric, trainer.task, is_backtest=isinstance(holdout, Backtest))
    trainer.check(source.schema, key_columns=())
    # A function by its name: the workers' own is meant.
    function = ScoredTrainer(
        trainer=trainer,
        evaluation=holdout,
        metric=name,
        direction=call.direction,
        fit_on=call.fit_on,
    )
    return _Scored(function=function, metric=f"holdout_{metric.name}", maximized=metric.maximized)


def _scored_function(function: Callable[..., Any], call: TuneCall) -> _Scored:
    """Return a train function, which scores itself and returns the metric."""
    name = call.metric
    if isinstance(function, BaseModel):
        raise InputError(
            f"A {type(function).__name__} is not a trainer of one model on all rows: give "
            "LightGBMTrainer, XGBoostTrainer, or a function of (data, context)."
        )
    if not isinstance(name, str) or not name or names_function(name):
        raise InputError(
            "metric= has to name what the study goes by, among the metrics that the train "
            "function returns in its Result."
        )
    if call.holdout != DEFAULT_HOLDOUT or call.fit_on != "auto":
        raise InputError(
            "A train function holds out rows itself: leave out holdout= and fit_on=, or give a "
            "trainer such as LightGBMTrainer."
        )
    maximized = call.direction == "maximize" if call.direction else name in MAXIMIZED
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
