"""How the command line shows a run: counts, metrics, failures, and the command to type next."""

import json
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from partwise.errors import RunNotFoundError
from partwise.flows.cli.output import STYLES, console, print_fields
from partwise.formatting import duration, key_text, number, shortened
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.exports import exported_as, has_one_model
from partwise.runs.ledger import KEY_PREFIX, candidate_counts, metric_values, skip_reasons
from partwise.runs.portfolio import has_portfolio
from partwise.runs.run import Run
from partwise.runs.trials import best_of, read_trials
from partwise.store.store import Store

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


def print_run(run: Run, more: Mapping[str, Text | str] | None = None) -> None:
    """Print what a run came to: status, counts, medians, failures, seconds, where, what next.

    Args:
        run: The run.
        more: Further lines, by their names.
    """
    out = console()
    title = Text().append(f"{run.run_id}  ", "bold").append(run.status.value, STYLES[run.status])
    if run.summary is not None:
        taken = (run.summary.finished_at - run.summary.started_at).total_seconds()
        title.append(f" in {duration(taken)}")
    out.print(title)
    print_fields({**run_fields(run), **(more or {})})
    command, why = next_command(run)
    out.print(f"next: {command}  ({why})", markup=False)


def run_fields(run: Run) -> dict[str, Text | str]:
    """Return the lines of a run's summary."""
    fields: dict[str, Text | str] = {"partitions": _counts(run)}
    if run.summary is not None:
        if run.summary.remark:
            fields["dry run"] = run.summary.remark
        fields["rows"] = f"{run.summary.rows:,}"
        if run.summary.dropped_rows:
            fields["rows"] += f", and {run.summary.dropped_rows:,} with a null key dropped"
    if medians := metric_medians(run):
        done = run.counts.get(PartitionStatus.DONE.value, 0)
        width = max(map(len, medians))
        lines = [f"{name:<{width}}  {number(value)}" for name, value in medians.items()]
        lines[0] += f"  (medians over {done:,} partitions)"
        fields["metrics"] = "\n".join(lines)
    if won := candidate_counts(run.ledger):
        fields["best"] = ", ".join(f"{name} {count:,}" for name, count in won)
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


def next_command(run: Run) -> tuple[str, str]:
    """Return the command to type after such a run, and what it is for."""
    where = store_option(run)
    name = run.run_id
    match run.status:
        case RunStatus.SUCCESS if run.summary is not None and run.summary.remark:
            return "the same without --sample", "run all partitions"
        case RunStatus.SUCCESS if run.kind == "train" and run.counts.get("DONE"):
            keys = shlex.quote(",".join(run.document.partition_by))
            return (
                f"partwise infer DATA --partition-by {keys} --training-run-id {name}{where}",
                "use the models",
            )
        case RunStatus.SUCCESS if run.kind in ("train-distributed", "tune"):
            return f"partwise infer DATA --training-run-id {name}{where}", "use the model"
        case RunStatus.SUCCESS if run.kind == "export" and run.counts.get("DONE"):
            keys = f"--partition-by {shlex.quote(','.join(run.document.partition_by))} "
            form = next(iter(exported_as(run)), "native")
            models = f"--training-run-id {name} --model-format {form}"
            with suppress(RunNotFoundError):
                keys = "" if has_one_model(run) else keys
            return f"partwise infer DATA {keys}{models}{where}", "use the exports"
        case RunStatus.SUCCESS if run.kind == "infer":
            # In double quotes, so that the shell's single ones need no escape.
            opened = f"Run.open({json.dumps(name)}, {json.dumps(run.store.url)})"
            code = f"print({opened}.predictions())"
            command = shlex.quote(f"from partwise import Run; {code}")
            return f"python -c {command}", "read the predictions"
        case RunStatus.SUCCESS if run.kind == "map" and has_portfolio(run):
            keys = shlex.quote(",".join(run.document.partition_by))
            trains = f"partwise train DATA --partition-by {keys} --trainer ..."
            return f"{trains} --portfolio {name}{where}", "try these settings on each partition"
        case RunStatus.SUCCESS:
            return f"partwise runs show {name}{where}", "read this again"
        case RunStatus.SKIPPED:
            return f"partwise runs show {name} --open{where}", "what was skipped, and why"
        case RunStatus.PARTIAL_FAILURE | RunStatus.FAILURE:
            return f"partwise runs show {name} --failures{where}", "what failed, and where"
        case RunStatus.CANCELLED | RunStatus.IN_PROGRESS:
            return f"partwise runs resume {name}{where}", "go on with what is not done"


