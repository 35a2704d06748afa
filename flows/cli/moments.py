"""Moments as a person types them: 2026-11-20, 2026-11-20T18:00 (UTC), or 90min, 12h, 7d, 2w ago."""

import datetime as dt
import re

from partwise.errors import InputError

_AGE = re.compile(r"(\d+)\s*(min|h|d|w)")
_FIRST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""Nothing is older; years of fewer than four digits are not written as others are."""
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_of(text: str, option: str) -> dt.datetime:
    """Return the moment that the text of an option stands for: itself, or so long ago.

    Raises:
        InputError: It is neither a moment nor an age.
    """
    if age := _AGE.fullmatch(text.strip()):
        try:
            moment = dt.datetime.now(dt.UTC) - dt.timedelta(**{_UNITS[age[2]]: int(age[1])})
        except OverflowError:
            moment = _FIRST
        return max(_FIRST, moment)
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InputError(
            f"{option} {text!r} is not a moment: write 2026-11-20, 2026-11-20T18:00, or an age "
            "such as 90min, 12h, 7d or 2w."
        ) from error
    return max(_FIRST, moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC))
