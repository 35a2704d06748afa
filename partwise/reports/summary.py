"""What a run came to, as people read it: counts, metrics, failures, where it lies."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from partwise.catalogs.contest import Contest
from partwise.catalogs.evaluated import DRIFT, Evaluated
from partwise.errors import ArtifactNotFoundError
from partwise.formatting import STYLES, counted, duration, key_text, number, shortened
from partwise.outcomes import WRONG, PartitionStatus, RunStatus
from partwise.reports.causes import Cause, describe_causes
from partwise.reports.fields import field_lines
from partwise.reports.next_command import next_command
from partwise.runs.documents import SAMPLE_SUFFIX
from partwise.runs.key_texts import key_reader
from partwise.runs.ledger import (
    KEY_PREFIX,
    candidate_counts,
    damaged_models,
    n_metrics,
    rows_by_candidate,
    skip_reasons,
)
from partwise.runs.metrics import metric_medians
from partwise.runs.run import Run
from partwise.runs.trials import best_of, read_trials
from partwise.tables.keys.key_classes import KeyClass

_FAILURE = (
    "partition_id",
    "status",
    "attempts",
    "rows",
    "seconds",
    "peak_memory_bytes",
    "finished_at",
    "host",
    "reason",
    "error_type",
    "error_message",
    "error_fingerprint",
)
MOST_GROUPS = 5
MOST_SAMPLES = 3
MOST_METRICS = 100


def summary_text(run: Run) -> str:
    """Return what a run came to, without colours: the lines that the command line prints."""
    command, why = next_command(run)
    lines = [run_title(run), *field_lines(run_fields(run)), Text(f"next: {command}  ({why})")]
    return "\n".join(line.plain for line in lines)


def run_title(run: Run) -> Text:
    """Return the first line of a run's summary: its name, its status, how long it took."""
    title = Text().append(f"{run.run_id}  ", "bold").append(run.status.value, STYLES[run.status])
    if run.summary is not None:
        taken = (run.summary.finished_at - run.summary.started_at).total_seconds()
        title.append(f" in {duration(taken)}")
    return title


def run_fields(run: Run) -> dict[str, Text | str]:
    """Return the lines of a run's summary."""
    fields: dict[str, Text | str] = {"partitions": _counts(run)}
    if run.summary is not None:
        if run.summary.remark:
            fields["dry run" if run.run_id.endswith(SAMPLE_SUFFIX) else "note"] = run.summary.remark
        fields["rows"] = f"{run.summary.rows:,}"
        if run.kind == "evaluate":
            fields["rows"] += " (predictions, and rows of the table with the labels)"
        if run.summary.dropped_rows:
            fields["rows"] += f", and {run.summary.dropped_rows:,} with a null key dropped"
    if medians := metric_medians(run.ledger, MOST_METRICS, without=DRIFT):
        done = run.counts.get(PartitionStatus.DONE.value, 0)
        width = max(map(len, medians))
        lines = [f"{name:<{width}}  {number(value)}" for name, value in medians.items()]
        lines[0] += f"  (medians over {counted(done, 'partition')})"
        more = n_metrics(run.ledger) - MOST_METRICS
        if more > 0 and run.kind != "evaluate":
            lines.append(f"and {more:,} more (run.metrics has all)")
        fields["metrics"] = "\n".join(lines)
    if run.kind == "evaluate" and run.ledger.num_rows:
        fields["verdicts"] = "\n".join(Evaluated.of(run).lines)
    if run.kind == "compare" and run.ledger.num_rows:
        fields["best"] = Contest.of(run).standing
    elif won := candidate_counts(run.ledger):
        if run.kind == "infer":
            rows = rows_by_candidate(run.ledger)
            lines = [f"{name} {count:,} ({counted(rows[name], 'row')})" for name, count in won]
            fields["answered by"] = "\n".join(lines)
        else:
            fields["best"] = ", ".join(f"{name} {count:,}" for name, count in won)
    if run.kind == "infer" and (damaged := damaged_models(run.ledger)):
        fields["damaged"] = (
            f"{counted(damaged, 'model')} could not be read, and the next level answered; "
            "partwise runs verify names what is damaged"
        )
    if run.kind == "tune" and (best := best_of(read_trials(run.ledger))) is not None:
        settings = ", ".join(f"{name} {_setting(each)}" for name, each in best.settings.items())
        value = "" if best.value is None else f" {number(best.value)}"
        fields["best"] = f"trial {best.number}: {best.metric}{value} with {settings or 'its own'}"
    if skipped := skip_reasons(run.ledger):
        fields["skipped"] = skipped
    if failures := failure_groups(run):
        fields["failures"] = Text("\n").join(failures)
    if run.summary is not None and run.summary.stages:
        stages = run.summary.stages.items()
        fields["seconds"] = ", ".join(f"{name} {seconds:.1f}" for name, seconds in stages)
    fields["lies in"] = run.path
    if run.summary is not None:
        with suppress(ArtifactNotFoundError):
            fields["report"] = run.report()
    return fields


