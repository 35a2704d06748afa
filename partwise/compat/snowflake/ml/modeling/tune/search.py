"""How the settings of trials are chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from partwise.errors import InputError
from partwise.tuning.sampler import SamplerName


@dataclass(frozen=True)
class RandomSearch:
    """At random."""

    random_state: int | None = None

    sampler: ClassVar[SamplerName] = "random"


@dataclass(frozen=True)
class GridSearch:
    """All combinations of the lists in the space."""

    sampler: ClassVar[SamplerName] = "grid"


@dataclass(frozen=True)
class BayesOpt:
    """By a Gaussian process of what was found so far; needs torch and scipy.

    Raises:
        InputError: `utility_kwargs`, as the sampler chooses by itself.
    """

    utility_kwargs: Mapping[str, Any] | None = None

    sampler: ClassVar[SamplerName] = "gp"

    def __post_init__(self) -> None:
        """Refuse what cannot be told to the sampler."""
        if self.utility_kwargs is not None:
            raise InputError("utility_kwargs is not taken: leave it out.")


SearchAlgorithm = RandomSearch | GridSearch | BayesOpt
