"""`partwise tune`: settings of one model on all rows, by trials side by side."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError
from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.options import (
    ROWS,
    RUN,
    ClusterOptions,
    Execution,
    FollowingRunOptions,
    Names,
    TrainerOptions,
)
from partwise.flows.cli.parsing import (
    given_options,
    parse_condition,
    split_names,
)
from partwise.flows.cli.train import Data, Pickle
from partwise.flows.cli.tuning_options import parse_searched

STUDY = Group("Study", sort_key=1)


@Parameter(name="*", group=STUDY)
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What is tried, and what tells better settings."""

    space: Names
    """What a parameter is drawn from: learning_rate=loguniform(0.01,0.3), num_leaves=randint(4,64),
    boosting=choice(gbdt,dart), or max_bin=63, a constant. Given once for each; or once, as the
    function that returns the settings of an Optuna trial: package.module:function."""
    direction: Literal["", "minimize", "maximize"] = ""
    """Which values are better. Default: as the name says, and else lower ones."""
    trials: int = 50
    """How many settings are tried."""
    max_duration_s: float | None = None
    """Seconds after which no other trial begins."""
    patience: int | None = None
    """No other trial begins when so many in a row were no better than the best."""
    max_concurrent: int | None = None
    """Trials that run at once, at most. Default: as many as the cluster has room for."""
    sampler: Literal["tpe", "random", "grid", "gp"] = "tpe"
    """What draws settings."""
    pruner: Literal["none", "median", "percentile", "halving", "hyperband"] = "none"
    """What gives trials up before their end."""

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of the flow.

        Raises:
            InputError: The space cannot be read.
        """
        return {**given_options(vars(self)), "space": parse_space_options(self.space)}


@Parameter(name="*", group=ROWS)
@dataclass(frozen=True, kw_only=True)
class TunedRowOptions:
    """Which rows are trained on."""

    where: Names = ()
    """Rows to train on, such as "price > 0", "day < 2026-01-01" or "store in a,b". Given several
    times, all must hold. Text that looks like a number is quoted: 'zip = "01234"'."""
    columns: Names = ()
    """Columns to read. Default: all."""

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of the flow.

        Raises:
            InputError: A condition cannot be read.
        """
        return {
            "filter": [parse_condition(text) for text in self.where],
            "columns": split_names(self.columns),
        }


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class TunedRunOptions(FollowingRunOptions):
    """The run's name, place and seed."""

    seed: int = 0
    """What is tried follows from it, where trials run one at a time."""


_ROWS = TunedRowOptions()
_FILES = FileOptions()
_RUN = TunedRunOptions()
_EXECUTION = ExecutionOptions()
_CLUSTER = ClusterOptions()


def parse_space_options(texts: Names) -> dict[str, Any] | str:
    """Return the space of a call, or the name of its function.

    Raises:
        InputError: One of the texts cannot be read.

    Example:
        >>> parse_space_options(("rounds=50", "num_leaves=randint(4,64)"))
        {'rounds': 50, 'num_leaves': {'kind': 'randint', 'low': 4, 'high': 64}}
    """
    if len(texts) == 1 and ":" in texts[0] and "=" not in texts[0]:
        return texts[0]
    return dict(parse_searched(text, "--space") for text in texts)


def tune(
    data: Data,
    /,
    *,
    trainer: TrainerOptions,
    study: StudyOptions,
    rows: TunedRowOptions = _ROWS,
    files: Annotated[FileOptions, Parameter(name="*")] = _FILES,
    run: TunedRunOptions = _RUN,
    execution: Execution = _EXECUTION,
    cluster: ClusterOptions = _CLUSTER,
    pickle: Pickle = False,
) -> int:
    """Tune one model on all rows, by trials side by side."""
    from partwise.calls.one_model import TuneCall
    from partwise.flows.cli.flow_calls import call_and_print, pickle_serde

    if trainer.no_holdout:
        raise InputError("--no-holdout leaves no rows to score trials on: leave it out.")
    built: Any = trainer.build(is_tuned=True)
    # Of a trainer alone it is its own, and here it is that of all trials.
    holdout: dict[str, Any] = {} if isinstance(built, str) else {"holdout": built.holdout}
    asked = TuneCall(
        data=files.of(data),
        trainer=built,
        **study.arguments(),
        **given_options({"metric": trainer.metric}),
        **holdout,
        serde=pickle_serde(pickle),
        **rows.arguments(),
        **run.arguments("tune"),
        execution=execution,
        cluster=cluster.checked(),
    )
    return call_and_print(asked)
