"""Logs of services that go on for long."""

import os
import threading
from pathlib import Path

import pytest

from partwise.flows.operations import report_server, service_logs
from partwise.flows.operations.report_server import ReportServer
from tests.flows.operations.project import wait_until


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_logs, "MOST_BYTES", 1000)
    monkeypatch.setattr(report_server, "LOOKS_AT_LOGS_S", 0.0)


def test_a_long_log_begins_anew_while_it_is_written_and_keeps_what_it_had(tmp_path: Path) -> None:
    log, other = tmp_path / "worker.log", tmp_path / "server.log"
    other.write_text("short\n")
    with open(log, "a") as writer:
        for line in ("first\n" * 300, "second\n" * 300):
            writer.write(line)
            writer.flush()
            service_logs.cut_long_logs(tmp_path)
            assert log.stat().st_size == 0
            assert (tmp_path / "worker.log.1").read_text() == line
        writer.write("third\n")
    assert log.read_text() == "third\n"
    assert (tmp_path / "worker.log.1").stat().st_mode & 0o077 == 0
    assert sorted(os.listdir(tmp_path)) == ["server.log", "worker.log", "worker.log.1"]


def test_the_log_of_a_disk_that_is_full_is_left(tmp_path: Path, monkeypatch) -> None:
    log = tmp_path / "worker.log"
    log.write_text("line\n" * 300)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service_logs.shutil, "copyfileobj", full)
    service_logs.cut_long_logs(tmp_path)
    assert log.stat().st_size == 1500


def test_the_server_of_reports_looks_at_them(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("line\n" * 300)
    with ReportServer(0, "secret", tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            wait_until(lambda: log.stat().st_size == 0, "the log to begin anew")
        finally:
            server.shutdown()
            thread.join()
    assert (tmp_path / "server.log.1").stat().st_size == 1500
