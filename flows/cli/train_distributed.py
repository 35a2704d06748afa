"""`partwise train-distributed`: one model on all rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from partwise.engine.scaling import ScalingConfig
from partwise.errors import InputError
from partwise.flows.cli.environment_options import EnvironmentOptions
from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.options import (
    ROWS,
    RUN,
    TRAINER,
    ClusterOptions,
    FollowingRunOptions,
    Names,
)
from partwise.flows.cli.parsing import (
    build_settings,
    flag,
    given_options,
    parse_condition,
    parse_parameter,
    split_names,
)
from partwise.flows.cli.train import Data, Pickle
from partwise.formatting import did_you_mean
from partwise.gangs.options import GangOptions

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS = Group("Ranks", sort_key=4)


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
    """A parameter of the library by its own name, such as max_depth=6; may be repeated."""
    rounds: int | None = None
    """The most boosting rounds. Default: 100."""
    weight: str | None = None
    """A column of numbers that says how much each row counts."""
    group: str | None = None
    """For a ranking: the column whose equal neighbours are one query."""
    early_stopping_rounds: int | None = None
    """Stop when the eval set has not improved for so many rounds."""

    def build(self) -> Any:
        """Return the trainer, or the name of a function.

        Raises:
            InputError: A setting is wrong, or does not go with the trainer.
        """
        settings = given_options(vars(self))
        del settings["trainer"]
        if ":" in self.trainer:
            if settings:
                raise InputError(
                    f"{flag(next(iter(settings)))} is a setting of the trainers xgboost and "
                    f"lightgbm; {self.trainer} has its own: leave it out."
                )
            return self.trainer
        from partwise.trainers.ranks.every import DISTRIBUTED_TRAINERS

        if self.trainer not in DISTRIBUTED_TRAINERS:
            raise InputError(
                f"--trainer {self.trainer!r} is not known: give {', '.join(DISTRIBUTED_TRAINERS)}, "
                f"or package.module:function.{did_you_mean(self.trainer, DISTRIBUTED_TRAINERS)}"
            )
        for name in ("classes", "features", "categorical", "calendar"):
            settings[name] = tuple(split_names(getattr(self, name)))
        settings["params"] = dict(parse_parameter(text) for text in settings.pop("param", ()))
        kind: Callable[..., Any] = DISTRIBUTED_TRAINERS[self.trainer]
        return build_settings(kind, **settings)


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class DistributedRowOptions:
    """Which rows are trained on, and which the model is measured on."""

    eval_data: Names = ()
    """Rows to measure the model on, as NAME=PATH; may be repeated."""
    where: Names = ()
    """Rows to train on, such as "price > 0", "day < 2026-01-01" or "store in a,b". Given several
    times, all must hold. Text that looks like a number is quoted: 'zip = "01234"'."""
    columns: Names = ()
    """Columns to read. Default: all."""

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of the flow.

        Raises:
            InputError: A condition cannot be read, or an eval set has no name.
        """
        eval_data = {}
        for text in self.eval_data:
            name, equals, path = text.partition("=")
            if not equals or not name.strip() or not path.strip():
                raise InputError(f"--eval-data {text!r} is not of the form NAME=PATH.")
            eval_data[name.strip()] = path.strip()
        return {
            "eval_data": eval_data,
            "filter": [parse_condition(text) for text in self.where],
            "columns": split_names(self.columns),
        }


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class DistributedRunOptions(FollowingRunOptions):
    """The run's name, place and seed."""

    seed: int = 0
    """All ranks have the same."""
    resume_from: str = ""
    """Another run, or a folder or URL, with a checkpoint that the ranks begin with."""


_ROWS = DistributedRowOptions()
_FILES = FileOptions()
_RUN = DistributedRunOptions()
_SCALING = ScalingConfig()
_GANG = GangOptions()
_CLUSTER = ClusterOptions()
_ENVIRONMENT = EnvironmentOptions()


def train_distributed(
    data: Data,
    /,
    *,
    trainer: DistributedTrainerOptions,
    rows: DistributedRowOptions = _ROWS,
    files: FileOptions = _FILES,
    run: DistributedRunOptions = _RUN,
    scaling: Annotated[ScalingConfig, Parameter(name="*", group=RANKS)] = _SCALING,
    gang: Annotated[GangOptions, Parameter(name="*", group=RANKS)] = _GANG,
    environment: EnvironmentOptions = _ENVIRONMENT,
    cluster: ClusterOptions = _CLUSTER,
    pickle: Pickle = False,
) -> int:
    """Train one model on all rows, by ranks that work together."""
    from partwise.calls.one_model import DistributedCall
    from partwise.flows.cli.flow_calls import call_and_print, pickle_serde

    asked = DistributedCall(
        data=files.of(data),
        trainer=trainer.build(),
        serde=pickle_serde(pickle),
        **rows.arguments(),
        **run.arguments("train-distributed"),
        scaling=scaling,
        gang=gang,
        environment=environment.build(),
        cluster=cluster.checked(),
    )
    return call_and_print(asked)
