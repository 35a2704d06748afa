"""Commands in a folder in which `partwise up` is at work, and in one that only looks so."""

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from partwise.flows.cli.main import _use_server_of_up, main
from partwise.flows.operations.services import MARK, Services, answers

TRAIN = ["train", "rows.parquet"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a server that answers anything, if only by a refusal."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()


@pytest.fixture
def services(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """What `up` keeps of its server, for which a process stands that does nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    # Set and deleted, so that what the test makes of it ends with the test.
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.delenv("PREFECT_API_URL")
    (tmp_path / ".partwise").mkdir()
    planned = Services.plan(url, owns_server=True)
    environment = {**os.environ, MARK: f"{planned.mark}-server"}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        services = planned.model_copy(update={"pids": {"server": process.pid}})
        services.write(tmp_path)
        yield services
        process.kill()


def server_used(*words: str) -> str | None:
    _use_server_of_up([*words])
    return os.environ.get("PREFECT_API_URL")


@pytest.mark.parametrize(
    "words",
    [TRAIN, ["runs", "resume", "night"], ["runs", "list", "--store", "store-block/prod"]],
)
def test_what_begins_a_run_uses_the_server_and_says_so(services, words, url, capsys) -> None:
    assert server_used(*words) == url
    assert f"using the Prefect server of `partwise up` here, {url};" in capsys.readouterr().err


def test_a_saved_store_of_the_environment_needs_it_where_a_store_is_looked_into(
    services, monkeypatch, url
) -> None:
    monkeypatch.setenv("PARTWISE_STORE", "store-block/prod")
    for words in (["up"], ["down"], ["--version"], ["environments"]):
        assert server_used(*words) is None
    assert server_used("runs", "list") == url


@pytest.mark.parametrize(
    "words", [["runs", "list"], [*TRAIN, "--prefect"], [*TRAIN, "--help"], ["up"], []]
)
def test_what_begins_none_or_asks_for_another_does_not(services, words, capsys) -> None:
    assert server_used(*words) is None
    assert capsys.readouterr().err == ""


def test_who_names_a_server_or_none_is_heard(services, monkeypatch, tmp_path) -> None:
    for named in ("http://127.0.0.1:1/api", ""):
        monkeypatch.setenv("PREFECT_API_URL", named)
        assert server_used(*TRAIN) == named
    monkeypatch.delenv("PREFECT_API_URL")
    (tmp_path / "prefect.toml").write_text("[api]\nurl = 'http://127.0.0.1:1/api'\n")
    assert server_used(*TRAIN) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"mark": "0" * 32},
        {"pids": {}},
        {"owns_server": False},
        {"api_url": "http://127.0.0.1:9/api"},
    ],
    ids=["a stranger's process", "it has ended", "a server of somebody else's", "it starts yet"],
)
def test_a_server_that_is_not_of_this_folder_is_left(services, changes, tmp_path) -> None:
    services.model_copy(update=changes).write(tmp_path)
    assert server_used(*TRAIN) is None


def test_a_command_works_in_a_folder_that_is_gone(tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["runs", "list", "--store", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out.startswith("There are no runs in")


@pytest.mark.parametrize("url", ["http://127.0.0.1:4200x/api", "http://a..b/api", "4200", ""])
def test_at_an_address_that_is_none_nothing_answers(url):
    assert not answers(url)
