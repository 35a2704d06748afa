"""A run as a small table of HTML, for notebooks.

Every text in it is escaped, since keys, names of metrics and messages are others', and masked where
it looks like a secret. Its size is bounded for any run.
"""

import html
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from partwise.formatting import counted, duration, number, shortened, visible
from partwise.outcomes import PartitionStatus
from partwise.redaction import without_secrets
from partwise.runs.ledger import n_metrics, skip_reasons
from partwise.runs.metrics import metric_medians

if TYPE_CHECKING:
    # A run shows itself by this module.
    from partwise.runs.run import Run

MOST_METRICS = 20
MOST_CAUSES = 5
MOST_CHARS = 300


def run_html(run: "Run") -> str:
    """Return what a run came to as a table: status, counts, medians of metrics, failures, place."""
    rows = "".join(
        f'<tr><th style="text-align: left">{name}</th><td style="text-align: left">'
        f"{'<br>'.join(map(_escaped, lines))}</td></tr>"
        for name, lines in _rows(run)
        if lines
    )
    return f"<table><caption>{_escaped(run.run_id)}</caption>{rows}</table>"


def _rows(run: "Run") -> Iterator[tuple[str, list[str]]]:
    taken = ""
    if run.summary is not None:
        seconds = (run.summary.finished_at - run.summary.started_at).total_seconds()
        taken = f" in {duration(seconds)}"
    yield "status", [f"{run.status.value}{taken}"]
    yield "kind", [run.kind]
    yield "keys", [", ".join(column.name for column in run.key_columns)]
    total = counted(sum(run.counts.values()), "partition")
    counts = ", ".join(f"{count:,} {status}" for status, count in sorted(run.counts.items()))
    yield "partitions", [f"{total}: {counts}" if counts else total]
    yield "metrics (medians)", list(_medians(run))
    yield "skipped", [text for text in (skip_reasons(run.ledger),) if text]
    yield "failures", list(_failures(run))
    yield "lies in", [run.path]


def _medians(run: "Run") -> Iterator[str]:
    for name, value in metric_medians(run.ledger, MOST_METRICS).items():
        yield f"{shortened(name, 80)}: {number(value)}"
    if (more := n_metrics(run.ledger) - MOST_METRICS) > 0:
        yield f"and {more:,} more (run.metrics has all)"


def _failures(run: "Run") -> Iterable[str]:
    groups = run.failures()
    for row in groups.slice(0, MOST_CAUSES).to_pylist():
        name = str(row["error_type"] or "").rpartition(".")[2]
        yield f"{row['count']:,} x {name}: {row['error_message'] or ''}"
    if (more := groups.num_rows - MOST_CAUSES) > 0:
        yield f"and {counted(more, 'more kind')} (run.failures() has all)"
    if lost := run.newest.counts.get(PartitionStatus.INTERNAL_ERROR.value, 0):
        yield f"{lost:,} x {PartitionStatus.INTERNAL_ERROR.value}"


def _escaped(text: str) -> str:
    return html.escape(visible(shortened(without_secrets(text), MOST_CHARS)))
