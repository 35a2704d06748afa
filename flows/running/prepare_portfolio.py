"""What `find_portfolio` decides before a row is touched, and what it makes of the scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from partwise.engine.params import given_params
from partwise.engine.plan import Plan
from partwise.engine.sample import chosen_by_hash
from partwise.engine.works import MapWork
from partwise.errors import InputError
from partwise.evaluation import Evaluation
from partwise.evaluation.scores import Direction
from partwise.flows.running.connections import open_store
from partwise.flows.running.parameters import StoreParameter
from partwise.flows.running.prepare import Request, check_libraries, keys_of
from partwise.runs.portfolio import Portfolio, read_portfolio, write_portfolio
from partwise.runs.run import Run
from partwise.sources.descriptions import Source
from partwise.trainers.best import Best
from partwise.trainers.scored_settings import ScoredSettings
from partwise.trainers.tuned import Tuned
from partwise.tuning.portfolio import pick
from partwise.tuning.sampler import SamplerName, check_sampler
from partwise.tuning.search import draw_settings
from partwise.tuning.space import plain_space


def settings_to_score(
    trainer: str | Callable[..., Any],
    space: Any,
    *,
    trials: int,
    sampler: SamplerName,
    seed: int,
    metric: str | Callable[..., Any],
    direction: Direction,
    holdout: Evaluation,
    label: str = "",
    predict: str | Callable[..., Any] = "",
) -> Tuned:
    """Return a trainer with the settings that are scored on each partition, its own first.

    Raises:
        InputError: The space cannot be searched, or a setting does not go with the trainer.
    """
    try:
        tuned = Tuned(
            trainer,
            space,
            metric,
            direction=direction,
            holdout=holdout,
            sampler=sampler,
            label=label,
            predict=predict,
        ).resolved()
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ").rstrip(".")
        raise InputError(f"The settings cannot be searched: {reason}.") from None
    check_sampler(sampler, tuned.space)
    drawn = draw_settings(tuned.space, trials - 1, seed, sampler)
    return tuned.model_copy(
        update={"space": {}, "settings": tuple(drawn), "sampler": "random", "trials": trials}
    )


def prepare_portfolio(
    source: Source,
    partition_by: str | Sequence[str],
    tuned: Tuned,
    request: Request,
    arguments: Mapping[str, Any],
    sample: int,
) -> Plan:
    """Return the plan of a run that scores settings on a sample of partitions.

    Args:
        source: The rows.
        partition_by: Their key columns.
        tuned: Of `settings_to_score`.
        request: What is asked of the run.
        arguments: What the call was given, besides.
        sample: On how many partitions.

    Raises:
        ColumnError: The trainer needs a column that the source lacks, or a key column is missing.
        InputError: A setting cannot be used.
    """
    source, names, keys = keys_of(source, partition_by, request.earlier_keys)
    request = replace(request, params=given_params(request.params, keys))
    check_libraries(tuned, has_packages=request.packages is not None)
    tuned.check(source.schema, key_columns=tuple(names))
    work = MapWork(function=ScoredSettings(tuned=tuned), key_columns=tuple(names))
    given = {
        "partition_by": names,
        **arguments,
        "space": plain_space(arguments["space"]),
        "params": request.params,
        "null_keys": request.null_keys,
        "seed": request.seed,
        "execution": request.execution,
    }
    plan = request.plan("find-portfolio", source, keys, work, given, function=tuned)
    fewest = int(getattr(tuned.trainer, "min_rows", 1))
    return replace(plan, choose=partial(chosen_by_hash, count=sample, fewest_rows=fewest))


def pick_portfolio(run: Run, tuned: Tuned, size: int) -> Portfolio | None:
    """Pick a portfolio by the scores of a run, and keep it; None where there are no scores."""
    rows = run.predictions(["setting", "score"])
    if not rows.num_rows:
        return None
    metric, settings = tuned.scored_by, ({}, *tuned.settings)
    # Each partition has as many rows as there are settings, one after another.
    scores = rows["score"].to_numpy().reshape(-1, len(settings))
    losses = -scores if metric.maximized else scores
    picked = pick(np.asarray(losses), size)
    portfolio = Portfolio(
        trainer=kind_of(tuned.trainer),
        metric=metric.name,
        settings=tuple(settings[place] for place in picked.places),
        regrets=picked.regrets,
        partitions=len(losses),
        tried=len(settings),
    )
    write_portfolio(run, portfolio)
    return portfolio


def with_portfolio(trainer: Any, store: StoreParameter) -> Any:
    """Return a trainer with the settings of the portfolio that it names; others as they are.

    Raises:
        RunNotFoundError: There is no such run.
        InputError: It has no portfolio, or one of another trainer.
    """
    if isinstance(trainer, Best):
        candidates = tuple(with_portfolio(each, store) for each in trainer.candidates)
        return trainer.model_copy(update={"candidates": candidates})
    if not isinstance(trainer, Tuned) or not trainer.portfolio or trainer.settings:
        return trainer
    portfolio = read_portfolio(Run.open(trainer.portfolio, open_store(store)))
    if portfolio.trainer != kind_of(trainer.trainer):
        raise InputError(
            f"The portfolio {trainer.portfolio!r} has settings of {portfolio.trainer}, and "
            f"{kind_of(trainer.trainer)} is to be tuned: give one of the same trainer."
        )
    return trainer.model_copy(update={"settings": portfolio.settings})


def kind_of(trainer: Any) -> str:
    """Return what settings are of: the kind of a trainer, or the name of a function."""
    if isinstance(trainer, str):
        return trainer
    if isinstance(trainer, BaseModel) and hasattr(trainer, "kind"):
        return str(trainer.kind)
    return f"{trainer.__module__}:{getattr(trainer, '__qualname__', type(trainer).__name__)}"
