"""Functions and trainers by name: "package.module:function"."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from partwise.errors import FunctionError

_NAME = r"[A-Za-z][A-Za-z0-9_]*"
_FUNCTION = re.compile(rf"(?P<module>{_NAME}(\.{_NAME})*):(?P<function>{_NAME})")


def resolve_trainer(trainer: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a train function or trainer, importing it where it is named.

    Args:
        trainer: "package.module:function", or what can be called already. Modules are looked for
            in the current directory too, but only after all other places, and the directory stays
            in `sys.path` for what the function imports later.

    Raises:
        FunctionError: It cannot be found or called, or its name is private.

    Example:
        >>> resolve_trainer("partwise.trainers:default_predict").__name__
        'default_predict'
    """
    found: Any = trainer
    name = repr(trainer)
    if isinstance(trainer, str):
        match = _FUNCTION.fullmatch(trainer)
        if match is None:
            raise FunctionError(
                f"{name} does not name a train function: write 'package.module:function', with no "
                "name that starts with an underscore."
            )
        found = import_named(name, match["module"], match["function"])
    if isinstance(found, type) or not callable(found):
        raise FunctionError(
            f"{name} is a {type(found).__name__}: give a function of (data, context), or a trainer "
            "with its settings."
        )
    function: Callable[..., Any] = found
    return function


def check_takes(function: Callable[..., Any], *arguments: str) -> None:
    """Refuse a function that cannot be called with so many arguments in their order."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of what is written in C, it may be unknown
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise FunctionError(
            f"The function {name}{signature} cannot be called with ({', '.join(arguments)})."
        ) from None


def import_named(name: str, module_name: str, function: str) -> Any:
    """Return what a module has under a name; see `resolve_trainer` for where it is looked for.

    Raises:
        FunctionError: The module cannot be imported, or has nothing of that name.
    """
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.append(directory)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise FunctionError(f"The module of {name} cannot be imported ({reason}).") from error
    try:
        return getattr(module, function)
    except AttributeError:
        # A folder without __init__.py, and what is built in, have none.
        file = getattr(module, "__file__", None)
        place = f" ({file})" if file else ""
        raise FunctionError(f"The module {module_name!r}{place} has no {function!r}.") from None
