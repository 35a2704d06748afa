"""`partwise tune`: settings of one model on all rows, by trials side by side."""

from typing import Annotated, Any

from cyclopts import Group, Parameter
from pydantic import Field

from partwise.calls.one_model import TuneCall
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ALL, ScalingConfig
from partwise.errors import InputError
from partwise.flows.cli.command import Read, command_of
from partwise.flows.cli.options import EXECUTION, TrainerOptions
from partwise.flows.cli.parsing import given_options
from partwise.flows.cli.tuning_options import Space


def study_arguments(options: TrainerOptions) -> dict[str, Any]:
    """Return what trains, and by what and on which rows all trials are scored.

    Raises:
        InputError: An option is wrong, or nothing is held out.
    """
    if options.no_holdout:
        raise InputError("--no-holdout leaves no rows to score trials on: leave it out.")
    built: Any = options.build(is_tuned=True)
    # Of a trainer alone it is its own, and here it is that of all trials.
    holdout = {} if isinstance(built, str) else {"holdout": built.holdout}
    return {"trainer": built, **given_options({"metric": options.metric}), **holdout}


class TrialOptions(ExecutionOptions, ScalingConfig):
    """How trials are executed, and with how many ranks each: CPUs and GPUs are of the unit."""

    ranks: int | None = Field(  # type: ignore[assignment]
        default=None,
        ge=ALL,
        description="Processes that train each trial together; -1: one for each GPU, or where "
        "there is none, for each worker of the cluster. Default: a trial is one process.",
    )
    cpus: int = Field(
        default=1, ge=1, description="Threads that a trial uses; or with --ranks each of its ranks."
    )
    gpus: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="GPUs that a trial, or with --ranks each of its ranks, has to itself; 0 hides "
        "them. Default: those there are.",
    )

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of the flow: of trials, and of the ranks of each."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if self.ranks is None:
            return {"execution": ExecutionOptions(**given)}
        ranks = {name: given.pop(name) for name in ScalingConfig.model_fields if name in given}
        return {"execution": ExecutionOptions(**given), "scaling": ScalingConfig(**ranks)}


tune = command_of(
    TuneCall,
    "Tune one model on all rows, by trials side by side.",
    group=Group("Study", sort_key=1),
    types={
        "trainer": Annotated[
            TrainerOptions,
            Read(value=study_arguments, fields=("trainer", "metric", "holdout")),
        ],
        "space": Space,
        "execution": Annotated[
            TrialOptions,
            Read(
                value=TrialOptions.arguments,
                default=TrialOptions(),
                fields=("execution", "scaling"),
            ),
            Parameter(name="*", group=EXECUTION),
        ],
    },
)
