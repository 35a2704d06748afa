"""Samplers: which settings a study tries next, of Optuna."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args

from partwise.errors import InputError
from partwise.tuning.space import Space, SpaceFunction, finite_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from optuna.samplers import BaseSampler

SamplerName = Literal["tpe", "random", "grid", "gp"]

_GP_PACKAGES = ("scipy", "torch")


def check_sampler(name: str, space: Space | SpaceFunction) -> None:
    """Refuse a sampler that cannot search a space, before any work."""
    if name not in get_args(SamplerName):
        raise InputError(
            f"There is no sampler {name!r}: give one of {', '.join(get_args(SamplerName))}."
        )
    if name == "grid":
        if not isinstance(space, Mapping):
            raise InputError(
                "The sampler 'grid' has to know all values, which a function does not tell: give "
                "the space as values, or another sampler."
            )
        finite_values(space)
    missing = [package for package in _GP_PACKAGES if name == "gp" and find_spec(package) is None]
    if missing:
        raise InputError(
            f"The sampler 'gp' needs {' and '.join(missing)}: install "
            f"{'them' if len(missing) > 1 else 'it'}, or give another sampler."
        )


def make_sampler(name: SamplerName, seed: int, space: Space | SpaceFunction) -> BaseSampler:
    """Return a sampler of Optuna.

    With what the trials came to, the seed alone decides what is tried.
    """
    check_sampler(name, space)
    from optuna.samplers import GPSampler, RandomSampler, TPESampler

    # Of a grid all settings are given, so that no sampler is asked.
    samplers: dict[str, Callable[..., BaseSampler]] = {
        "tpe": TPESampler,
        "random": RandomSampler,
        "gp": GPSampler,
    }
    return samplers[name](seed=seed)
