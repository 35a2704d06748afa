"""What the doctor finds, in health and otherwise."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from partwise.errors import ServiceError
from partwise.flows import map_partitions
from partwise.flows.cli.main import main
from partwise.flows.operations.doctor import compare_version, find_prefect_server
from partwise.flows.orchestration.saved_blocks import open_store


def test_all_is_well_with_a_store_a_cluster_and_a_server(
    prefect_server, cluster, tmp_path, capsys
) -> None:
    words = ["doctor", "--store", str(tmp_path / "new"), "--address", cluster.address]
    assert main(words) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[-1] == "all is well"
    assert not any(line.startswith(("✗", "!!")) for line in lines)
    for what in (
        "python",
        "partwise",
        "prefect",
        "lightgbm",
        "CPUs",
        "memory",
        "open files",
    ):
        assert any(line.split()[1:2] == [what.split()[0]] for line in lines), what
    assert len(set(lines)) == len(lines)
    assert f"{tmp_path / 'new'} can be written" in out
    assert "2 of its workers answered" in out
    assert "on 2 workers, as here" in out
    assert "the workers can write it" in out
    assert f"{prefect_server}, which PREFECT_API_URL names, answers" in out
    # Two extras want it, in versions of their own.
    assert sum(line.split()[1:2] == ["torch"] for line in lines) <= 1
    assert not (tmp_path / "new").exists()


def test_what_is_broken_is_told_with_what_to_do(prefect_server, capsys) -> None:
    words = ["doctor", "--store", "/proc/nowhere", "--address", "tcp://127.0.0.1:9"]
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert main([*words, "--connect-timeout-s", "0.3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("✗")] == [
        "store",
        "cluster",
        "Prefect",
    ]
    assert "unset PREFECT_API_URL" in lines[-2]
    assert lines[-1].startswith("3 of ")


class _Closed(BaseHTTPRequestHandler):
    """Lets nobody in, as Prefect's server whose password one does not know."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200 if self.path.endswith("/health") else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def closed_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Closed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        (None, "asks for a password"),
        ("me:wrong", "refuses the password"),
    ],
)
def test_a_password_that_is_refused_is_told_in_a_sentence(
    closed_server, tmp_path, secret, sentence
) -> None:
    named = {PREFECT_API_URL: closed_server, PREFECT_API_AUTH_STRING: secret}
    rows = pa.table({"key": [1], "value": [1.0]})
    with temporary_settings(named):
        finding = find_prefect_server()
        assert finding.verdict == "bad"
        assert finding.text.startswith(f"The Prefect server at {closed_server} {sentence}")
        with pytest.raises(ServiceError, match=sentence):
            map_partitions(rows, "key", "json:dumps", store=str(tmp_path))
        with pytest.raises(ServiceError, match=sentence):
            open_store("store-block/prod")


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("numpy>=1", "good", ""),
        ("numpy<1", "bad", "partwise needs <1: others were not tried"),
        ("sqlalchemy<1", "bad", "silently stops all schedules"),
        ("no-such-package>=3", "bad", "is not installed"),
    ],
)
def test_versions_are_compared_with_what_partwise_allows(text, verdict, words) -> None:
    finding = compare_version(Requirement(text), optional=False)
    assert finding.verdict == verdict
    assert words in finding.text
    assert finding.remedy == ("" if verdict == "good" else f"pip install '{text}'")
    assert compare_version(Requirement("no-such-package>=3"), optional=True) is None
