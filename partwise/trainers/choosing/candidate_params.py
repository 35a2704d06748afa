"""Parameters of single partitions, for all candidates or for one of them by its name."""

from collections.abc import Iterable, Mapping
from typing import Any

from partwise.errors import InputError
from partwise.tables.column_names import names_in_words
from partwise.trainers.ready.naive import LastValue, Mean


def params_of(name: str, named: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a partition that are for one candidate, over those for all."""
    own = params.get(name)
    of_all = {key: value for key, value in params.items() if key not in named}
    return {**of_all, **own} if isinstance(own, dict) else of_all


def check_params(named: Mapping[str, Any], params: Iterable[Mapping[str, Any]]) -> None:
    """Refuse parameters of partitions that a candidate does not know.

    It would fail, or pass over them, on each of these. `Mean` and `LastValue` have none, and what
    is for all does not mean them.
    """
    trainers = {name: getattr(candidate, "trainer", candidate) for name, candidate in named.items()}
    asked: dict[str, set[frozenset[str]]] = {name: set() for name in named}
    for values in params:
        # A table of params has a null where a partition has none of its own.
        given = {name: value for name, value in values.items() if value is not None}
        for name, trainer in trainers.items():
            own = given.get(name, {})
            if not isinstance(own, dict):
                raise InputError(
                    f"params has {own!r:.60} for the candidate {name!r}: give a mapping from its "
                    "parameters to values."
                )
            has_none = isinstance(trainer, Mean | LastValue)
            asked[name].add(frozenset(own if has_none else params_of(name, named, given)))
    for name, trainer in trainers.items():
        for names in asked[name] if hasattr(trainer, "check_settings") else ():
            _check(name, trainer, sorted(names))


def _check(name: str, trainer: Any, names: list[str]) -> None:
    if not names:
        return
    try:
        trainer.check_settings(names)
    except InputError as error:
        raise InputError(
            f"The candidate {name!r} cannot take {names_in_words(names)} of params: {error} What "
            f"is for one candidate stands under its name, as in {{KEY: {{{name!r}: {{...}}}}}}."
        ) from error
