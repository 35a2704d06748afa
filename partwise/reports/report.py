"""The report of a run: one HTML file that holds all it shows, for people.

What it shows is taken from the ledger by the other modules here, as plain values; the template
turns them into text, tables and SVG, and escapes every text, since keys and messages are others'.
Everything in it is bounded, so that a run of any size gives a file that a browser opens at once.
"""

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.evaluated import DRIFT
from partwise.errors import InputError
from partwise.formatting import shortened, size
from partwise.outcomes import WRONG, PartitionStatus
from partwise.reports.accuracy import describe_accuracy, trained_label
from partwise.reports.causes import describe_causes
from partwise.reports.contest import describe_contest
from partwise.reports.distributions import Distribution, describe_distribution
from partwise.reports.evaluation import describe_evaluation
from partwise.reports.pages import page_environment
from partwise.reports.proof import DRAWN_METRICS, describe_proof
from partwise.reports.scales import seconds_text
from partwise.reports.series import describe_series
from partwise.reports.settings import describe_settings
from partwise.reports.skew import describe_skew
from partwise.reports.study import describe_study
from partwise.reports.timeline import MOST_LANES, describe_timeline
from partwise.reports.tuning import describe_tuning
from partwise.runs.contents import list_generations
from partwise.runs.documents import REPORT_FILE, run_path
from partwise.runs.key_texts import key_columns_text, key_reader
from partwise.runs.kinds import KINDS, RANK
from partwise.runs.ledger import KEY_PREFIX, candidate_counts, metric_values
from partwise.runs.run import Run

MOST_METRICS = 40  # drawn
MOST_METRIC_ROWS = 300  # in the table of all metrics
MOST_RANKS = 256
MOST_CANDIDATES = 40
MOST_CAUSES = 6  # shown at once; others can be unfolded
KEY_CHARS = 300
_NAME_CHARS = 100
_NOT_DONE = (PartitionStatus.CANCELLED, PartitionStatus.SKIPPED)


def write_report(run: Run) -> str:
    """Write the report of a complete run next to its documents, in place of an older one.

    Args:
        run: The run, as its newest generation left it.

    Returns:
        Where the report lies.

    Raises:
        InputError: The run is not complete; `render_report` shows it as it stands.
        IntegrityError: The ledger is gone or was changed.

    Example:
        >>> write_report(Run.open("sales-2026-11", "/data/models"))  # doctest: +SKIP
        '/data/models/runs/sales-2026-11/report.html'
    """
    if run.summary is None:
        raise InputError(
            f"The run {run.run_id!r} is not complete, and its report is written when it is; "
            "render_report shows it as it stands."
        )
    shown = run
    while True:
        run.store.write(run_path(run.run_id, REPORT_FILE), render_report(shown).encode())
        # This process may have been stopped just there, and a newer generation have written its
        # own: then ours has replaced it. Whoever writes looks afterwards, so the last one to do so
        # leaves that of the newest.
        ended = max(list_generations(run.store, run.run_id).ended, default=0)
        if ended <= shown.generation:
            break
        shown = Run.open(run.run_id, run.store, generation=ended)
    return f"{run.path}/{REPORT_FILE}"


def render_report(run: Run) -> str:
    """Return the report of a run, as it stands: one HTML file without references to others.

    The same complete run gives the same report, for as long as the store has the evaluations
    before it.
    """
    ledger = run.ledger
    key_of = _key_reader(ledger)
    metrics, n_metrics = _metrics(ledger, key_of)
    ranks = _ranks(run, ledger)
    proof = describe_proof(run)
    label = trained_label(run) if run.kind == "infer" else ""
    drawn = [each for each in metrics if not each.is_plain]
    if proof:
        drawn = [each for each in drawn if each.name in DRAWN_METRICS]
    return (
        page_environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            store_word=shlex.quote(run.store.url),
            head=_head(run),
            ranks=ranks,
            failures=describe_causes(ledger, WRONG, key_of),
            not_done=describe_causes(ledger, _NOT_DONE, key_of),
            metrics=drawn[:MOST_METRICS],
            proof=proof,
            metric_rows=metrics,
            n_metrics=n_metrics,
            tuning=describe_tuning(ledger),
            contest=describe_contest(run, key_of),
            evaluation=describe_evaluation(run, key_of),
            series=describe_series(run, label, key_of),
            accuracy=describe_accuracy(run, label, key_of),
            candidates=candidate_counts(ledger)[:MOST_CANDIDATES],
            is_inference=run.kind == "infer",
            memory=_memory(ledger, key_of),
            # Of ranks, which are at work all at the same time, their own table says it all.
            timeline=None if ranks else describe_timeline(ledger),
            most_lanes=MOST_LANES,
            most_causes=MOST_CAUSES,
            skew=describe_skew(ledger, key_of),
            settings=describe_settings(run),
            study=describe_study(run),
        )
    )


