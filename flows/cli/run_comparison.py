"""`partwise runs compare`: did a second run do better than a first one, and where."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from partwise.flows.cli import output
from partwise.flows.cli.options import AnyStore, Force, Json
from partwise.flows.cli.pages import check_page, write_page
from partwise.formatting import STYLES, counted, number, some_of
from partwise.reports.comparison import Comparison, MetricChange, compare_runs
from partwise.runs.run import Run

MOST_METRICS = 100
MOST_KEYS = 5


def compare(
    before: Annotated[str, Parameter(name="A")],
    after: Annotated[str, Parameter(name="B")],
    /,
    *,
    to: Path | None = None,
    in_browser: Annotated[bool, Parameter(name="--open")] = False,
    force: Force = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Compare the metrics of two runs, key by key: for how many B is better than A.

    Which values of a metric are better follows from its name, such as rmse or auc. Of others, where
    B has the lower and where the higher value is counted.

    Args:
        before: The ID of a run.
        after: That of another one, with keys of the same names and classes.
        to: Write it to this .html file as well, with a picture of each metric.
        in_browser: Open that page in a browser.
        as_json: Print a JSON object.
    """
    check_page(to, in_browser=in_browser, as_json=as_json, force=force)
    first, second = Run.open(before, store), Run.open(after, store)
    found = compare_runs(first, second)
    if as_json:
        return output.print_json(_record(first, second, found))
    output.print_fields(
        {
            "A": _run_text(first),
            "B": _run_text(second),
            "partitions": _partitions(found),
            **_other_fields(found),
        }
    )
    _print_metrics(found.metrics)
    if to is not None or in_browser:
        from partwise.reports.comparison_page import render_comparison

        name, page = f"{first.run_id}-{second.run_id}.html", render_comparison(first, second)
        write_page(name, page, to, force=force, in_browser=in_browser)
    return 0


def _run_text(run: Run) -> Text:
    text = Text(f"{run.run_id}  ").append(run.status.value, STYLES[run.status])
    counts = ", ".join(f"{count:,} {status}" for status, count in sorted(run.counts.items()))
    return text.append(f"  {counts or 'no partitions'}")


def _partitions(found: Comparison) -> str:
    lines = [f"{found.in_both:,} in both"]
    for keys, name in ((found.only_before, "A"), (found.only_after, "B")):
        if keys:
            lines.append(f"{len(keys):,} in {name} alone: {some_of(keys, MOST_KEYS, '; ')}")
    return "\n".join(lines)


def _other_fields(found: Comparison) -> dict[str, Text | str]:
    fields: dict[str, Text | str] = {}
    if found.statuses:
        fields["status"] = Text("\n").join(
            Text(f"{count:,} ")
            .append(one, STYLES.get(one))
            .append(" in A, ")
            .append(other, STYLES.get(other))
            .append(" in B")
            for one, other, count in found.statuses
        )
    for names, where in ((found.metrics_only_before, "A"), (found.metrics_only_after, "B")):
        if names:
            fields[f"in {where} alone"] = f"metrics {some_of(names, MOST_KEYS)}"
    return fields


def _print_metrics(metrics: Sequence[MetricChange]) -> None:
    if not metrics:
        output.print_line("No metric has values in both.")
        return
    known = [metric for metric in metrics if metric.better is not None]
    others = [metric for metric in metrics if metric.better is None]
    heads = ("partitions", "median a", "median b", "change")
    if known:
        output.print_line()
        rows = [
            (*_row(each), each.improved, each.worsened, each.equal, f"{each.better} is better")
            for each in known[:MOST_METRICS]
        ]
        output.print_table(("metric", *heads, "b better", "b worse", "equal", ""), rows)
    if others:
        output.print_line()
        rows = [
            (*_row(each), each.lower, each.higher, each.equal) for each in others[:MOST_METRICS]
        ]
        output.print_table(("metric", *heads, "b lower", "b higher", "equal"), rows)
    if left := sum(max(0, len(each) - MOST_METRICS) for each in (known, others)):
        output.print_line(f"and {counted(left, 'more metric')} (--json has all)")


def _row(change: MetricChange) -> tuple[Any, ...]:
    medians = (change.median_before, change.median_after, change.median_change)
    texts = ["" if value != value else number(value) for value in medians]
    return change.metric, change.count, *texts


def _record(before: Run, after: Run, found: Comparison) -> dict[str, Any]:
    record = asdict(found)
    record["metrics"] = [
        {**asdict(each), "improved": each.improved, "worsened": each.worsened, "equal": each.equal}
        for each in found.metrics
    ]
    record["statuses"] = [
        {"before": one, "after": other, "count": count} for one, other, count in found.statuses
    ]
    return {"before": before.run_id, "after": after.run_id, **record}
