"""What `find_portfolio` decides before a row is touched, and what it makes of the scores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel

from partwise.calls.partitions import PortfolioCall
from partwise.engine.driver.params import given_params
from partwise.engine.driver.plan import Plan
from partwise.engine.sample import chosen_by_hash
from partwise.engine.works import MapWork
from partwise.errors import InputError
from partwise.planning.partitions import check_libraries, keys_of, plan_of
from partwise.runs.portfolio import Portfolio, write_portfolio
from partwise.runs.run import Run
from partwise.sources.descriptions import Source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyColumn, plain_seed
from partwise.trainers.choosing.best import Best
from partwise.trainers.choosing.scored_settings import ScoredSettings
from partwise.trainers.choosing.tuned import Tuned
from partwise.tuning.portfolio import pick
from partwise.tuning.sampler import check_sampler
from partwise.tuning.search import draw_settings
from partwise.tuning.space import plain_space


def settings_to_score(call: PortfolioCall) -> Tuned:
    """Return a trainer with the settings that are scored on each partition, its own first."""
    tuned = Tuned(
        call.trainer,
        call.space,
        call.metric,
        direction=call.direction,
        holdout=call.holdout,
        sampler=call.sampler,
        label=call.label,
        predict=call.predict,
    ).resolved()
    check_sampler(call.sampler, tuned.space)
    # Here and not on workers, so that all partitions score the same settings.
    drawn = draw_settings(tuned.space, call.trials - 1, plain_seed(call.seed), call.sampler)
    return tuned.model_copy(
        update={"space": {}, "settings": tuple(drawn), "sampler": "random", "trials": call.trials}
    )


def prepare_portfolio(
    call: PortfolioCall,
    source: Source,
    tuned: Tuned,
    *,
    earlier_keys: Sequence[KeyColumn] = (),
) -> Plan:
    """Return the plan of a run that scores settings on a sample of partitions."""
    source, names, keys = keys_of(source, call.partition_by, earlier_keys)
    call = replace(
        call,
        partition_by=names,
        params=given_params(call.params, keys),
        space=plain_space(call.space),
    )
    check_libraries(tuned, has_packages=False)
    tuned.check(source.schema, key_columns=tuple(names))
    plan = plan_of(
        call,
        source,
        keys,
        MapWork(function=ScoredSettings(tuned=tuned), key_columns=tuple(names)),
        function=tuned,
    )
    fewest = int(getattr(tuned.trainer, "min_rows", 1))
    return replace(plan, choose=partial(chosen_by_hash, count=call.sample, fewest_rows=fewest))


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
    write_portfolio(run.store, run.run_id, portfolio)
    return portfolio


def with_portfolio(trainer: Any, store: Callable[[], Store]) -> Any:
    """Return a trainer with the settings of the portfolio that it names; others as they are."""
    if isinstance(trainer, Best):
        candidates = tuple(with_portfolio(each, store) for each in trainer.candidates)
        return trainer.model_copy(update={"candidates": candidates})
    if not isinstance(trainer, Tuned) or not trainer.portfolio or trainer.settings:
        return trainer
    portfolio = Run.open(trainer.portfolio, store()).portfolio
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