def _key_reader(ledger: pa.Table) -> Callable[[int], str]:
    """Return a function that gives the key of a row of the ledger as a person reads it."""
    read = key_reader(ledger)

    def key_of(row: int) -> str:
        text = read(row)
        text = text if len(text) <= KEY_CHARS else f"{text[:KEY_CHARS]}..."
        return text if text.strip() else repr(text)

    return key_of


def _ranks(run: Run, ledger: pa.Table) -> list[tuple[str, ...]]:
    """Return a line for each rank of a gang's run, the first ones of very many."""
    if not KINDS[run.kind].is_gang:
        return []
    lines: list[tuple[str, ...]] = []
    for row in ledger.slice(0, MOST_RANKS).to_pylist():
        rows, seconds, peak = row["rows"], row["seconds"], row["peak_memory_bytes"]
        lines.append(
            (
                str(row[f"{KEY_PREFIX}{RANK}"]),
                row["status"],
                row["host"] or "",
                "" if rows is None else f"{rows:,}",
                "" if seconds is None else seconds_text(seconds),
                "" if peak is None else size(peak),
                shortened(row["error_message"] or row["reason"] or ""),
            )
        )
    return lines


def _metrics(
    ledger: pa.Table, key_of: Callable[[int], str]
) -> tuple[tuple[Distribution, ...], int]:
    """Return the metrics, those first of which one end is known to be bad; and how many exist."""
    found = []
    count = 0
    for name, (rows, values) in metric_values(ledger):
        if name.startswith(DRIFT):
            continue
        count += 1
        if count <= MOST_METRIC_ROWS:
            found.append(describe_distribution(shortened(name, _NAME_CHARS), rows, values, key_of))
    # A stable sort: within both kinds they stay in the order of their names.
    found.sort(key=lambda metric: not any(end.is_worst for end in metric.ends))
    return tuple(found), count


def _memory(ledger: pa.Table, key_of: Callable[[int], str]) -> Distribution | None:
    known = pc.is_valid(ledger["peak_memory_bytes"]).to_numpy(zero_copy_only=False).nonzero()[0]
    if not len(known):
        return None
    values = ledger["peak_memory_bytes"].drop_null().to_numpy().astype(float)
    return describe_distribution("peak memory", known, values, key_of, size)


def _head(run: Run) -> dict[str, Any]:
    """Return the headline: what the run is, how it stands, how long it took."""
    summary = run.summary
    total = sum(run.counts.values())
    began = ended = None
    if summary is not None:
        began, ended = summary.started_at, summary.finished_at
    elif run.generation:
        began = run.read_generation_document().started_at
    stages = {} if summary is None else summary.stages
    order = [status.value for status in PartitionStatus]
    counts = sorted(run.counts.items(), key=lambda item: order.index(item[0]))
    return {
        "kind": KINDS[run.kind].title,
        "status": run.status.value,
        "message": _message(run),
        "key_columns": key_columns_text(run.key_columns),
        "began": began,
        "ended": ended,
        "now": None if summary else datetime.now(UTC),
        "seconds": (ended - began).total_seconds() if began and ended else None,
        "total": total,
        "counts": [(name, count, round(100 * count / total, 2)) for name, count in counts],
        "rows": None if summary is None else summary.rows,
        "dropped": 0 if summary is None else summary.dropped_rows,
        "stages": _shares(list(stages.items())),
    }


def _message(run: Run) -> str:
    """Return what the summary says and remarks, without the status that stands above it."""
    if run.summary is None:
        return "The run is at work, or its process died. This is how far it is."
    text = run.summary.message.removeprefix(f"{run.summary.status.value}: ")
    return f"{text[:2000]} {run.summary.remark}".rstrip()


def _shares(stages: Sequence[tuple[str, float]]) -> list[tuple[str, str, float]]:
    whole = sum(seconds for _, seconds in stages)
    return [
        (name, seconds_text(value), round(100 * value / whole, 2) if whole else 0.0)
        for name, value in stages
    ]
