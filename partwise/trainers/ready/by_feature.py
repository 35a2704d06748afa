"""Parameters of boosted trees that say something of each feature: by its name, or by its place.

XGBoost and LightGBM write them in different forms, and each takes some of the other's amiss: of a
list XGBoost breaks off in its own code, and LightGBM takes every name for the first feature.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from partwise.errors import InputError
from partwise.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MONOTONE = "monotone_constraints"
INTERACTION = "interaction_constraints"
_NO_LIST = "{} is {!r}: give a list, or the names of features."


def by_place(params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return parameters with the constraints of features as lists of numbers and of places.

    Constraints are mappings by name, lists in the order of the features, or such lists as text.
    """
    found = dict(params)
    if found.get(MONOTONE) is not None:
        found[MONOTONE] = _directions(found[MONOTONE], names)
    if found.get(INTERACTION) is not None:
        found[INTERACTION] = _groups(found[INTERACTION], names)
    return found


def _directions(given: Any, names: Sequence[str]) -> list[int]:
    if hasattr(given, "keys"):
        for name in given:
            _place(MONOTONE, name, names)
        values = [given.get(name, 0) for name in names]
    elif not hasattr(given, "__iter__"):
        raise InputError(_NO_LIST.format(MONOTONE, given))
    else:
        # As text XGBoost has "(1,-1)", and LightGBM "1,-1": both are taken for either library.
        values = _read(MONOTONE, given, f"[{given.strip('()[] ')}]") if _text(given) else [*given]
        if len(values) != len(names):
            raise InputError(
                f"{MONOTONE} has {len(values)} values, and there are {len(names)} features, in "
                f"this order: {', '.join(names)}. Name those that are constrained: "
                f'{{"{names[0]}": 1}}.'
            )
    if wrong := [value for value in values if value not in (-1, 0, 1)]:
        raise InputError(
            f"{MONOTONE} has {wrong[0]!r} among its values: take 1 for predictions that rise with "
            "a feature, -1 for those that fall, and 0 for any."
        )
    return [int(value) for value in values]


def _groups(given: Any, names: Sequence[str]) -> list[list[int]]:
    groups = _read(INTERACTION, given, f"[{given}]") if _text(given) else given
    # LightGBM's text has no brackets around all groups, and XGBoost's has.
    if _text(given) and len(groups) == 1 and _are_lists(groups[0]):
        groups = groups[0]
    if not _are_lists(groups):
        raise InputError(
            f"{INTERACTION} is {given!r}: give lists of features that may be combined, as in "
            f'[["{names[0]}", "{names[-1]}"]].'
        )
    return [[_place(INTERACTION, each, names) for each in group] for group in groups]


def _are_lists(given: Any) -> bool:
    kinds = (list, tuple)
    return isinstance(given, kinds) and all(isinstance(each, kinds) for each in given)


def _place(parameter: str, given: Any, names: Sequence[str]) -> int:
    if isinstance(given, int) and 0 <= given < len(names):
        return given
    if given not in names:
        raise InputError(
            f"{parameter} names {given!r}, which is none of the features: "
            f"{', '.join(names)}.{did_you_mean(str(given), names)}"
        )
    return names.index(given)


def _text(given: Any) -> bool:
    return isinstance(given, str)


def _read(parameter: str, given: str, text: str) -> list[Any]:
    try:
        values: list[Any] = json.loads(text)
    except ValueError as error:
        raise InputError(_NO_LIST.format(parameter, given)) from error
    return values
