"""`partwise runs logs`: what partitions wrote while they ran."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from cyclopts import Parameter

from partwise.flows.cli import output
from partwise.flows.cli.keys import find_partitions
from partwise.flows.cli.options import AnyStore, Count, Json, RunId
from partwise.formatting import counted
from partwise.outcomes import WRONG
from partwise.reports.next_command import program, store_option
from partwise.reports.summary import row_key
from partwise.runs.bundle import LOG_FILENAME
from partwise.runs.run import Run

LIMIT = 10
LINES = 40
"""Of each log of a failed partition."""


def print_logs(
    run_id: RunId,
    /,
    *keys: Annotated[str, Parameter(name="KEY")],
    lines: Count | None = None,
    limit: Count = LIMIT,
    generation: Count | None = None,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Print what partitions wrote while they ran: print, logging, warnings, a traceback.

    Without a key: of those that failed in the newest generation, the last lines of each.

    Args:
        keys: Partitions: their keys, with commas between several columns, or their partition_ids.
        lines: The last lines of each. Default: all of those that are named, 40 of failed ones.
        limit: Without a key: the most partitions.
        generation: Of this one, also where readers see another.
        as_json: Print a JSON object per partition.
    """
    run = Run.open(run_id, store, generation=generation)
    if keys:
        rows, left_out = _named(run, keys), 0
    else:
        run = run.newest
        rows, left_out = _failed(run, limit)
        lines = lines or LINES
    if as_json:
        for row in rows:  # each before the next one is read
            output.print_json(_record(run, row, lines))
        return 0
    if not rows:
        output.print_line(
            f"Nothing failed in the run {run_id}: name a key for what that partition wrote."
        )
        return 0
    for row in rows:
        _print_log(run, row, lines, has_title=len(rows) > 1 or not keys)
    if left_out:
        where = f"{program()} runs show {run_id} --failures{store_option(run)}"
        output.print_line(f"and {left_out:,} more that failed (--limit); {where} lists all")
    return 0


def _named(run: Run, keys: Sequence[str]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(find_partitions(run, keys)))
    places = pc.index_in(pa.array(names), run.ledger["partition_id"])
    rows: list[dict[str, Any]] = run.ledger.take(places).to_pylist()
    return rows


def _failed(run: Run, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the first rows that failed, and how many others did."""
    wrong = pc.is_in(run.ledger["status"], value_set=pa.array(WRONG))
    table = run.ledger.filter(wrong)
    return table.slice(0, limit).to_pylist(), max(0, table.num_rows - limit)


def _print_log(run: Run, row: Mapping[str, Any], lines: int | None, *, has_title: bool) -> None:
    text = _log(run, row)
    kept, cut = _last(text, lines)
    title = f"{row_key(run, row)}  {row['status']}"
    if cut:
        title += f", the last {counted(lines or 0, 'line')} of {lines + cut if lines else cut:,}"
    if has_title:
        output.print_line(f"== {title}")
    if not text:
        why = row["error_message"] or row["reason"]
        wrote = "it wrote nothing" + (f"; {why.strip()}" if why else "")
        if has_title:
            output.print_text(f"{wrote}\n")
        else:
            output.tell(f"{row_key(run, row)}: {wrote}")
        return
    output.print_text(kept if kept.endswith("\n") else f"{kept}\n")


def _record(run: Run, row: Mapping[str, Any], lines: int | None) -> dict[str, Any]:
    keys = {f"key.{column.name}": row[f"key.{column.name}"] for column in run.key_columns}
    kept, cut = _last(_log(run, row), lines)
    names = ("partition_id", "status", "generation", "reason", "error_type", "error_message")
    return {**keys, **{name: row[name] for name in names}, "log": kept, "lines_left_out": cut}


def _log(run: Run, row: Mapping[str, Any]) -> str:
    if not any(artifact["filename"] == LOG_FILENAME for artifact in row["artifacts"]):
        return ""
    content = run.read_artifact_of(row, LOG_FILENAME, row_key(run, row))
    return content.decode(errors="replace")


def _last(text: str, lines: int | None) -> tuple[str, int]:
    """Return the last lines of a text, and how many lines stand before them."""
    all_lines = text.split("\n")
    n_lines = len(all_lines) - (all_lines[-1] == "")
    if lines is None or n_lines <= lines:
        return text, 0
    return "\n".join(all_lines[n_lines - lines :]), n_lines - lines
