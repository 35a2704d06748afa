"""Names of runs that a schedule makes up: templates filled in from when a flow run was due."""

import re
import secrets
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from partwise.errors import RunIdError
from partwise.runs.documents import check_run_id
from partwise.tasks.flow_run import current_flow_run

_PLACE = re.compile(r"\{scheduled(?:\[(?P<zone>[^\[\]{}]+)\])?(?::(?P<format>[^{}]*))?\}")
_DEFAULT_FORMAT = "%Y-%m-%d"


def fill_in(template: str, scheduled: datetime) -> str:
    """Return a run ID with the scheduled time in place of `{scheduled[<time zone>]:<format>}`.

    The zone is a name of the IANA database, UTC where none is given; the format is strftime's,
    %Y-%m-%d where none is given. `scheduled` has a time zone.

    Raises:
        RunIdError: A place cannot be read, or what comes out is not a safe name.

    Example:
        >>> due = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
        >>> fill_in("sales-{scheduled:%Y-%m-%d}", due)
        'sales-2026-11-21'
        >>> fill_in("sales-{scheduled[Europe/Amsterdam]:%Y%m%dT%H%M}", due)
        'sales-20261122T0030'
    """

    def time_of(place: re.Match[str]) -> str:
        try:
            zone = ZoneInfo(place["zone"] or "UTC")
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise RunIdError(
                f"The run_id {template!r} names the time zone {place['zone']!r}, which is not in "
                "the IANA database; write one such as Europe/Amsterdam."
            ) from None
        return scheduled.astimezone(zone).strftime(place["format"] or _DEFAULT_FORMAT)

    filled = _PLACE.sub(time_of, template)
    if "{" in filled or "}" in filled:
        raise RunIdError(
            f"The run_id {template!r} cannot be filled in; what may stand in braces is "
            "{scheduled:%Y-%m-%d} or, with a time zone, {scheduled[Europe/Amsterdam]:%Y-%m-%d}."
        )
    return check_run_id(filled)


def made_up(kind: str, at: datetime, mark: str) -> str:
    """Return a run ID for a caller who gave none: kind, UTC time and a mark.

    Example:
        >>> made_up("train", datetime(2026, 11, 21, 3, 15, tzinfo=UTC), "9f3a04c7")
        'train-20261121-031500-9f3a04c7'
    """
    return f"{kind}-{at.astimezone(UTC):%Y%m%d-%H%M%S}-{mark}"


def new_run_id(kind: str) -> str:
    """Return a run ID that nobody has had."""
    return made_up(kind, datetime.now(UTC), secrets.token_hex(4))


def run_id_of_flow_run(template: str, kind: str) -> str:
    """Return the run ID of the flow run at work: the same however often it is begun again.

    An empty `template`: a name is made up.

    Raises:
        RunIdError: The template cannot be filled in.
    """
    flow_run = current_flow_run()
    if flow_run is None:
        return fill_in(template, datetime.now(UTC)) if template else new_run_id(kind)
    # When it was due, however late it began, and whichever attempt this is.
    due = flow_run.expected_start_time or datetime.now(UTC)
    # The end of the ID, as it is a UUID of version 7, which begins with the time.
    return fill_in(template, due) if template else made_up(kind, due, flow_run.id.hex[-8:])


def reference_of_flow_run(template: str, kind: str) -> str:
    """Return what names a run or models, such as run://night-{scheduled}, with the time filled in.

    Raises:
        RunIdError: The template cannot be filled in.
    """
    scheme, separator, name = template.rpartition("://")
    if "{" not in name:
        return template
    return f"{scheme}{separator}{run_id_of_flow_run(name, kind)}"
