"""Opening a report that does not lie on this machine, or is not what the run is now."""

import shutil
import tempfile
import webbrowser
from pathlib import Path

import pytest

from partwise.flows.cli.open import open_report
from partwise.reports.report import write_report
from partwise.runs.documents import run_path
from partwise.store.store import Store
from tests.reports.conftest import LedgerMaker

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


def test_a_report_in_a_bucket_is_opened_as_a_copy(s3_store_url, opened, tmp_path, capsys) -> None:
    run = LedgerMaker(Store.parse(f"{s3_store_url}/reports")).complete([ROW])
    assert write_report(run) == f"{s3_store_url}/reports/runs/run/report.html"
    open_report(run)
    (path,) = opened
    assert path.is_relative_to(tmp_path)
    assert path.read_bytes() == run.store.read(run_path("run", "report.html"))
    assert capsys.readouterr().out == f"report: {path}\n"
    shutil.rmtree(path.parent)


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
    run = make_ledger.complete([ROW])
    path = write_report(run)
    open_report(run)
    assert capsys.readouterr().out.startswith(f"report: {path}  (no browser could be opened here")
