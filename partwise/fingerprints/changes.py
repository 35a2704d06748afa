"""What differs between two code fingerprints, for people."""

from collections.abc import Mapping


def describe_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Name the parts that differ, as phrases: what can be acted on first.

    Example:
        >>> describe_changes({"library lightgbm": "4.5.0"}, {"library lightgbm": "4.6.0"})
        ['lightgbm is 4.6.0 and was 4.5.0']
    """
    found = []
    for name in sorted(before.keys() | after.keys(), key=_order):
        old, new = before.get(name), after.get(name)
        if old != new:
            found.append(_phrase(name, old, new))
    return found


def _order(name: str) -> tuple[int, str]:
    kinds = ("python", "library", "file", "function", "class", "import", "module")
    kind = name.partition(" ")[0]
    return kinds.index(kind) if kind in kinds else len(kinds), name


def _phrase(name: str, old: str | None, new: str | None) -> str:
    kind, _, rest = name.partition(" ")
    if kind in ("python", "library"):
        shown = rest or "Python"
        if old is None or new is None:
            return f"{shown} {old or new} is {'new' if old is None else 'no longer used'}"
        return f"{shown} is {new} and was {old}"
    if kind == "file":
        what = f"the file {rest} of files="
    elif kind == "import":
        what = f"what {rest.removeprefix('of ')} does on import"
    else:
        what = f"{kind} {rest.replace(':', '.')}" if rest else name
    if old is None or new is None:
        return f"{what} {'came in' if old is None else 'went out'}"
    return f"{what} has changed"
