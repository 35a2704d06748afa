"""`partwise environments`: those that are built on this machine, and which may go."""

from datetime import timedelta
from typing import Any

from cyclopts import App

from partwise.environments.cache import (
    CachedEnvironment,
    collect_environments,
    list_environments,
)
from partwise.flows.cli import output
from partwise.flows.cli.options import Days, Json
from partwise.flows.cli.parsing import COMMON
from partwise.formatting import size

environments = App(
    name="environments",
    help="List the environments that are built on this machine, and remove old ones.",
    default_parameter=COMMON,
)


@environments.command(name="list")
def print_environments(*, as_json: Json = False) -> int:
    """List the environments on this machine, the last used first.

    Args:
        as_json: Print a JSON object for each.
    """
    found = list_environments()
    if as_json:
        return output.print_json(*map(_record, found))
    _print_table(found, "There are no environments on this machine.")
    return 0


@environments.command(name="gc")
def collect(
    *,
    older_than: Days = 30.0,
    dry_run: bool = False,
    as_json: Json = False,
) -> int:
    """Remove environments that nobody has used for some days, and what killed builders left.

    What a process uses stays. A run that needs one later builds it again.

    Args:
        older_than: What was used within so many days stays.
        dry_run: Only say what would be removed.
        as_json: Print a JSON object for each.
    """
    gone = collect_environments(timedelta(days=older_than), dry_run=dry_run)
    if as_json:
        return output.print_json(*map(_record, gone))
    _print_table(gone, "There is nothing to remove.")
    if gone:
        total = size(sum(each.document.size_bytes for each in gone if each.document))
        verb = "would be" if dry_run else "were"
        output.print_line(f"{len(gone)} {verb} removed, {total}.")
    return 0


def _print_table(found: list[CachedEnvironment], nothing: str) -> None:
    if not found:
        output.print_line(nothing)
        return
    rows = []
    for cached in found:
        about = cached.document
        rows.append(
            (
                cached.entry.name,
                about.name if about else "(its builder is at work)" if cached.in_use else "(half)",
                len(about.packages) if about else None,
                size(about.size_bytes) if about else None,
                "yes" if cached.in_use else "no",
                f"{cached.last_used:%Y-%m-%d %H:%M}",
            )
        )
    columns = ("environment", "of", "packages", "size", "in use", "last used (UTC)")
    output.print_table(columns, rows)


def _record(cached: CachedEnvironment) -> dict[str, Any]:
    about = cached.document
    return {
        "environment": cached.entry.name,
        "folder": str(cached.entry),
        "of": about.name if about else None,
        "packages": about.packages if about else {},
        "size_bytes": about.size_bytes if about else None,
        "built_at": about.built_at if about else None,
        "in_use": cached.in_use,
        "last_used": cached.last_used.isoformat(timespec="seconds"),
    }
