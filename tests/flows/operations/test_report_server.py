"""The server of reports: what opens one, what does not, and what a browser may do with the page."""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from partwise.flows.operations import report_server
from partwise.flows.operations.report_server import ReportServer
from partwise.reports.links import read_link, report_link
from partwise.reports.report import render_report, write_report
from partwise.runs.documents import REPORT_FILE, run_path
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.own_cluster import wait_for
from tests.run_maker import RunMaker
from tests.strangers import STRANGERS, strangers_at

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


FOREIGN = {
    "another page": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a page without an origin": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "a name that leads here": {"Host": "evil.example:4201", "Sec-Fetch-Site": "same-origin"},
    "no browser": {"Host": ""},
    "a proxy": {"X-Forwarded-Host": "evil.example", "X-Original-URL": "/.partwise/password"},
}


@pytest.mark.parametrize("who", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_no_page_of_others_opens_or_may_read_anything(
    server: str, run: Run, who: str, method: str
) -> None:
    wrong = target_of(run, "partwise:a guess")
    answer = httpx.request(
        method,
        f"{server}{wrong}",
        headers={**FOREIGN[who], "Content-Type": "application/x-www-form-urlencoded"},
        content=b"run_id=run" if method != "TRACE" else None,
    )
    assert answer.status_code == (404 if method == "GET" else 501)
    named = {name for name in answer.headers if name.startswith("access-control-")}
    assert named | {"set-cookie", "location"} & answer.headers.keys() == set()
    assert "evil" not in answer.text


@pytest.mark.slow  # a process for each page
def test_to_open_a_link_changes_nothing(server: str, run: Run) -> None:
    def files() -> dict[str, bytes]:
        return {path: run.store.read(path) for path in run.store.list("")}

    before = files()
    for headers in FOREIGN.values():
        answer = httpx.get(f"{server}{target_of(run)}", headers=headers, timeout=60)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert httpx.post(f"{server}{target_of(run)}", timeout=60).status_code == 501
    assert files() == before


@pytest.mark.parametrize("kind", STRANGERS)
def test_strangers_hold_up_no_report_and_are_shown_out(
    kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_server, "REQUEST_TIMEOUT_S", 0.5)
    monkeypatch.setattr(report_server._Request, "timeout", 0.5)
    with ReportServer(0, SECRET) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        address = ("127.0.0.1", started.server_address[1])
        before = threading.active_count()
        with strangers_at(address, kind, 150):
            answer = httpx.get(f"http://127.0.0.1:{address[1]}/", timeout=30)
            assert answer.status_code == 404
            # A thread of ours for each: those of the strangers go on.
            wait_for(lambda: threading.active_count() <= before + 150, "they are shown out")
        wait_for(lambda: not started._strangers, "none is left")
        started.shutdown()
    assert "Traceback" not in capfd.readouterr().err


def test_what_takes_its_answer_slowly_is_given_up(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_server._Request, "timeout", 0.3)
    monkeypatch.setattr(report_server, "_render", lambda *_: (bytes(64 << 20), ""))
    with ReportServer(0, SECRET) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        with socket.create_connection(("127.0.0.1", started.server_address[1])) as connection:
            connection.sendall(f"GET {target_of(run)} HTTP/1.1\r\n\r\n".encode())
            assert connection.recv(1)
            wait_for(lambda: not handlers(), "it is given up", timeout_s=20)
        started.shutdown()


def handlers() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if "process_request_thread" in name]