def store_option(run: Run) -> str:
    """Return " --store URL" where a command would not find the run's store without it."""
    default = os.environ.get("PARTWISE_STORE", "artifacts")
    if Store.parse(default).url == run.store.url:
        return ""
    return f" --store {shlex.quote(run.store.url)}"


def run_record(run: Run) -> dict[str, Any]:
    """Return a run as a JSON line has it."""
    summary = run.summary
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "status": run.status.value,
        "message": summary and summary.message,
        "partition_by": run.document.partition_by,
        "key_classes": [column.key_class.value for column in run.key_columns],
        "training_run_id": run.document.training_run_id,
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


def metric_medians(run: Run) -> dict[str, float]:
    """Return the median of each metric over the partitions that have it."""
    medians = {}
    for name, _, values in metric_values(run.ledger):
        finite = values[np.isfinite(values)]
        if len(finite):
            medians[name] = float(np.median(finite))
    return medians


def failure_groups(run: Run, most: int = MOST_GROUPS, samples: int = MOST_SAMPLES) -> list[Text]:
    """Return a text for each kind of failure, most frequent first: count, cause, sample keys."""
    groups: dict[tuple[str, str], list[str]] = {}
    causes: dict[tuple[str, str], str] = {}
    for row in failed_rows(run):
        group = (row["status"], row["error_fingerprint"] or row["reason"] or "")
        groups.setdefault(group, []).append(row_key(run, row))
        causes.setdefault(group, cause(row))
    ordered = sorted(groups, key=lambda group: -len(groups[group]))
    texts = []
    for group in ordered[:most]:
        keys = groups[group]
        more = f" and {len(keys) - samples:,} more" if len(keys) > samples else ""
        text = Text().append(f"{len(keys):,} x {causes[group]}", "red")
        texts.append(text.append(f"\n    {'; '.join(keys[:samples])}{more}"))
    if len(ordered) > most:
        texts.append(Text(f"and {len(ordered) - most} more kinds of failure"))
    return texts


def failed_rows(run: Run) -> list[dict[str, Any]]:
    """Return what the ledger of the newest generation has of each partition that went wrong."""
    wrong = pa.array([PartitionStatus.FAILED.value, PartitionStatus.INTERNAL_ERROR.value])
    ledger = run.newest.ledger
    table = ledger.filter(pc.is_in(ledger["status"], value_set=wrong))
    shown_names = [f"{KEY_PREFIX}{column.name}" for column in run.key_columns] + list(_FAILURE)
    rows: list[dict[str, Any]] = table.select(shown_names).to_pylist()
    return rows


def cause(row: Mapping[str, Any]) -> str:
    """Return in one line why a partition is not DONE."""
    if row["error_type"]:
        message = str(row["error_message"] or "").strip()
        first = message.splitlines()[0] if message else ""
        name = row["error_type"].rpartition(".")[2]
        return f"{name}: {shortened(first)}".rstrip(": ")
    return shortened(row["reason"] or row["status"])


def row_key(run: Run, row: Mapping[str, Any]) -> str:
    """Return the key of a ledger's row as `--key` takes it."""
    return key_text([row[f"{KEY_PREFIX}{column.name}"] for column in run.key_columns])


def _counts(run: Run) -> Text:
    total = sum(run.counts.values())
    text = Text(f"{total:,}")
    if run.status is RunStatus.IN_PROGRESS:
        text.append(" committed so far")
    for i, (status, count) in enumerate(sorted(run.counts.items())):
        text.append(": " if i == 0 else ", ").append(f"{count:,} {status}", STYLES.get(status))
    if run.kept:
        text.append(f"  ({run.kept:,} kept from before, {run.executed:,} run)")
    return text
