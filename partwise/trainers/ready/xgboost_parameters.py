"""What XGBoost says of parameters: asked of its library, without its Python package.

XGBoost trains with a misspelled parameter, and warns of it where nobody looks. The package takes a
second to import, in a process that trains nothing.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partwise.errors import InputError
from partwise.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_NOT_ASKED = {
    # Of this machine's hardware, which does not train.
    "device",
    # Lists, which the package writes otherwise, with the names of features.
    "interaction_constraints",
    "monotone_constraints",
}
_NO_KEYS = {"eval_metric", "verbosity", *_NOT_ASKED}
"""Known, and yet no keys of a configuration."""


def check_parameters(params: Mapping[str, Any], names: Collection[str] | None = None) -> None:
    """Refuse parameters that XGBoost would not use, and values that it would refuse.

    What it uses depends on its booster and objective. Looked at are the `names`, which have no
    values yet, or else all params.

    Raises:
        InputError: With the nearest name, or with XGBoost's own words for a value.
    """
    library = _library()
    if library is None:  # a build that keeps it elsewhere, or none: each partition will tell
        return
    known = _NO_KEYS | set(_keys(json.loads(_configuration(library, params))))
    if unknown := [name for name in (params if names is None else names) if name not in known]:
        hints = "".join(did_you_mean(name, known) for name in unknown[:3])
        raise InputError(
            f"XGBoost has no parameter {', '.join(map(repr, unknown))} for this booster and "
            f"objective.{hints}"
        )


@cache
def _library() -> ctypes.CDLL | None:
    package = find_spec("xgboost")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder, "lib", "libxgboost.so")
        if path.is_file():
            library = ctypes.CDLL(str(path))
            library.XGBGetLastError.restype = ctypes.c_char_p
            return library
    return None


def _configuration(library: ctypes.CDLL, params: Mapping[str, Any]) -> bytes:
    """Return as JSON what a Booster makes of parameters."""

    def done(status: int) -> None:
        if status:
            reason = library.XGBGetLastError().decode(errors="replace").splitlines()[0]
            raise InputError(f"XGBoost refuses the parameters: {reason.rpartition('] ')[2]}")

    booster = ctypes.c_void_p()
    done(library.XGBoosterCreate(None, ctypes.c_uint64(0), ctypes.byref(booster)))
    try:
        # Without a feature it configures nothing; and it would print warnings.
        for name, value in [("num_feature", 1), *_pairs(params), ("verbosity", 0)]:
            done(library.XGBoosterSetParam(booster, name.encode(), str(value).encode()))
        length, text = ctypes.c_uint64(), ctypes.c_char_p()
        done(library.XGBoosterSaveJsonConfig(booster, ctypes.byref(length), ctypes.byref(text)))
        return text.value or b"{}"
    finally:
        library.XGBoosterFree(booster)


def _pairs(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give parameters as the package gives them: each of several metrics by itself."""
    for name, value in params.items():
        if name in _NOT_ASKED or value is None:
            continue
        several = name == "eval_metric" and isinstance(value, list)
        yield from ((name, one) for one in (value if several else [value]))


def _keys(found: Any) -> Iterator[str]:
    """Give all keys of nested JSON."""
    if isinstance(found, dict):
        yield from found
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from _keys(each)
