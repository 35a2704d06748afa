"""The names of columns: in a sentence, and each only once."""

from collections import Counter
from collections.abc import Sequence

from partwise.errors import ColumnError
from partwise.formatting import did_you_mean, lone_surrogate, some_of


def names_in_words(names: Sequence[str], limit: int = 20) -> str:
    """Column names for a message: at most `limit` of them, then how many more there are."""
    return some_of([repr(name) for name in names], limit)


def columns_there(
    names: Sequence[str], *missing: str, begin: str = "there are", makeable: Sequence[str] = ()
) -> str:
    """Return the end of a sentence about columns that are missing: which are there.

    `makeable` are others that can have been meant.

    Example:
        >>> columns_there(["store", "day"], "stroe")
        "there are 'store', 'day'. Did you mean 'store'?"
    """
    hints = {did_you_mean(name, [*names, *makeable]): None for name in missing[:3]}
    return f"{begin} {names_in_words(names)}.{''.join(hints)}"


def check_unique_names(names: Sequence[str], begin: str = "The source has") -> None:
    """Refuse a name that stands in `names` twice, or is no valid Unicode.

    Raises:
        ColumnError: One is; the sentence begins with `begin`.
    """
    if found := lone_surrogate("".join(names)):
        raise ColumnError(f"{begin} a column whose name holds {found}: rename it.")
    if (twice := _twice(names)) is not None:
        raise ColumnError(f"{begin} more than one column named {twice!r}: rename all but one.")


def check_named_once(names: Sequence[str], what: str) -> None:
    """Raise `ColumnError` when `what`, an argument of a caller's, names a column twice."""
    if (twice := _twice(names)) is not None:
        raise ColumnError(f"{what} names column {twice!r} twice: name it once.")


def _twice(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
