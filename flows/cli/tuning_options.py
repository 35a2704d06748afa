"""The options that search a trainer's settings: of `partwise train` and `find-portfolio`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from partwise.errors import InputError
from partwise.flows.cli.command import Read
from partwise.flows.cli.evaluation_options import EvaluationOptions
from partwise.flows.cli.options import Names, TrainerOptions
from partwise.flows.cli.parsing import (
    build_settings,
    by_name,
    flag,
    given_options,
    parse_value,
    split_names,
    split_values,
)
from partwise.formatting import did_you_mean
from partwise.tuning.pruner import PrunerName
from partwise.tuning.sampler import SamplerName

if TYPE_CHECKING:
    from partwise.evaluation import Evaluation
    from partwise.trainers.choosing.tuned import Tuned

TUNING = Group("Tuning", sort_key=0)
_KINDS = ("uniform", "loguniform", "randint", "choice", "grid")
_CALL = re.compile(rf"(?P<kind>{'|'.join(_KINDS)})\((?P<values>.*)\)")

Tune = Annotated[
    tuple[str, ...],
    Parameter(
        group=TUNING,
        help="A parameter to search, and in what: 'learning_rate=loguniform(0.01, 0.3)', "
        "num_leaves=randint(4,64), boosting=choice(gbdt,dart); uniform and grid likewise. Given "
        "several times for several. Or package.module:function, a function of an Optuna trial.",
    ),
]


Predict = Annotated[
    str,
    Parameter(
        group=TUNING,
        help="package.module:function of (data, model, context), by which models of a function of "
        "your own predict while settings are scored. Default: the model's own prediction.",
    ),
]


@Parameter(name="*", group=TUNING)
@dataclass(frozen=True, kw_only=True)
class TuningOptions:
    """How each partition's own settings are searched, where --tune or --portfolio says so."""

    tune: Tune = ()
    portfolio: str = ""
    """A run of find-portfolio, whose settings each partition tries."""
    trials: int | None = None
    """How many settings a partition tries at most, the trainer's own included. Default: 30."""
    sampler: SamplerName = "tpe"
    """How they are drawn; gp needs torch and scipy."""
    pruner: PrunerName = "none"
    """Which trials are given up between windows and boosting rounds."""
    tune_max_duration_s: float | None = None
    """Seconds after which a partition begins no other trial."""
    total_trials: int | None = None
    """A budget of all partitions together, divided by their rows."""
    total_seconds: float | None = None
    """The same in seconds of one partition after another."""
    predict: Predict = ""

    def apply(self, options: TrainerOptions) -> Any:
        """Return the trainer of other options, tuned where it is asked for.

        Raises:
            InputError: An option is wrong, or goes with --tune and it is not there.
        """
        defaults = vars(TuningOptions())
        given = [name for name, value in vars(self).items() if value != defaults[name]]
        if not self.tune and not self.portfolio:
            if given:
                raise InputError(f"{flag(given[0])} goes with --tune or --portfolio.")
            return options.build()
        return self._tuned(*searched_trainer(options), options)

    def _tuned(self, trainer: Any, holdout: "Evaluation", options: TrainerOptions) -> "Tuned":
        from partwise.trainers.choosing.tuned import Tuned
        from partwise.tuning.budget import Budget

        budget = given_options({name: getattr(self, name) for name in _TOTALS})
        return build_settings(
            Tuned,
            trainer=trainer,
            space=parse_tune(self.tune),
            label=options.label or "",
            predict=self.predict,
            metric=options.metric or "",
            holdout=holdout,
            intervals=tuple(split_names(options.intervals)),
            portfolio=self.portfolio,
            trials=self.trials,
            sampler=self.sampler,
            pruner=self.pruner,
            max_duration_s=self.tune_max_duration_s,
            budget=build_settings(Budget, **budget) if budget else None,
        )


_TOTALS = ("total_trials", "total_seconds")


def searched_trainer(options: TrainerOptions) -> "tuple[Any, Evaluation]":
    """Return a trainer, or the name of a function, and the holdout that was given to it.

    All its settings are scored by that one.

    Raises:
        InputError: An option is wrong, or nothing is held out.
    """
    from partwise.evaluation import HoldoutFraction

    if ":" in options.trainer:
        # A function has no label and no holdout, with which its models are scored here.
        plain = vars(EvaluationOptions())
        function = replace(options, label=None, **plain).build(is_tuned=True)
        return function, _scored_on(options.evaluation().get("holdout", HoldoutFraction()))
    trainer: Any = options.build(is_tuned=True)
    unscored = trainer.model_copy(update={"holdout": HoldoutFraction(), "intervals": ()})
    return unscored, _scored_on(trainer.holdout)


def _scored_on(holdout: "Evaluation | None") -> "Evaluation":
    if holdout is None:
        raise InputError("--no-holdout does not go with --tune: settings are scored on a holdout.")
    return holdout


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TunedTrainerOptions:
    """What trains, its settings searched where that is asked for."""

    trainer: TrainerOptions
    tuning: TuningOptions = field(default_factory=TuningOptions)

    def build(self) -> Any:
        """Return the trainer, or the name of a function."""
        return self.tuning.apply(self.trainer)


def searched_arguments(options: TrainerOptions) -> dict[str, Any]:
    """Return the trainer of a portfolio, and by what and on which rows its settings are scored."""
    built, holdout = searched_trainer(options)
    scored = {"metric": options.metric or "", "holdout": holdout, "label": options.label or ""}
    return {"trainer": built, **scored}


def parse_tune(texts: Sequence[str], option: str = "--tune") -> Any:
    """Return a space: of "name=values" texts typed behind an option, or the name of a function.

    Raises:
        InputError: A text is neither.

    Example:
        >>> parse_tune(["num_leaves=randint(4, 64)", "boosting=dart"])["boosting"]
        'dart'
    """
    from partwise.tuning.space import parse_space

    if len(texts) == 1 and "=" not in texts[0] and ":" in texts[0]:
        return texts[0]
    return parse_space(by_name((_parse_searched(text, option) for text in texts), option))


def _parse_searched(text: str, option: str) -> tuple[str, Any]:
    """Return the name of a parameter, and a value or what it is drawn from, as in documents."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name or not value:
        raise InputError(
            f"{option} {text!r} is not of the form name=values, such as "
            "'learning_rate=loguniform(0.01, 0.3)'."
        )
    call = _CALL.fullmatch(value)
    if call is None:
        if "(" in value:
            word = value.partition("(")[0].strip()
            raise InputError(
                f"{option} {text!r}: give {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, or a value."
                f"{did_you_mean(word, _KINDS)}"
            )
        return name, parse_value(value)
    values = [parse_value(each) for each in split_values(call["values"])]
    if call["kind"] in ("choice", "grid"):
        return name, {"kind": call["kind"], "values": values}
    if len(values) != 2:
        raise InputError(f"{option} {text!r}: {call['kind']} has a low and a high end.")
    return name, {"kind": call["kind"], "low": values[0], "high": values[1]}


Space = Annotated[
    Names,
    Read(value=lambda texts: parse_tune(texts, "--space")),
    Parameter(
        help="What a parameter is drawn from: 'learning_rate=loguniform(0.01, 0.3)', "
        "num_leaves=randint(4,64), boosting=choice(gbdt,dart); uniform and grid likewise; or "
        "max_bin=63, a constant. Given once for each; or once, as package.module:function, a "
        "function of an Optuna trial that returns settings."
    ),
]
"""The type of a call's space, as it is typed."""
