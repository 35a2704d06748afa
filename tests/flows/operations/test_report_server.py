"""The server of reports: what opens one, what does not, and what a browser may do with the page."""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from partwise.flows.operations.report_server import ReportServer
from partwise.reports.links import read_link, report_link
from partwise.reports.report import render_report, write_report
from partwise.runs.documents import REPORT_FILE, run_path
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.run_maker import RunMaker

SECRET = "partwise:a secret of this test"
EVIL = "<script>document.title = 'evil'</script>"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ReportServer(0, SECRET) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{started.server_address[1]}"
        started.shutdown()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose store is a folder that other files lie in as well."""
    made = RunMaker(Store.parse(tmp_path / "st&re=1 %2f"))
    made.begin()
    made.commit((EVIL, "DONE", 1.0), ("b", "FAILED", 2.0))
    return made.end(2)


def target_of(run: Run, secret: str = SECRET) -> str:
    return report_link("", secret, run)


def test_a_link_names_its_run_and_store(run: Run) -> None:
    assert read_link(target_of(run), SECRET) == ("run", {"url": run.store.url})
    there = Store.parse("s3://b/p", endpoint_url="https://s3.example.org", region="eu-1")
    elsewhere = Run(there, run.document, run._view)
    assert read_link(target_of(elsewhere), SECRET) == (
        "run",
        {"url": "s3://b/p", "endpoint_url": "https://s3.example.org", "region": "eu-1"},
    )
    # The password is not in it, nor a text of which one that is weak could be guessed quickly.
    assert "secret" not in target_of(run)


def test_every_change_to_a_link_is_seen(run: Run) -> None:
    link = target_of(run)
    for position in range(len(link)):
        for changed in (link[:position], link[:position] + "x" + link[position:]):
            assert read_link(changed, SECRET) is None, changed
    assert read_link(target_of(run, "partwise:another"), SECRET) is None
    assert read_link(link + "&url=/etc", SECRET) is None


def test_nothing_but_a_link_opens_anything(server: str) -> None:
    for target in (
        "/",
        "/runs/",
        "/runs/run",
        "/runs/../../../../etc/passwd",
        "//etc/passwd",
        "/.partwise/password",
        "/runs/run?url=/tmp&signature=",
        "/runs/run?url=/tmp&signature=%00é",
    ):
        answer = httpx.get(f"{server}{target}")
        assert answer.status_code == 404, target
        assert "This address opens no report." in answer.text
        assert httpx.post(f"{server}{target}").status_code == 501


@pytest.mark.slow  # a process for each page
def test_a_report_is_made_anew_and_shown_with_no_rights(server: str, run: Run) -> None:
    write_report(run)
    # Whoever can write to the store puts a page of theirs in its place, and names files.
    run.store.write(run_path("run", REPORT_FILE), EVIL.encode())
    answer = httpx.get(f"{server}{target_of(run)}", timeout=60)
    assert answer.status_code == 200
    assert answer.text == render_report(run)
    assert EVIL not in answer.text
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"} <= set(policy)
    # Of an origin of its own, without scripts.
    assert "sandbox" in policy
    assert not re.search("script-src|connect-src|allow-", answer.headers["content-security-policy"])
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers
    assert SECRET not in answer.text

    remove_run(run.store, "run")
    gone = httpx.get(f"{server}{target_of(run)}", timeout=60)
    assert gone.status_code == 404
    assert "was removed" in gone.text


ATTACKS = {
    "a method of tags": b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n",
    "a form": b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n<script>x",
    "a preflight": b"OPTIONS * HTTP/1.1\r\nOrigin: https://evil.example\r\n\r\n",
    "bytes": b"\x00\xff\xfe<script> x y z\r\n\r\n",
    "another version": b"GET /<script> HTTP/9.9\r\n\r\n",
    "a long line": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"x: <script>\r\n" * 300 + b"\r\n",
    "a header within the path": b"GET /%0d%0aSet-Cookie:x HTTP/1.1\r\n\r\n",
    "a broken address": b"GET http://[::1 HTTP/1.1\r\n\r\n",
    "another host": b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_whatever_is_sent_is_answered_by_a_page_in_which_nothing_runs(
    server: str, attack: str
) -> None:
    host, port = server.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(ATTACKS[attack])
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        # What it does not read any more ends the connection, at times before its answer is read.
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(1 << 16):
                answer += more
    head, _, page = answer.partition(b"\r\n\r\n")
    assert b"200 OK" not in head
    assert b"Set-Cookie" not in head
    assert b"<script" not in (page or answer)
    # Python answers what has no version with a page alone, as HTTP/0.9 was.
    assert not head.startswith(b"HTTP/1") or b"default-src 'none'" in head
