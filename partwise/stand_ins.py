"""Stand-ins for what brings Prefect along, in the processes that run a user's function.

A function often stands in a module that imports flows or clusters too, which start it elsewhere. In
each child process they would take seconds, and do nothing.
"""

import importlib
import os
from typing import Any

_CHILD = "PARTWISE_CHILD"
"""The environment of a child process, and of all that it starts, has this variable."""


def is_child() -> bool:
    """Whether this process runs a user's function, or was started by one that does."""
    return _CHILD in os.environ


class StandIn:
    """Stands for a name of a module, which is imported when the name is used."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def load(self) -> Any:
        """Return what it stands for."""
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the flow, or make an instance of the class."""
        return self.load()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Who looks at what a module holds, such as pickle, asks for these of anything.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.load(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.load())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[Any, ...]:
        return (self.load(),)

    def __or__(self, other: Any) -> Any:
        return self.load() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.load()

    def __reduce__(self) -> tuple[Any, ...]:
        return load, (self._module, self._name)


def load(module: str, name: str) -> Any:
    """Return a name of a module that brings Prefect along; in a child its stand-in."""
    stand_in = StandIn(module, name)
    return stand_in if is_child() else stand_in.load()
