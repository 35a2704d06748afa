"""Attributes that a function has set on a model, such as `model.rmse = 0.3`, in the model's file.

The files of boosting libraries have no place for them, so they stand there as JSON. Values are
plain: what is read back runs no code, and takes the place of nothing that the library has.
"""

import json
from collections.abc import Set as AbstractSet
from typing import Any

_SCALARS = (str, int, float, type(None))  # a bool is an int
_DEEPEST = 50


def own_attributes(model: Any, of_library: AbstractSet[str]) -> tuple[dict[str, Any], list[str]]:
    """Return what a function has set on a model: plain values by name, and names of the others.

    `of_library` are the names that the library itself sets. Others that begin with "_" are its own
    too; they are among these so that in most models nothing need be looked at.
    """
    if vars(model).keys() <= of_library:
        return {}, []
    kept: dict[str, Any] = {}
    others: list[str] = []
    for name in vars(model).keys() - of_library:
        if name.startswith("_"):
            continue
        try:
            if hasattr(type(model), name):
                raise TypeError(f"{name} would hide what the class has")
            kept[name] = _plain(vars(model)[name])
        except (TypeError, ValueError):
            others.append(name)
    return dict(sorted(kept.items())), sorted(others)


def attributes_text(attributes: dict[str, Any]) -> str:
    """Return attributes as a text of one line, in ASCII."""
    return json.dumps(attributes)


def set_attributes(model: Any, text: str) -> None:
    """Set the attributes of a text, but for names that the library uses by now."""
    for name, value in json.loads(text).items():
        # Whoever writes to a store must not put a value in the place of a method.
        if name.startswith("_") or name in vars(model) or hasattr(type(model), name):
            continue
        setattr(model, name, value)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON holds it; TypeError or ValueError: it holds no such value."""
    if isinstance(value, _SCALARS):
        return value
    if depth > _DEEPEST:
        raise ValueError("it is too deep")
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a mapping of JSON has texts as keys")
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    # A scalar of numpy; the only element of an array would lose that it was one.
    if getattr(value, "shape", None) == () and isinstance(plain := value.item(), _SCALARS):
        return plain
    raise TypeError(f"JSON holds no {type(value).__name__}")
