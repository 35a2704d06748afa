"""What the flow of one model decides before a rank is started: most refusals are here."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from partwise.engine.payload import name_of
from partwise.engine.scaling import ALL, ClusterWorker, ScalingConfig
from partwise.errors import ColumnError, InputError
from partwise.flows.running.caller_paths import hyperparameters_left_behind
from partwise.flows.running.calls import describe_intent
from partwise.flows.running.prepare import Request
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import Placement, place_ranks
from partwise.gangs.plan import GangPlan
from partwise.gangs.spec import RANK_KEY
from partwise.gangs.work import TrainRankWork
from partwise.models.serdes import ModelSerde, resolve_serde
from partwise.runs.claim import Identity
from partwise.sources.descriptions import Source, SourceDescription
from partwise.trainers import resolve_trainer
from partwise.trainers.resolving import check_takes

TRAIN = "train"
"""The gang's name for the rows trained on."""


def prepare_gang(
    source: Source,
    eval_sources: Mapping[str, Source],
    trainer: str | Callable[..., Any],
    request: Request,
    *,
    serde: ModelSerde | str | None = None,
    scaling: ScalingConfig,
    options: GangOptions,
    hyperparameters: Mapping[str, Any],
    resume_from: str = "",
) -> GangPlan:
    """Return the plan of a run of one model, checked as far as it can be before any row is read.

    Args:
        source: The rows trained on.
        eval_sources: Those of each eval set, by name.
        trainer: A trainer, a function of the rank's context, or the name of one.
        request: What is asked of the run.
        serde: Writes the model.
        scaling: How many ranks there are, and what each may use.
        options: Time limits and restarts.
        hyperparameters: What ranks find in their context.
        resume_from: A run, or a folder, with a checkpoint to begin with; empty: none.

    Raises:
        FunctionError: The name of a function leads nowhere.
        ColumnError: The trainer needs a column that rows lack.
        SerdeError: There is no serde of this name.
        InputError: An eval set is named like the rows trained on.
    """
    chosen_serde = resolve_serde(serde)
    function = resolve_trainer(trainer)
    check_takes(function, "context")
    sources = gang_sources(source, eval_sources, function)
    about = {name: each.description() for name, each in eval_sources.items()}
    arguments: dict[str, Any] = {
        "trainer": trainer,
        "eval_data": {name: each.recipe for name, each in about.items()},
        "serde": chosen_serde,
        "seed": request.seed,
        "scaling": scaling,
        "gang": options,
        "hyperparameters": dict(hyperparameters),
        "resume_from": resume_from,
    }
    versions: Mapping[str, str] = {}
    if request.packages is not None:
        arguments["environment"] = request.environment
        versions = request.packages.versions
    return GangPlan(
        identity=Identity(run_id=request.run_id, kind="train-distributed", key_columns=RANK_KEY),
        sources=sources,
        work=TrainRankWork(function=function, serde=chosen_serde),
        name=name_of(function),
        intent=describe_intent(
            "train-distributed",
            source.description(),
            arguments,
            request.version or None,
            eval_fingerprint(about),
            versions,
        ),
        seed=request.seed,
        on_existing=request.on_existing,
        place=partial(_place, scaling),
        options=options,
        hyperparameters=dict(hyperparameters),
        resume_from=resume_from,
        environment=request.packages,
        warnings=hyperparameters_left_behind(hyperparameters),
    )


def gang_sources(
    source: Source, eval_sources: Mapping[str, Source], function: Any
) -> dict[str, Source]:
    """Return the rows of a gang by name, checked, with the columns that its trainer reads.

    Raises:
        ColumnError: The trainer needs a column that rows lack.
        InputError: An eval set is named like the rows trained on.
    """
    if TRAIN in eval_sources:
        raise InputError(f"eval_data names {TRAIN!r}, which are the rows trained on: rename it.")
    sources = {TRAIN: source, **eval_sources}
    if hasattr(function, "check"):
        for each in sources.values():
            function.check(each.schema, key_columns=())
    if hasattr(function, "check_sources"):
        function.check_sources(list(sources))
    return {name: narrowed_for(each, function, name) for name, each in sources.items()}


def eval_fingerprint(about: Mapping[str, SourceDescription]) -> str | None:
    """Fingerprint eval sets by what their sources say of themselves; None: there are none."""
    if not about:
        return None
    prints = sorted((name, each.fingerprint) for name, each in about.items())
    return hashlib.sha256(repr(prints).encode()).hexdigest()


def _place(scaling: ScalingConfig, workers: Sequence[ClusterWorker]) -> Placement:
    gpus = ALL if scaling.gpus_per_worker is None else scaling.gpus_per_worker
    return place_ranks(workers, scaling.num_workers, scaling.cpus_per_worker, gpus)


def narrowed_for(source: Source, function: Any, name: str) -> Source:
    """Return rows with the columns that the trainer reads, where it says which."""
    reads: Sequence[str] | None = None
    if hasattr(function, "reads"):
        reads = function.reads(source.schema)
    if reads is None:
        return source
    known = set(source.schema.names)
    if missing := [column for column in reads if column not in known]:
        raise ColumnError(f"The trainer reads {missing}, which the rows {name!r} do not have.")
    return source.narrowed(list(dict.fromkeys(reads)))
