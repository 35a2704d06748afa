"""One seed per partition for the process's sources of chance: `random`, `numpy.random` and torch.

Many functions import torch in their body. The first partition of a process that does so would meet
torch's own seed, and its model would depend on which partitions ran before it.
"""

import random
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np

SEEDED_ON_IMPORT = "torch"


class Seeding(MetaPathFinder):
    """Seeds sources of chance, and torch at once when it is imported later."""

    def __init__(self) -> None:
        self._seed = 0
        sys.meta_path.insert(0, self)

    def seed_all(self, seed: int) -> None:
        """Seed `random`, `numpy.random`, and torch where it is imported."""
        self._seed = seed
        random.seed(seed)
        np.random.seed(seed)
        _seed_torch(sys.modules.get(SEEDED_ON_IMPORT), seed)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find torch as the other finders do, and have it seeded once it is loaded."""
        if fullname != SEEDED_ON_IMPORT:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_seed(module: ModuleType) -> None:
                load(module)
                _seed_torch(module, self._seed)

            # On the loader itself: a loader around it would hide its other methods.
            spec.loader.exec_module = load_and_seed  # type: ignore[method-assign]
        return spec


def _seed_torch(torch: ModuleType | None, seed: int) -> None:
    # A module that is still being imported, or another one of the name, has no such function.
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(seed)
