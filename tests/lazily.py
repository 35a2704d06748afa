"""Libraries that take seconds to import, by names that tests may use as if they had been."""

import importlib
from typing import Any


class Lazily:
    """A module that is imported when an attribute of it is first asked for.

    All processes that run tests collect all of them, and TensorFlow alone is five seconds of each.
    Pickled, as a global of a function that a worker is sent, it is the module itself. A function
    that a flow is given has to import by itself: a global like this has no fingerprint.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest, pickle and others look for names of their own on all that they see.
        if attribute.startswith(("_", "pytest")):
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self.name), attribute)

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.name,)
