"""Attributes that a function has set on a model, such as `model.rmse = 0.3`, in the model's file.

The files of boosting libraries have no place for them, so they stand there as JSON. Values are
plain: what is read back runs no code, and takes the place of nothing that the library has.
"""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from partwise.formatting import plain_value


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
            kept[name] = plain_value(vars(model)[name])
        except (TypeError, ValueError):
            others.append(name)
    return dict(sorted(kept.items())), sorted(others)


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a wrapper that JSON can hold: the others serve training only."""
    plain = {}
    for name, value in settings.items():
        with suppress(TypeError, ValueError):
            plain[name] = plain_value(value)
    return plain


def set_attributes(model: Any, text: str) -> None:
    """Set the attributes of a text, but for names that the library uses by now."""
    for name, value in json.loads(text).items():
        # Whoever writes to a store must not put a value in the place of a method.
        if name.startswith("_") or name in vars(model) or hasattr(type(model), name):
            continue
        setattr(model, name, value)
