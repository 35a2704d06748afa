"""Spaces: which settings a search may try, as plain values or as a function of an Optuna trial."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    ValidationError,
    model_validator,
)

from partwise.errors import InputError
from partwise.settings import Settings

if TYPE_CHECKING:
    from optuna.trial import Trial


class _Value(Settings):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Range(_Value):
    kind: str
    low: float
    high: float

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if not self.low < self.high:
            raise ValueError(
                f"{self.kind} goes from {self.low:g} to {self.high:g}: the low end has to be below "
                "the high one"
            )
        return self


class Uniform(_Range):
    """Any number between two."""

    kind: Literal["uniform"] = "uniform"
    low: FiniteFloat
    high: FiniteFloat


class LogUniform(_Range):
    """Any number between two, each order of magnitude as often as the others."""

    kind: Literal["loguniform"] = "loguniform"
    low: Annotated[FiniteFloat, Field(gt=0)]
    high: FiniteFloat


class RandInt(_Range):
    """A whole number, from the one on and below the other."""

    kind: Literal["randint"] = "randint"
    low: int
    high: int


class Choice(_Value):
    """One of some values. A grid is one too: its name says that all of them are to be tried."""

    kind: Literal["choice", "grid"] = "choice"
    values: Annotated[tuple[JsonValue, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_values(self) -> Choice:
        texts = [json.dumps(value, sort_keys=True) for value in self.values]
        if twice := [text for text in texts if texts.count(text) > 1]:
            raise ValueError(f"{self.kind} has the value {twice[0]} twice")
        return self

    @property
    def plain(self) -> tuple[Any, ...]:
        """The values as a study knows them: their places, where it cannot tell them apart."""
        kinds = (str, int, float, bool, type(None))
        # 1, 1.0 and True are equal, and lists are nothing that Optuna takes.
        if all(isinstance(value, kinds) for value in self.values) and len({*self.values}) == len(
            self.values
        ):
            return self.values
        return tuple(range(len(self.values)))


SpaceValue = Uniform | LogUniform | RandInt | Choice | JsonValue
"""What a parameter may be; a value that is none of the four classes is a constant."""

Space = Mapping[str, SpaceValue]
"""Parameters by name."""

SpaceFunction = Callable[["Trial"], Mapping[str, Any]]
"""A function that asks an Optuna trial for settings, and returns them by name."""

_KINDS: dict[str, type[Uniform | LogUniform | RandInt | Choice]] = {
    "uniform": Uniform,
    "loguniform": LogUniform,
    "randint": RandInt,
    "choice": Choice,
    "grid": Choice,
}


def uniform(low: float, high: float) -> Uniform:
    """Return any number from `low` to `high`.

    Example:
        >>> uniform(0.5, 1.0).high
        1.0
    """
    return Uniform(low=low, high=high)


def loguniform(low: float, high: float) -> LogUniform:
    """Return any number from `low`, which is above 0, to `high`, evenly by its logarithm.

    Example:
        >>> loguniform(0.01, 0.3).low
        0.01
    """
    return LogUniform(low=low, high=high)


def randint(low: int, high: int) -> RandInt:
    """Return any whole number from `low` on that is less than `high`.

    Example:
        >>> randint(4, 64).kind
        'randint'
    """
    return RandInt(low=low, high=high)


def choice(values: list[Any] | tuple[Any, ...]) -> Choice:
    """Return one of some values, of which JSON can hold each.

    Example:
        >>> choice(["gbdt", "dart"]).values
        ('gbdt', 'dart')
    """
    return Choice(values=tuple(values))


def grid(values: list[Any] | tuple[Any, ...]) -> Choice:
    """Return one of some values, all of which the sampler "grid" tries.

    Example:
        >>> grid([15, 31, 63]).kind
        'grid'
    """
    return Choice(kind="grid", values=tuple(values))


def parse_space(space: Any) -> dict[str, SpaceValue]:
    """Return a space from what a document or a caller has.

    A mapping with a "kind" is one of the four classes, a list is a grid, and all else a constant.

    Raises:
        InputError: It is not a mapping of names, a kind is unknown, or a value is wrong, such as a
            low end above the high one.
    """
    if not isinstance(space, Mapping) or not all(isinstance(name, str) for name in space):
        raise InputError(f"A space maps names of parameters to values, not {space!r}.")
    return {name: _parse_value(name, value) for name, value in space.items()}


def plain_space(space: Any) -> Any:
    """Return a space as JSON has it; functions and their names as they are."""
    if not isinstance(space, Mapping):
        return space
    return {
        name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        for name, value in parse_space(space).items()
    }


def _parse_value(name: str, value: Any) -> SpaceValue:
    if isinstance(value, list | tuple):
        value = {"kind": "grid", "values": tuple(value)}
    if not (isinstance(value, Mapping) and "kind" in value):
        constant: SpaceValue = value
        return constant
    kind = _KINDS.get(str(value["kind"]))
    if kind is None:
        raise InputError(
            f"The space of {name!r} has the kind {value['kind']!r}: give one of {', '.join(_KINDS)}"
            ", or a plain value, which is a constant."
        )
    try:
        return kind.model_validate(dict(value))
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"The space of {name!r} is wrong: {reason}.") from None


def suggest(trial: Trial, space: Space | SpaceFunction) -> dict[str, Any]:
    """Return the settings that a trial is to try, constants included."""
    if not isinstance(space, Mapping):
        settings: Any = space(trial)
        if not isinstance(settings, Mapping):
            raise InputError(
                f"The function of the space returned a {type(settings).__name__}: return the "
                "settings by name."
            )
        return dict(settings)
    return {name: _suggest(trial, name, value) for name, value in space.items()}


def _suggest(trial: Trial, name: str, value: SpaceValue) -> Any:
    match value:
        case Uniform():
            return trial.suggest_float(name, value.low, value.high)
        case LogUniform():
            return trial.suggest_float(name, value.low, value.high, log=True)
        case RandInt():
            # Optuna's high end is one of the values, and ours is not.
            return trial.suggest_int(name, value.low, value.high - 1)
        case Choice():
            chosen = trial.suggest_categorical(name, value.plain)
            return chosen if value.plain is value.values else value.values[chosen]
    return value


def grid_size(space: Space) -> int:
    """Return how many settings a grid has, without making them: there may be more than fit."""
    return math.prod(map(len, finite_values(space).values()))


def finite_values(space: Space) -> dict[str, Sequence[Any]]:
    """Return the values of each parameter that is not a constant, as a study knows them."""
    found: dict[str, Sequence[Any]] = {}
    for name, value in space.items():
        if isinstance(value, Uniform | LogUniform):
            raise InputError(
                f"The sampler 'grid' tries all values, and {name!r} is {value.kind} with endlessly "
                "many: give a grid, a choice or a randint, or another sampler."
            )
        if isinstance(value, RandInt):
            found[name] = range(value.low, value.high)
        elif isinstance(value, Choice):
            found[name] = value.plain
    return found
