"""With which options an earlier call read files like those at hand."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from partwise.choices import Format
from partwise.sources.files.discovery import format_of_name
from partwise.sources.files.reading_options import values_decided


def earlier_options(
    recipe: Mapping[str, Any], kind: Format, paths: Sequence[str], place: int | None
) -> Mapping[str, Any] | None:
    """Return the options with which an earlier call read files of a kind.

    Of a list of sources they are those of the same files; or those that all files of this kind have
    in common; or those of the same place in the list. `place` is that of the files in a list of as
    many sources; None: in another one, or in none. What is as by default is left out; None: some
    files of this kind were read with other options, and nobody knows which ones these are like.
    """
    if "sources" not in recipe:
        found: Mapping[str, Any] = recipe.get(kind, {})
        return found
    alike = [each for each in _flat(recipe) if _is_of(each, kind)]
    same = [each for each in alike if set(paths) & set(each.get("paths", ()))]
    candidates = [each.get(kind, {}) for each in same or alike]
    if all(values_decided(each) == values_decided(candidates[0]) for each in candidates):
        return candidates[0] if candidates else {}
    if place is None or recipe["sources"][place] not in alike:
        return None
    return dict(recipe["sources"][place].get(kind, {}))


def _flat(recipe: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for each in recipe["sources"]:
        if "sources" in each:
            yield from _flat(each)
        else:
            yield each


def _is_of(recipe: Mapping[str, Any], kind: Format) -> bool:
    """Whether files of a kind were read so, as far as their names and options say it."""
    paths = recipe.get("paths", ())
    said = recipe.get("format") or (kind if kind in recipe else None)
    return said == kind or (said is None and kind in map(format_of_name, paths))
