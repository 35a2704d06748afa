"""All there is on hosts that share nothing: the same models as on one host, and nothing left."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.hosts.network import Cluster, await_all_gone, network

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ip")]

DRIVER = str(Path(__file__).with_name("driver.py"))
HOSTS = ("driver", "scheduler", "store", "one", "two")


def said(process: subprocess.Popen[str]) -> dict[str, str]:
    """Wait for a driver's end, and return what it found."""
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("SAID ")]
    found: dict[str, str] = json.loads(line.removeprefix("SAID "))
    return found


def test_models_are_those_of_one_host(tmp_path: Path) -> None:
    with network(*HOSTS) as made:
        cluster = Cluster(made, ("one", "two"), tmp_path)
        several = said(
            made["driver"].python(
                DRIVER, "s3://models/runs", cluster.scheduler, AWS_ENDPOINT_URL_S3=cluster.store
            )
        )
    with network("driver") as made:
        one = said(made["driver"].python(DRIVER, "/tmp/store", ""))
        await_all_gone(made)
    assert several == one