def _setting(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number(value) if is_number else json.dumps(value)


def shown_text(run: Run) -> str:
    """Return which generation readers see of a run, and what it holds."""
    if run.shown is None:
        return "what was committed; no generation is complete yet"
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(run.counts.items()))
    return f"generation {run.shown.generation} ({run.shown.status.value}): {counts}"


def failure_groups(run: Run, most: int = MOST_GROUPS, samples: int = MOST_SAMPLES) -> list[Text]:
    """Return a text for each kind of failure, most frequent first: count, cause, sample keys."""
    ledger = run.newest.ledger
    causes = describe_causes(ledger, WRONG, key_reader(ledger), most=most, samples=samples)
    texts = []
    for cause in causes.groups:
        more = f" and {cause.count - samples:,} more" if cause.count > samples else ""
        text = Text().append(f"{cause.count:,} x {_told(cause)}", "red")
        texts.append(text.append(f"\n    {'; '.join(cause.samples)}{more}"))
    if causes.other_groups:
        texts.append(Text(f"and {counted(causes.other_groups, 'more kind')} of failure"))
    return texts


def failed_rows(run: Run) -> list[dict[str, Any]]:
    """Return what the ledger of the newest generation has of each partition that went wrong."""
    ledger = run.newest.ledger
    table = ledger.filter(pc.is_in(ledger["status"], value_set=pa.array(WRONG)))
    shown_names = [f"{KEY_PREFIX}{column.name}" for column in run.key_columns] + list(_FAILURE)
    rows: list[dict[str, Any]] = table.select(shown_names).to_pylist()
    return rows


def _told(cause: Cause) -> str:
    """Return in one line why partitions are not DONE."""
    if cause.title == cause.status:  # without an error
        return shortened(cause.message or cause.status)
    first = cause.message.splitlines()[0] if cause.message else ""
    return f"{cause.title}: {shortened(first)}".rstrip(": ")


def row_key(run: Run, row: Mapping[str, Any]) -> str:
    """Return the key of a ledger's row as `--key` takes it."""
    values = [row[f"{KEY_PREFIX}{column.name}"] for column in run.key_columns]
    pairs = zip(values, run.key_columns, strict=True)
    if any(value is None and column.key_class is KeyClass.STRING for value, column in pairs):
        return str(row["partition_id"])
    return key_text(values)


def _counts(run: Run) -> Text:
    total = sum(run.counts.values())
    text = Text(f"{total:,}")
    if run.status is RunStatus.IN_PROGRESS:
        text.append(" so far")
    for i, (status, count) in enumerate(sorted(run.counts.items())):
        text.append(": " if i == 0 else ", ").append(f"{count:,} {status}", STYLES.get(status))
    if run.kept:
        text.append(f"  ({run.kept:,} kept from before, {run.executed:,} run)")
    return text
