"""Servers as processes: their start and end, one that is killed, a version that follows."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow as pa
import pytest

from partwise.catalogs.documents import versions_of
from partwise.flows.cli.main import main
from partwise.models.serdes import serde_name
from partwise.serving import process
from partwise.serving.process import Service
from partwise.store.store import Store
from tests.one_catalog import promote
from tests.ports import free_port
from tests.run_maker import RunMaker
from tests.serving.serve_scales import GatedScales

ROOT = Path(__file__).resolve().parents[2]
STORES = pa.schema([("store", pa.int64())])
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
BODY = {"rows": [{"price": 2.0}], "key": 3}


def promoted(store: Store, run_id: str, factor: float) -> str:
    """Promote a run in which the model of each store is its number times a factor."""
    maker = RunMaker(store, run_id, "train", serde_name(GatedScales()), keys=STORES)
    maker.begin()
    maker.commit(*((key, "DONE", key * factor) for key in range(1, 10)))
    maker.end(9)
    return promote(store, run_id).reference


class Server:
    """A process of `serve_scales`, and what it has written to stderr so far."""

    def __init__(self, folder: Path, processes: int = 1, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        words = [str(folder), str(self.port), str(processes)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.serving.serve_scales", *words],
            cwd=ROOT,
            env={**os.environ, "GATE": ""} if "GATE" not in os.environ else None,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def line(self, pattern: str) -> str:
        """Read on to a line, and return its first group."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found[1] if found.groups() else line
        raise AssertionError("".join(self.lines))

    def end(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def rest(self) -> str:
        assert self.process.stderr is not None
        return "".join([*self.lines, *self.process.stderr])


@pytest.fixture
def start(local_store) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def begin(*arguments: Any) -> Server:
        servers.append(Server(Path(local_store.url), *arguments))
        return servers[-1]

    yield begin
    for server in servers:
        if server.process.poll() is None:
            for each in psutil.Process(server.process.pid).children():
                each.kill()
            server.process.kill()
        server.process.wait()
        assert server.process.stderr is not None
        server.process.stderr.close()


def ask(server: Server, client: Any = httpx) -> Any:
    return client.post(f"{server.url}/predict/sales", json=BODY, timeout=30).json()


def test_a_server_takes_up_what_follows_and_keeps_what_it_has_when_that_is_bad(local_store, start):
    promoted(local_store, "first", 1.0)
    server = start()
    server.line("Uvicorn running")
    assert ask(server)["outputs"] == {"prediction": [6.0]}
    promoted(local_store, "second", 10.0)
    while (answer := ask(server))["version"] == 1:
        assert answer["outputs"] == {"prediction": [6.0]}
    assert (answer["version"], answer["outputs"]) == (2, {"prediction": [60.0]})
    path = versions_of(local_store, "sales").path(2).replace("2", "3")
    local_store.create(path, b"{}")
    assert server.line("catalog://sales@3 is not taken up")
    ready = httpx.get(f"{server.url}/v2/health/ready").json()
    assert (ready["version"], ready["refused"]["reference"]) == (2, "catalog://sales@3")
    assert ask(server)["version"] == 2


def test_requests_that_have_begun_are_answered_before_a_server_ends(
    local_store, start, tmp_path, monkeypatch
):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv("GATE", str(gate))
    promoted(local_store, "first", 1.0)
    server = start()
    server.line("Uvicorn running")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ask, server)
        # It opens once the model is being read.
        with gate.open("wb"):
            server.process.send_signal(signal.SIGTERM)
            server.line("Shutting down")
            assert not asked.done()
        assert asked.result()["outputs"] == {"prediction": [6.0]}
    assert server.process.wait(60) == -signal.SIGTERM


