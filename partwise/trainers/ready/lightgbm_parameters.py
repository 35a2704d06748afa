"""What LightGBM calls its parameters: asked of its library, without its Python package.

The package brings scikit-learn, scipy and pandas along where they are installed: 1.3 s before a
run has begun, or is refused, in a process that trains nothing.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIRST_TRY_BYTES = 1 << 20


@cache
def parameter_names() -> Mapping[str, str]:
    """Return LightGBM's first name for each of its parameters, by that name and by its aliases."""
    aliases = json.loads(_dumped_aliases(_library()))
    return {alias: name for name, others in aliases.items() for alias in (name, *others)}


def _library() -> ctypes.CDLL:
    package = find_spec("lightgbm")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder, "lib", "lib_lightgbm.so")
        if path.is_file():
            return ctypes.CDLL(str(path))
    # A build that keeps it elsewhere, as the system's; the package knows where.
    from lightgbm import libpath

    library: ctypes.CDLL = libpath._LIB
    return library


def _dumped_aliases(library: ctypes.CDLL) -> bytes:
    """Return the aliases by parameter, as JSON."""
    size = _FIRST_TRY_BYTES
    while True:
        needed = ctypes.c_int64(0)
        text = ctypes.create_string_buffer(size)
        failed = library.LGBM_DumpParamAliases(ctypes.c_int64(size), ctypes.byref(needed), text)
        if failed:
            raise RuntimeError("LightGBM did not tell the names of its parameters")
        if needed.value <= size:
            return text.value
        size = needed.value
