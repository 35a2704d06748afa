"""Which libraries the processes of a run find loaded: what its work names, by type or by code."""

from collections.abc import Iterable
from typing import Any

from partwise.engine.libraries import LIBRARIES
from partwise.trainers.scored import LabelSettings, libraries_of, modules_of

_OURS = "partwise.trainers"


def named_modules(
    function: Any, code_parts: Iterable[str] = (), serdes: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the modules that a work is sure to import, in one order.

    A trainer of ours says itself what it imports. Of other code counts what its fingerprint has
    found, where that is a library of one module: of scikit-learn and SciPy it may use any part, and
    which, the first child tells. A serde is named for the library of its models.
    """
    parts = {part.removeprefix("library ") for part in code_parts}
    found = {*LIBRARIES} & {*parts.difference(libraries_of(function)), *serdes}
    found.update(modules_of(function))
    place = getattr(function, "__module__", None) or ""
    if isinstance(function, LabelSettings) or place.startswith(_OURS):
        found.add(_OURS)
    return tuple(sorted(found))
