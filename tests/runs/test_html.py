"""What a notebook, a console and pandas show of a run."""

import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from partwise.errors import ArtifactNotFoundError
from partwise.outcomes import CANCELLED
from partwise.reports.report import write_report
from partwise.runs.html import run_html
from partwise.runs.run import Run

HOSTILE = '<script>alert(1)</script>\x1b[2J&\u202e"'


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.names.add(tag)

    def handle_data(self, data) -> None:
        self.text += f"{data}\n"


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.names <= {"table", "caption", "tr", "th", "td", "br"}
    return tags


def mixed(make_run) -> Run:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0), ("b", "SKIPPED", 2.0), (HOSTILE, "FAILED", 4.0))
    return make_run.end(3)


def test_the_repr_has_the_counts(make_run) -> None:
    run = mixed(make_run)
    assert repr(run) == (
        f"Run('run', map, PARTIAL_FAILURE, 1 DONE, 1 FAILED, 1 SKIPPED, {run.path!r})"
    )
    make_run.begin("overwrite")
    assert repr(make_run.open()).startswith("Run('run', map, IN_PROGRESS, 1 DONE, 1 FAILED")


def test_the_repr_of_a_run_that_has_no_end_reads_no_ledger(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    run = make_run.open()
    assert repr(run) == f"Run('run', map, IN_PROGRESS, {run.path!r})"
    assert "ledger" not in vars(run)


def test_a_notebook_shows_what_came_of_it_and_runs_nothing(make_run) -> None:
    make_run.metric = HOSTILE
    shown = parsed(mixed(make_run)._repr_html_())
    assert "3 partitions: 1 DONE, 1 FAILED, 1 SKIPPED" in shown.text
    assert "1 x ValueError: bad <script>alert(1)</script>\u241b[2J&\ufffd" in shown.text
    assert "1 x too few rows" in shown.text
    assert re.search(r"<script>alert\(1\)</script>.*: 2", shown.text)


def test_secrets_in_messages_are_masked(make_run, monkeypatch) -> None:
    make_run.begin()
    secret = "postgresql://anna:sesame@example.org/db"
    make_run.commit((secret, "FAILED", 1.0))
    page = make_run.end(1)._repr_html_()
    assert "sesame" not in page
    assert "example.org" in page


def test_its_size_is_bounded(make_run) -> None:
    make_run.begin()
    for number in range(30):
        make_run.metric = f"{'m' * 1000}{number}"
        make_run.commit((f"{'k' * 1000}{number}", "FAILED", 1.0))
    page = make_run.end(30)._repr_html_()
    assert len(page) < 10_000
    assert "and 10 more (run.metrics has all)" in page


def test_the_median_of_very_large_values_is_between_them(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.2e308), ("b", "DONE", 1.4e308))
    assert "value: 1.3e+308" in make_run.end(2)._repr_html_()


def test_one_partition_is_not_one_partitions(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "CANCELLED", 1.0))
    run = make_run.end(1, CANCELLED)
    assert "1 partition: 1 CANCELLED" in run_html(run)


def test_where_it_cannot_be_read_the_repr_is_shown(make_run) -> None:
    run = mixed(make_run)
    run.store.delete("runs/run/generations/0001.ledger.parquet")
    assert Run.open("run", run.store)._repr_html_() is None


def test_partitions_and_metrics_become_a_frame(make_run) -> None:
    frame = mixed(make_run).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.set_index("key").loc["a", ["status", "value"]].tolist() == ["DONE", 1.0]
    assert len(frame) == 3


def test_where_the_report_lies(make_run) -> None:
    run = mixed(make_run)
    with pytest.raises(ArtifactNotFoundError, match=r"has no report\.html: write_report"):
        run.report()
    assert write_report(run) == run.report()
