"""What the flow of one model decides before a rank is started: most refusals are here."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from partwise.calls.intent import describe_intent
from partwise.calls.one_model import DistributedCall
from partwise.engine.driver.named_modules import named_modules
from partwise.engine.driver.payload import name_of
from partwise.engine.scaling import ClusterWorker, ScalingConfig
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import ColumnError, InputError
from partwise.gangs.placement import Placement, place_ranks
from partwise.gangs.plan import GangPlan
from partwise.gangs.spec import RANK_KEY
from partwise.gangs.work import TrainRankWork
from partwise.models.serdes import resolve_serde
from partwise.planning.caller_paths import params_left_behind
from partwise.planning.kept_models import classes_left_out, refuse_unkept
from partwise.runs.claim import Identity
from partwise.sources.descriptions import Source, SourceDescription
from partwise.tables.keys.partition_keys import plain_seed
from partwise.trainers import resolve_trainer
from partwise.trainers.resolving import check_takes

TRAIN = "train"
"""The gang's name for the rows trained on."""

VALUES_A_MEETING = 15_000
"""So many values more have to be in the rows for each time that the ranks of one machine meet, to
be done sooner than one rank with all threads.

Two ranks read 20 ns a value sooner, since reading is the work of one thread, and take 0.2 to 0.4 ms
longer each time that they add up their sums: benchmarks/gangs.py, two cores, November 2026."""


def prepare_gang(
    call: DistributedCall,
    source: Source,
    eval_sources: Mapping[str, Source],
    *,
    packages: ResolvedEnvironment | None = None,
) -> GangPlan:
    """Return the plan of a run of one model, checked as far as it can be before any row is read.

    `packages` None: the ranks have none of their own.
    """
    serde = resolve_serde(call.serde)
    function = resolve_trainer(call.trainer)
    check_takes(function, "context")
    refuse_unkept(function, serde)
    sources = gang_sources(source, eval_sources, function)
    about = {name: each.description() for name, each in eval_sources.items()}
    params = dict(call.params)
    call = replace(
        call,
        eval_data={name: each.recipe for name, each in about.items()},
        serde=serde,
        params=params,
    )
    intent = describe_intent(
        call,
        source.description(),
        eval_fingerprint(about),
        {} if packages is None else packages.versions,
    )
    return GangPlan(
        identity=Identity(run_id=call.run_id, kind=call.run_kind(), key_columns=RANK_KEY),
        sources=sources,
        work=TrainRankWork(function=function, serde=serde),
        name=name_of(function),
        intent=intent,
        modules=named_modules(function, intent.code_parts),
        seed=plain_seed(call.seed),
        on_existing=call.on_existing_artifacts,
        place=partial(_place, call.scaling, _meetings(function), _values(sources[TRAIN])),
        options=call.gang,
        params=params,
        resume_from=call.resume_from,
        environment=packages,
        warnings=params_left_behind(params) + classes_left_out(function, serde),
    )


def gang_sources(
    source: Source, eval_sources: Mapping[str, Source], function: Any
) -> dict[str, Source]:
    """Return the rows of a gang by name, checked, with the columns that its trainer reads."""
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


def _place(
    scaling: ScalingConfig, meetings: int, values: int | None, workers: Sequence[ClusterWorker]
) -> Placement:
    """Place the ranks: of few values on one machine, and where nobody says how many, one.

    `meetings` are those of several ranks, and `values` how many there are in the rows; None: that
    is not known.
    """
    is_open = scaling == ScalingConfig() and not any(worker.gpus for worker in workers)
    is_few = values is not None and values < VALUES_A_MEETING * meetings
    if is_open and is_few and len({worker.host for worker in workers}) == 1:
        placement = place_ranks(workers, ScalingConfig(ranks=1, gpus=scaling.gpus))
        why = (
            f"One rank with {placement.threads} CPUs: with so few rows it ends sooner than several "
            "would. Set ranks or cpus of the scaling for another number."
        )
        return replace(placement, why=why)
    return place_ranks(workers, scaling)


def _meetings(function: Any) -> int:
    """Return how often ranks add up their sums, for trainers that give the same model by one."""
    return int(function.meetings()) if hasattr(function, "meetings") else 0


def _values(source: Source) -> int | None:
    rows = source.description().rows
    return None if rows is None else rows * len(source.schema.names)


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
