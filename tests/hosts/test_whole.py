"""All there is on hosts that share nothing: the same models as on one host, and nothing left."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from distributed import Security

from tests.environments.wheels import make_wheel
from tests.hosts.network import STORE_PORT, Cluster, Host, network
from tests.hosts.postgres import serve_postgres
from tests.own_cluster import wait_for
from tests.prefect_database import copy_to

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ip")]

DRIVER = str(Path(__file__).with_name("driver.py"))
AWAIT_SERVER = """
import os, subprocess, sys, time, urllib.request
while True:
    try:
        urllib.request.urlopen(os.environ["PREFECT_API_URL"] + "/health", timeout=5)
        break
    except OSError:
        time.sleep(0.2)
"""
PROJECT = """
name: desk
pull: null
deployments:
  - name: script
    entrypoint: partwise.flows.run_script.run_script
    tags: [partwise, on-demand]
    work_pool: {name: far}
"""
DESK = f"""
{AWAIT_SERVER}
import boto3
from pathlib import Path
from partwise import run_script
from partwise.flows.cli.main import main
boto3.client("s3").create_bucket(Bucket="models")
Path("prefect.yaml").write_text({PROJECT!r})
if main(["deploy", "--pool", "far", "--pool-type", "process"]):
    sys.exit("It is not deployed.")
Path("script").mkdir()
Path("script", "main.py").write_text(
    "import pathlib, socket; pathlib.Path('outputs', 'name').write_text(socket.gethostname())"
)
run = run_script(
    "main.py", source_directory="script", cluster="work-pool/far", store="s3://models/runs",
    run_id="sent",
)
print(f"The script ran on {{run.artifact(0, 'outputs/name').decode()}}.")
"""
WORKER = f"""
{AWAIT_SERVER}
start = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "far", "--type", "process"]
subprocess.run(start)
"""
HOSTS = ("driver", "scheduler", "store", "one", "two")
COUNTED = {
    "kept": 4,
    "infer": {"DONE": 4},
    "map": {"DONE": 4},
    "dataset": {"key": [0, 1, 2, 3], "rows": [12] * 4},
    "environment": {"key": [0, 1, 2, 3], "version": ["1.5"] * 4},
    "export": {"DONE": 4},
    "script": {"sum": [3, 3], "read": [48, 48], "hello": [5, 5]},
}
"""What `driver.counted` comes to, beside models; a job of Open MPI where there is one."""


def said(host: Host, *words: str, **environment: str) -> dict[str, dict[str, Any]]:
    """Run a driver to its end, see that it leaves no process behind, and return what it found."""
    process = host.python(DRIVER, *words, **environment)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("SAID ")]
    found: dict[str, dict[str, Any]] = json.loads(line.removeprefix("SAID "))
    wait_for(lambda: not host.processes(), f"the driver left {host.processes()}", 30)
    return found


def serve_bucket(host: Host) -> str:
    """Serve buckets from a host, and return the URL."""
    words = ("-m", "moto.server", "-H", "0.0.0.0", "-p", str(STORE_PORT))
    host.python(*words, output=subprocess.DEVNULL)
    return f"http://{host.address}:{STORE_PORT}"


def wheels_on(host: Host) -> str:
    """Serve the wheel of a package from a host, and return its page."""
    make_wheel(Path(f"/proc/{host.pid}/root/tmp/wheels"), "greeting", "1.5")
    host.python("-m", "http.server", "8000", "--directory", "/tmp/wheels")
    return f"http://{host.address}:8000/"


def test_models_are_those_of_one_host(tmp_path: Path, initdb: str) -> None:
    with network(*HOSTS) as made:
        cluster = Cluster(made, ("one", "two"), tmp_path, Security.temporary())
        servers = serve_postgres(made["store"], initdb), wheels_on(made["store"])
        words = ("s3://models/runs", cluster.scheduler, *servers)
        several = said(made["driver"], *words, AWS_ENDPOINT_URL_S3=cluster.store)
    with network("driver") as made:
        one = said(made["driver"], "/tmp/store", "", "sqlite:////tmp/told.sqlite", "")
    assert several["learned"] == one["learned"]
    mpi = {"mpi": [3, 3]} if shutil.which("mpirun") else {}
    models = {"models": one["learned"]["train"]}
    assert several["counted"] == COUNTED | models | mpi


def test_a_worker_of_prefect_on_another_host_carries_out_a_call(tmp_path: Path) -> None:
    """The script is on somebody's desk; the server and the worker of Prefect are elsewhere."""
    with network("driver", "server", "store", "one") as made:
        url = f"http://{made['server'].address}:4200/api"
        known = {"PREFECT_API_URL": url, "AWS_ENDPOINT_URL_S3": serve_bucket(made["store"])}
        server = ("-m", "prefect", "server", "start", "--no-ui", "--host", "0.0.0.0")
        copy_to(Path(f"/proc/{made['server'].pid}/root/tmp/prefect"))
        with (tmp_path / "prefect.log").open("wb") as log, (tmp_path / "pool.log").open("wb") as of:
            made["server"].python(*server, output=log)
            desk = made["driver"].python("-c", DESK, **known)
            made["one"].python("-c", WORKER, output=of, **known)
            output, _ = desk.communicate(timeout=600)
    assert desk.returncode == 0, output
    assert "The script ran on one.\n" in output
