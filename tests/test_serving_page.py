"""docs/serving.md: its scripts make what is served, its commands start servers and ask them."""

import json
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.operations.project import wait_until
from tests.ports import free_port
from tests.test_readme import ROOT, STORES, blocks_of, environment_of, make_folder, run_blocks

PAGE = ROOT / "docs" / "serving.md"


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def is_ready(url: str) -> bool:
    try:
        return bool(json.load(urllib.request.urlopen(f"{url}/v2/health/ready"))["ready"])
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.slow  # a cluster, and three servers
def test_what_the_page_says(prefect_server, servers, tmp_path):
    folder = make_folder(tmp_path, STORES)
    python, shell = (
        [each for each in blocks_of(PAGE) if each.language == name] for name in ("python", "sh")
    )
    assert all(run_blocks(PAGE, python, folder))
    ports = {port: str(free_port()) for port in ("8000", "8001", "8002")}
    variables = environment_of(PAGE, folder)
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
    variables["PYTHONPATH"] += f":{ROOT}"
    answers = []
    for command in "".join(block.text for block in shell).splitlines():
        here = re.sub(r"\b800[012]\b", lambda found: ports[found[0]], command)
        if not command.startswith("partwise serve"):
            here = here.replace("curl ", "curl -sS --fail-with-body ")
            # A "?" in an address is the shell's as well.
            done = subprocess.run(
                ["bash", "-c", here], cwd=folder, env=variables, capture_output=True, text=True
            )
            assert done.returncode == 0, command + done.stdout + done.stderr
            answers.append(done.stdout)
            continue
        words = shlex.split(here)
        if "--port" not in words:
            words += ["--port", ports["8000"]]
        log = servers.enter_context((folder / "server.log").open("a"))
        server = subprocess.Popen(words, cwd=folder, env=variables, stdout=log, stderr=log)
        servers.callback(server.wait)
        servers.callback(server.terminate)
        url = f"http://127.0.0.1:{words[words.index('--port') + 1]}"

        def ready(server=server, url=url) -> bool:
            assert server.poll() is None, (folder / "server.log").read_text()
            return is_ready(url)

        wait_until(ready, f"{command} to be ready")
    plain, infer, many, *_ = map(json.loads, answers[:3])
    assert plain["outputs"]["prediction"] == infer["outputs"][0]["data"]
    assert plain["models"][0]["key"] == "store-007"
    assert many["outputs"]["prediction"][0] == plain["outputs"]["prediction"][0]
    assert len(many["models"]) == 2
    fallback = json.loads(next(each for each in answers if '"level":[1]' in each))
    assert fallback["outputs"]["prediction"] == [0.0]
    assert "partwise_served_version 1.0" in "".join(answers)
    assert "prediction: [[" in answers[-1]


def test_statuses_and_limits_of_the_page_are_those_of_the_server():
    from partwise.serving.openapi import openapi_document
    from partwise.serving.server_options import ServerOptions

    text, options = PAGE.read_text(), ServerOptions()
    document = openapi_document("sales", has_api_key=True)
    known = {*document["paths"]["/predict/{name}"]["post"]["responses"]} - {"200", "408", "415"}
    table = text.split("| status |")[1].split("\n\n")[0]
    assert {*re.findall(r"\b[45]\d\d\b", table)} == known
    assert f"{options.max_body_bytes >> 20} MiB" in table
    assert f"{options.max_rows:,} rows" in table
    assert f"{options.timeout_s:g} seconds" in table
