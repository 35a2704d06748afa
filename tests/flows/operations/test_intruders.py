"""Who else reaches the server of `partwise up`: web pages in a browser here, and other users."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect
from websockets.typing import Origin

from partwise.flows.operations.services import Services, locked, password, password_of
from tests.flows.operations.project import Production

STRANGER = 65534
WEB_PAGE = "https://evil.example"
OPEN_PATHS = {"/api/health", "/api/ready"}
"""What says nothing but that a server is there."""

READ = """
import json, os, sys
os.setgid(65534); os.setuid(65534)
said = {}
for path in json.loads(sys.argv[1]):
    try:
        open(path, "rb").read(1)
        said[path] = "read"
    except OSError as error:
        said[path] = type(error).__name__
print(json.dumps(said))
"""


def read_by_another_user(paths: list[Path]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps([str(path) for path in paths])],
        capture_output=True,
        text=True,
        check=True,
    )
    said: dict[str, str] = json.loads(done.stdout)
    return said


@pytest.mark.slow
def test_without_the_password_no_path_of_the_server_says_or_does_anything(
    production: Production,
) -> None:
    schema = httpx.get(f"{production.ui_url}/openapi.json", timeout=60).json()
    answers = {}
    with httpx.Client(base_url=production.ui_url, timeout=60) as client:
        token = client.get("/api/csrf-token", params={"client": "evil"})
        for path, methods in schema["paths"].items():
            url = "/api" + path.removeprefix("/api")
            for method in methods:
                for authorization in ("", "Basic cGFydHdpc2U6", "Bearer x"):
                    answer = client.request(
                        method,
                        url,
                        json={},
                        headers={"Authorization": authorization, "Origin": WEB_PAGE},
                    )
                    answers[method, url, authorization] = answer.status_code
    wrong = {
        key: status
        for key, status in answers.items()
        if status not in (401, 403) and key[1] not in OPEN_PATHS
    }
    assert len(answers) > 300
    assert wrong == {}
    assert token.status_code == 401


@pytest.mark.slow
def test_a_web_page_is_refused_even_by_a_browser_that_knows_the_password(
    production: Production,
) -> None:
    """What a browser asks before it sends what a page wants, and what it lets the page read."""
    name, secret = production.project.password.split(":")
    with httpx.Client(base_url=production.ui_url, auth=(name, secret), timeout=60) as client:
        for origin in (WEB_PAGE, "null", "http://127.0.0.1:1", f"{production.ui_url}.evil.example"):
            asked = {
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "content-type,prefect-csrf-token",
            }
            preflight = client.options("/api/block_documents/filter", headers=asked)
            assert "access-control-allow-origin" not in preflight.headers
            # A form needs no such leave, but cannot be read, and has no token.
            posted = client.post(
                "/api/deployments/", content=b"{}", headers={"Origin": origin, "Content-Type": ""}
            )
            assert posted.status_code == 403
            read = client.get("/api/admin/version", headers={"Origin": origin})
            assert "access-control-allow-origin" not in read.headers
        # Our own UI, by either name.
        own = client.get("/api/admin/version", headers={"Origin": production.ui_url})
        assert own.headers["access-control-allow-origin"] == production.ui_url
    # A name of the page's own that leads to this machine makes it one origin with the server.
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert httpx.get(f"{production.api_url}/admin/version", headers=rebound).status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/events/in", "/api/events/out", "/api/logs/out"])
def test_a_socket_without_the_password_is_closed(production: Production, path: str) -> None:
    url = production.ui_url.replace("http", "ws", 1) + path
    for protocols in (None, ["prefect"]):
        with pytest.raises(WebSocketException):
            _listen(url, protocols)


def _listen(url: str, protocols: Any) -> None:
    with connect(url, subprotocols=protocols, origin=Origin(WEB_PAGE)) as socket:
        socket.send(json.dumps({"type": "auth", "token": "guess"}))
        while True:
            socket.recv(timeout=10)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")
def test_no_file_of_the_server_can_be_read_by_another_user(production: Production) -> None:
    # As root's folders of tests cannot be, the files are looked at one by one as well.
    folder = production.folder / ".partwise"
    files = list(folder.iterdir())
    assert {"prefect.db", "services.json", "password", "server.log"} <= {f.name for f in files}
    assert set(read_by_another_user(files).values()) == {"PermissionError"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [f.name for f in files if stat.S_IMODE(f.stat().st_mode) & 0o077] == []
    # Nor is the password in the words of a process, which everybody sees.
    secret = production.project.password.partition(":")[2]
    for process in psutil.process_iter(["cmdline"]):
        assert secret not in " ".join(process.info["cmdline"] or ())


def test_an_older_folder_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / ".partwise"
    folder.mkdir(mode=0o755)
    (folder / "prefect.db").write_text("blocks")
    (folder / "prefect.db").chmod(0o644)
    with locked(tmp_path):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "prefect.db").stat().st_mode) == 0o600


def test_the_password_is_kept_and_told_for_its_own_server_only(tmp_path: Path) -> None:
    with locked(tmp_path):
        made = password(tmp_path)
        assert password(tmp_path) == made
        assert len(made) > 32
        url = "http://127.0.0.1:4200/api"
        assert password_of(tmp_path, url) is None
        Services.plan(url, owns_server=True).write(tmp_path)
        assert password_of(tmp_path, f"{url}/") == made
        assert password_of(tmp_path, "https://prefect.example.org/api") is None
        Services.plan(url, owns_server=False).write(tmp_path)
        assert password_of(tmp_path, url) is None
    modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / ".partwise").iterdir()}
    assert {modes["password"], modes["services.json"]} == {0o600}


@pytest.mark.parametrize("left", ["", "\n", None])
def test_an_empty_password_is_made_and_half_a_one_never_is_there(
    tmp_path: Path, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a full disk or a kill left it: `partwise up` was locked out for ever.
    file = tmp_path / ".partwise" / "password"
    with locked(tmp_path):
        if left is not None:
            file.write_text(left)
        made = password(tmp_path)
        assert made.startswith("partwise:")
        assert len(made) > 30
        assert file.read_text() == f"{made}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert password(tmp_path) == made

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        file.unlink()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            password(tmp_path)
    assert not file.exists()
