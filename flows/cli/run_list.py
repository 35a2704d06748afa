"""`partwise runs list`: the runs in a store, or those of them that one looks for."""

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Any, Literal

from partwise.flows.cli import output, run_output
from partwise.flows.cli.moments import moment_of
from partwise.flows.cli.options import AnyStore, Count, Json
from partwise.outcomes import PartitionStatus
from partwise.runs.contents import list_runs
from partwise.runs.kinds import RunKind
from partwise.runs.run import Run
from partwise.store.store import Store

READERS = 8
Status = Literal[
    "SUCCESS", "PARTIAL_FAILURE", "FAILURE", "SKIPPED", "CANCELLED", "IN_PROGRESS", "UNREADABLE"
]

_ALWAYS = (PartitionStatus.DONE, PartitionStatus.SKIPPED, PartitionStatus.FAILED)
"""Partitions of these statuses are counted in a column of their own, also where there are none."""


def print_runs(
    *,
    name: str = "*",
    kind: tuple[RunKind, ...] = (),
    status: tuple[Status, ...] = (),
    since: str = "",
    limit: Count = 50,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """List the runs in a store, newest first.

    A run that cannot be read is UNREADABLE, and the reason stands below; the others are listed all
    the same, and the exit code stays 0.

    Args:
        name: Those whose ID is of this pattern, such as "nightly-*".
        kind: Those of this kind; may be repeated.
        status: Those that stand so; may be repeated.
        since: Those that were begun since then: 2026-11-20, 2026-11-20T18:00 (UTC), or 90min, 12h,
            7d, 2w ago.
        limit: The most runs to list.
        as_json: Print a JSON object per run.
    """
    first = moment_of(since, "--since") if since else None
    opened = Store.of(store)
    there = list_runs(opened)
    names = [each for each in there if fnmatchcase(each, name)]
    with ThreadPoolExecutor(READERS) as readers:
        records = list(readers.map(lambda each: _record(each, opened), names))
    records = [each for each in records if _is_wanted(each, kind, status, first)]
    records.sort(key=_began, reverse=True)
    if as_json:
        return output.print_json(*records[:limit])
    if not there:
        output.print_line(f"There are no runs in {opened.url}.")
        return 0
    if not records:
        how_many = "The only run" if len(there) == 1 else f"None of the {len(there):,} runs"
        verb = "is not" if len(there) == 1 else "is"
        output.print_line(f"{how_many} in {opened.url} {verb} one of those.")
        return 0
    _print_table(records[:limit])
    for record in records[:limit]:
        if "error" in record:
            output.print_line(f"{record['run_id']}: {record['error']}")
    if len(records) > limit:
        output.print_line(f"and {len(records) - limit:,} older (--limit)")
    return 0


def _is_wanted(
    record: Mapping[str, Any],
    kinds: Sequence[RunKind],
    statuses: Sequence[Status],
    since: dt.datetime | None,
) -> bool:
    """Whether a run is listed; an empty tuple and None are fulfilled by all."""
    began = record["started_at"] or record["created_at"]
    return (
        (not kinds or record["kind"] in kinds)
        and (not statuses or record["status"] in statuses)
        and (since is None or (began is not None and began >= since))
    )


def _record(run_id: str, store: Store) -> dict[str, Any]:
    """Return a run as a JSON line has it, also where its documents cannot be read."""
    try:
        return run_output.run_record(Run.open(run_id, store))
    except Exception as error:
        # Whatever is wrong with one run, the others are to be seen.
        none = dict.fromkeys(("kind", "created_at", "started_at"))
        why = output.why_unreadable(error)
        return {"run_id": run_id, **none, "status": "UNREADABLE", "error": why}


def _began(record: Mapping[str, Any]) -> str:
    return str(record["started_at"] or record["created_at"] or "")


def _print_table(records: Sequence[Mapping[str, Any]]) -> None:
    seen = {name for record in records for name in record.get("counts", {})}
    statuses = [each.value for each in PartitionStatus if each in _ALWAYS or each.value in seen]
    heads = [status.lower().replace("_", " ") for status in statuses]
    rows = []
    for record in records:
        counts = record.get("counts", {})
        by_status = [counts.get(status, 0) for status in statuses]
        head = (record["run_id"], record["kind"], record["status"], sum(counts.values()))
        rows.append((*head, *by_status, record["started_at"] or record["created_at"]))
    output.print_table(("run", "kind", "status", "partitions", *heads, "began (UTC)"), rows)
