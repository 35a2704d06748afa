"""What `partwise migrate` reads in the files of the layer is what is there when it is imported."""

import importlib
import inspect
import pkgutil
from typing import Any

from partwise import compat
from partwise.migration import layer
from partwise.migration.names import known_names


def imported(path: str) -> Any:
    """Return what stands at a path of the layer; None: nothing."""
    names = path.split(".")
    for end in range(len(names), 0, -1):
        try:
            found = importlib.import_module(f"{layer.PACKAGE}.{'.'.join(names[:end])}")
        except ModuleNotFoundError:
            continue
        for name in names[end:]:
            kinds = getattr(found, "__mro__", ())
            is_field = any(name in getattr(kind, "__annotations__", ()) for kind in kinds)
            found = getattr(found, name, True if is_field else None)
        return found
    return None


def test_names_and_arguments_are_those_that_an_import_finds() -> None:
    arguments = 0
    for row in known_names().rows:
        path = f"{row.module}.{row.name}".removesuffix(".*")
        found = imported(path)
        assert layer.has(path) is (found is not None), path
        if callable(found):
            taken = inspect.signature(found).parameters
            for name in row.parameters or ():
                assert layer.takes(path, name) is (name in taken), f"{path}({name}=)"
                arguments += 1
    assert arguments > 200


def test_everything_public_of_each_class_of_the_layer_is_found() -> None:
    """Not only what the table names: methods by other names, and those of base classes."""
    found = 0
    for module in pkgutil.walk_packages(compat.__path__, f"{layer.PACKAGE}."):
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and kind.__module__ == module.name:
                path = f"{module.name}.{kind.__qualname__}".removeprefix(f"{layer.PACKAGE}.")
                own = [each for each in kind.__mro__ if each.__module__.startswith("partwise")]
                for name in {name for each in own for name in vars(each) if name[0] != "_"}:
                    assert layer.has(f"{path}.{name}"), f"{path}.{name}"
                    found += 1
    assert found > 200