def test_of_several_processes_a_killed_one_is_replaced_and_all_end_together(local_store, start):
    promoted(local_store, "first", 1.0)
    server = start(2)
    pids = {int(server.line(r"Started server process \[(\d+)\]")) for _ in range(2)}
    server.line("All 2 processes are ready")
    killed = min(pids)
    os.kill(killed, signal.SIGKILL)
    server.line(rf"Child process \[{killed}\] died")
    new = int(server.line(r"Started server process \[(\d+)\]"))
    server.line("startup complete")
    assert ask(server)["outputs"] == {"prediction": [6.0]}
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    assert 'partwise_requests_total{route="predict",status="200"} 1.0' in lines
    assert "partwise_served_version 1.0" in lines
    assert server.end() == 0
    assert not any(map(psutil.pid_exists, {*pids, new}))


@pytest.mark.slow
def test_several_processes_that_cannot_open_the_catalog_end_with_its_sentence(start):
    server = start(2)
    assert server.process.wait(60) == 1
    assert "sales" in server.rest()
    assert "Traceback" not in server.rest()


def test_a_port_that_is_taken_is_named(local_store, start):
    promoted(local_store, "first", 1.0)
    # Whoever listens: one that would share the port with its like, too.
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as listener:
        port = listener.getsockname()[1]
        for processes in (1, 2):
            server = start(processes, port)
            assert server.process.wait(60) == 1
            assert f"Port {port} of 127.0.0.1 cannot be listened at" in server.rest()


# The command.


@pytest.fixture
def served(monkeypatch) -> list[Service]:
    found: list[Service] = []
    # The command sets it for the process, which here is that of all tests.
    monkeypatch.setenv(ARROW_POOL, "system")
    monkeypatch.setattr(process, "serve", lambda service: found.append(service) or True)
    monkeypatch.delenv("PARTWISE_SERVE_API_KEY", raising=False)
    return found


def test_options_of_the_command_are_those_of_the_server(served, tmp_path):
    (tmp_path / "key").write_text("0123456789abcdef\n")
    words = ["serve", "catalog://sales", "--store", "s3://here", "--host", "0.0.0.0", "--port", "1"]
    words += ["--api-key-file", str(tmp_path / "key"), "--also", "6", "--also", "5"]
    words += ["--fallback", "catalog://regions", "--fallback", "-1.5", "--format", "native"]
    words += ["--serde", "pickle", "--cache-mib", "2", "--warm", "all", "--poll-s", "0.5"]
    assert main([*words, "--processes", "2", "--no-access-log"]) == 143
    (service,) = served
    assert (service.reference, service.store) == ("catalog://sales", "s3://here")
    predictor, options = service.predictor, service.options
    assert (predictor.also, predictor.fallback) == ((6, 5), ("catalog://regions", -1.5))
    assert (predictor.format, predictor.serde, predictor.warm) == ("native", "pickle", "all")
    assert predictor.cache_bytes == 2 * 2**20
    assert (options.host, options.port, options.processes) == ("0.0.0.0", 1, 2)
    assert (options.api_key, options.poll_s, options.access_log) == ("0123456789abcdef", 0.5, False)
    assert "0123456789abcdef" not in repr(service)


def test_strangers_are_not_let_in_without_an_api_key(served, tmp_path, capsys, monkeypatch):
    (tmp_path / "key").write_text("\n")
    for words, said in (
        (["--host", "0.0.0.0"], "--api-key-file"),
        (["--host", "example.org"], "--api-key-file"),
        (["--api-key-file", str(tmp_path / "key")], "is empty"),
        (["--api-key-file", str(tmp_path / "none")], "cannot be read"),
    ):
        assert main(["serve", "catalog://sales", *words]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setenv("PARTWISE_SERVE_API_KEY", "short")
    assert main(["serve", "catalog://sales"]) == 2
    assert "16" in capsys.readouterr().err
    assert served == []
    monkeypatch.setenv("PARTWISE_SERVE_API_KEY", "0123456789abcdef")
    for host in ("0.0.0.0", "::1", "localhost"):
        assert main(["serve", "catalog://sales", "--host", host]) == 143


def test_what_cannot_be_opened_is_one_line(served, monkeypatch, tmp_path, capsys):
    monkeypatch.undo()
    monkeypatch.setenv(ARROW_POOL, "system")
    assert main(["serve", "catalog://sales", "--store", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
