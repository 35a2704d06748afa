"""`partwise find-portfolio`: the few settings that together do best, found on a sample."""

from typing import Annotated, Literal

from cyclopts import Parameter

from partwise.flows.cli.call_options import CallOptions
from partwise.flows.cli.options import RowOptions, TrainerOptions
from partwise.flows.cli.train import Data
from partwise.flows.cli.tuning_options import TUNING, Predict, Tune

_CALL = CallOptions()


def find_portfolio(
    data: Data,
    /,
    *,
    trainer: TrainerOptions,
    rows: RowOptions,
    tune: Tune,
    sample: Annotated[int, Parameter(group=TUNING, help="On how many partitions.")] = 200,
    trials: Annotated[int, Parameter(group=TUNING, help="How many settings.")] = 100,
    size: Annotated[int, Parameter(group=TUNING, help="How many are picked.")] = 8,
    sampler: Annotated[
        Literal["random", "grid"],
        Parameter(group=TUNING, help="How settings are drawn; grid for all there are."),
    ] = "random",
    predict: Predict = "",
    call: CallOptions = _CALL,
) -> int:
    """Find on a sample of partitions the few settings of a trainer that do best together.

    Each partition of `partwise train --portfolio RUN_ID` then tries just these.
    """
    from partwise.calls.partitions import PortfolioCall
    from partwise.flows.cli.flow_calls import call_and_print
    from partwise.flows.cli.tuning_options import parse_tune, searched_trainer

    built, holdout = searched_trainer(trainer)
    asked = PortfolioCall(
        trainer=built,
        space=parse_tune(tune),
        sample=sample,
        trials=trials,
        size=size,
        metric=trainer.metric or "",
        holdout=holdout,
        sampler=sampler,
        label=trainer.label or "",
        predict=predict,
        **rows.arguments(),
        **call.arguments("find-portfolio", data),
    )
    return call_and_print(asked)
