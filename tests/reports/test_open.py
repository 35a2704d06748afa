"""Opening a report: what is shown is what the run is now, whatever lies in its place."""

import tempfile
import webbrowser
from pathlib import Path

import pytest

from partwise.flows.cli.open import open_report
from partwise.reports.report import write_report
from partwise.runs.documents import run_path

ROW = {"key": "a", "seconds": 1.0}


@pytest.fixture
def opened(monkeypatch, tmp_path) -> list[Path]:
    """The files that a browser was asked to open."""
    files: list[Path] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        webbrowser, "open", lambda url: files.append(Path(url.removeprefix("file://"))) or True
    )
    return files


@pytest.mark.parametrize("evil", ["<script>steal()</script>", "", None])
def test_what_lies_in_the_store_is_never_opened(make_ledger, opened, tmp_path, capsys, evil):
    run = make_ledger.complete([ROW])
    write_report(run)
    ours = run.store.read(run_path("run", "report.html"))
    if evil is not None:
        # With all that ours has, the mark of its generation included.
        run.store.write(run_path("run", "report.html"), ours + evil.encode())
    open_report(run)
    (path,) = opened
    assert path.parent.parent == tmp_path
    assert not path.is_relative_to(run.path)
    assert path.read_bytes() == ours
    assert capsys.readouterr().out == f"report: {path}\n"


def test_a_report_of_an_older_generation_is_not_what_is_opened(make_ledger, opened, capsys) -> None:
    write_report(make_ledger.complete([ROW]))
    open_report(make_ledger.leave([ROW, {"key": "b"}]))
    open_report(make_ledger.complete([ROW, {"key": "b"}, {"key": "c"}]))
    working, ended = opened
    assert "IN PROGRESS" in working.read_text()
    assert '<meta name="partwise-generation" content="3 complete">' in ended.read_text()
    assert working != ended
    assert capsys.readouterr().out == f"report: {working}\nreport: {ended}\n"


def test_without_a_browser_one_is_told_where_it_lies(make_ledger, monkeypatch, capsys) -> None:
    def refuse(url: str) -> bool:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "open", refuse)
    open_report(make_ledger.complete([ROW]))
    assert "run.html  (no browser could be opened here" in capsys.readouterr().out
