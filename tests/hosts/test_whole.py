"""All there is on hosts that share nothing: the same models as on one host, and nothing left."""

import json
from pathlib import Path

import pytest

from tests.hosts.network import Cluster, Host, network
from tests.own_cluster import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ip")]

DRIVER = str(Path(__file__).with_name("driver.py"))
HOSTS = ("driver", "scheduler", "store", "one", "two")


def said(host: Host, *words: str, **environment: str) -> dict[str, str]:
    """Run a driver to its end, see that it leaves no process behind, and return what it found."""
    process = host.python(DRIVER, *words, **environment)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("SAID ")]
    found: dict[str, str] = json.loads(line.removeprefix("SAID "))
    wait_for(lambda: not host.processes(), f"the driver left {host.processes()}", 30)
    return found


def test_models_are_those_of_one_host(tmp_path: Path) -> None:
    with network(*HOSTS) as made:
        cluster = Cluster(made, ("one", "two"), tmp_path)
        told = ("s3://models/runs", cluster.scheduler)
        several = said(made["driver"], *told, AWS_ENDPOINT_URL_S3=cluster.store)
    with network("driver") as made:
        one = said(made["driver"], "/tmp/store", "")
    assert several == one
