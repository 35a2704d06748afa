"""How the command line prints a run: as a summary for people, as a JSON line for programs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.text import Text

from partwise.flows.cli.output import console, print_fields, print_line
from partwise.reports.next_command import next_command
from partwise.reports.summary import run_fields, run_title
from partwise.runs.run import Run


def print_run(run: Run, more: Mapping[str, Text | str] | None = None) -> None:
    """Print what a run came to: status, counts, medians, failures, seconds, where, what next.

    `more` are further lines, by their names.
    """
    console().print(run_title(run))
    print_fields({**run_fields(run), **(more or {})})
    command, why = next_command(run)
    print_line(f"next: {command}  ({why})")


def run_record(run: Run) -> dict[str, Any]:
    """Return a run as a JSON line has it."""
    summary = run.summary
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "status": run.status.value,
        "message": summary and summary.message,
        "remark": summary and summary.remark,
        "partition_by": run.document.partition_by,
        "key_classes": [column.key_class.value for column in run.key_columns],
        "training_run_id": run.document.training_run_id,
        "models": run.document.models,
        "generation": run.generation,
        "shown_generation": run.shown and run.shown.generation,
        "at_work": run.at_work and asdict(run.at_work),
        "created_at": run.document.created_at,
        "started_at": summary and summary.started_at,
        "finished_at": summary and summary.finished_at,
        "counts": run.counts,
        "kept": run.kept,
        "executed": run.executed,
        "rows": summary and summary.rows,
        "stages": summary and summary.stages,
        "path": run.path,
    }
