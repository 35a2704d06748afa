"""`partwise train-distributed`: one model on all rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from partwise.calls.one_model import DistributedCall
from partwise.errors import InputError
from partwise.flows.cli.command import RANKS, Read, command_of
from partwise.flows.cli.options import TRAINER, Names
from partwise.flows.cli.parsing import (
    build_settings,
    by_name,
    flag,
    given_options,
    parse_parameter,
    split_names,
)
from partwise.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable


@Parameter(name="*", group=TRAINER)
@dataclass(frozen=True, kw_only=True)
class DistributedTrainerOptions:
    """What trains, and the settings of the two trainers that need no code."""

    trainer: str
    """xgboost, lightgbm, or a function of your own: package.module:function."""
    label: str | None = None
    """The column to be predicted. Default: the one that a dataset marks as its label."""
    classes: Names = ()
    """All classes of the label, such as no,yes, in the order of a model's outputs. Default: they
    are counted from 0."""
    features: Names = ()
    """The columns to predict from. Default: all but the label, the weight and the group."""
    categorical: Names = ()
    """Features whose values are categories."""
    calendar: Names = ()
    """Dates and times whose year, month, weekday, hour and so on are features. Single ones are
    named in --features, as day@month."""
    param: Names = ()
    """A parameter of the library by its own name, such as max_depth=6; or one of a function of your
    own, which finds it in the params of its context. May be repeated."""
    rounds: int | None = None
    """The most boosting rounds. Default: 100."""
    weight: str | None = None
    """A column of numbers that says how much each row counts."""
    group: str | None = None
    """For a ranking: the column whose equal neighbours are one query."""
    early_stopping_rounds: int | None = None
    """Stop when the eval set has not improved for so many rounds."""

    def arguments(self) -> dict[str, Any]:
        """Return the trainer, or the name of a function and its params.

        Raises:
            InputError: A setting is wrong, or does not go with the trainer.
        """
        settings = given_options(vars(self))
        del settings["trainer"]
        params = by_name(map(parse_parameter, settings.pop("param", ())), "--param")
        if ":" in self.trainer:
            if settings:
                raise InputError(
                    f"{flag(next(iter(settings)))} is a setting of the trainers xgboost and "
                    f"lightgbm; {self.trainer} has its own: leave it out."
                )
            return {"trainer": self.trainer, "params": params}
        from partwise.trainers.ranks.every import DISTRIBUTED_TRAINERS

        if self.trainer not in DISTRIBUTED_TRAINERS:
            raise InputError(
                f"--trainer {self.trainer!r} is not known: give {', '.join(DISTRIBUTED_TRAINERS)}, "
                f"or package.module:function.{did_you_mean(self.trainer, DISTRIBUTED_TRAINERS)}"
            )
        for name in ("classes", "features", "categorical", "calendar"):
            settings[name] = tuple(split_names(getattr(self, name)))
        kind: Callable[..., Any] = DISTRIBUTED_TRAINERS[self.trainer]
        return {"trainer": build_settings(kind, params=params, **settings)}


train_distributed = command_of(
    DistributedCall,
    "Train one model on all rows, by ranks that work together.",
    group=RANKS,
    types={
        "trainer": Annotated[
            DistributedTrainerOptions,
            Read(value=DistributedTrainerOptions.arguments, fields=("trainer", "params")),
        ]
    },
)
