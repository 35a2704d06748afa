"""The last step of every flow: what a person looks at, in the run's folder and in Prefect's UI."""

import os
import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.formatting import counted, duration, number, shortened
from partwise.outcomes import WRONG
from partwise.reports.causes import Cause, Causes, describe_causes
from partwise.reports.links import REPORTS_URL, report_link
from partwise.reports.report import write_report
from partwise.runs.key_texts import key_reader
from partwise.runs.ledger import metric_values
from partwise.runs.run import Run
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import step

MOST_CAUSES = 3
"""In the summary; the table has more, the report and the ledger have all."""
MOST_METRICS = 20


@step("publish-report", "publish report")
def publish_report(run: Run) -> None:
    """Write report.html, and create the artifacts of the flow run: a summary, and its failures."""
    report = write_report(run)
    if is_direct():
        return
    from prefect.artifacts import create_markdown_artifact, create_table_artifact
    from prefect.runtime import flow_run

    # Of the newest generation: what readers see may be an earlier one, which was complete.
    ledger = run.newest.ledger
    causes = describe_causes(ledger, WRONG, key_reader(ledger))
    create_markdown_artifact(
        key=f"{flow_run.flow_name}-summary",
        markdown=describe_run(run, causes, report, link_of(run)),
        description=f"How the run {run.run_id} ended.",
    )
    if causes.groups:
        create_table_artifact(
            key=f"{flow_run.flow_name}-failures",
            table=failure_rows(causes),
            description=f"Failures of the run {run.run_id}, equal ones in one row, most first.",
        )


def link_of(run: Run) -> str | None:
    """Return a link to the report of a run that a browser follows; None: nobody serves reports."""
    from prefect.settings import PREFECT_API_AUTH_STRING

    base_url, secret = os.environ.get(REPORTS_URL), PREFECT_API_AUTH_STRING.value()
    return report_link(base_url, secret, run) if base_url and secret else None


def describe_run(run: Run, causes: Causes, report: str, link: str | None) -> str:
    """Return how a run ended, as Markdown."""
    summary = run.summary
    if summary is None:
        raise ValueError(f"the run {run.run_id!r} has no summary yet")
    seconds = (summary.finished_at - summary.started_at).total_seconds()
    stages = ", ".join(f"{name} {duration(taken)}" for name, taken in summary.stages.items())
    parts = [
        f"# {run.run_id}: {run.status.value}",
        *([f"**[Open the report]({link})**"] if link else []),
        _text(summary.message),
        _table(("status", "partitions"), sorted(run.counts.items())),
        f"{counted(summary.rows, 'row')} in {duration(seconds)}"
        + (f" ({stages})" if stages else "")
        + ".",
    ]
    metrics = list(_metrics(run.ledger))
    if metrics:
        parts += ["## Metrics", _table(("metric", "lowest", "median", "highest"), metrics)]
    if causes.groups:
        rows = [
            (cause.count, cause.title, shortened(cause.message), keys_of(cause))
            for cause in causes.groups[:MOST_CAUSES]
        ]
        parts += ["## First causes", _table(("partitions", "error", "message", "keys"), rows)]
    where = f"--store {shlex.quote(run.store.url)}"
    parts += [
        "## Where it lies",
        f"- Folder: `{run.path}`",
        # Not as a link: from a page of the web, browsers follow none to a file.
        f"- Report: `{report}`",
        f"- From a shell: `partwise runs show {run.run_id} {where} --open`",
    ]
    return "\n\n".join(parts)


def failure_rows(causes: Causes) -> list[dict[str, Any]]:
    """Return causes for a table: one row for each, with some of its keys."""
    return [
        {
            "partitions": cause.count,
            "error": cause.title,
            "message": shortened(cause.message),
            "keys": keys_of(cause),
            "fingerprint": cause.fingerprint or "",
        }
        for cause in causes.groups
    ]


def keys_of(cause: Cause) -> str:
    """Return some of the keys of a cause, and how many more there are."""
    more = cause.count - len(cause.samples)
    return ", ".join(cause.samples) + (f" and {more:,} more" if more else "")


def _metrics(ledger: pa.Table) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, lowest, median and highest value of each metric."""
    for name, (_, values) in islice(metric_values(ledger), MOST_METRICS):
        finite = values[np.isfinite(values)]
        if len(finite):
            low, middle, high = np.quantile(finite, [0, 0.5, 1])
            yield name, number(low), number(middle), number(high)


def _table(heads: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(_text(str(cell)) for cell in line) + " |" for line in lines)


def _text(text: str) -> str:
    """Return a user's text so that Markdown and HTML leave it as it is."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
