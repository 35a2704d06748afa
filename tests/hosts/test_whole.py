"""All there is on hosts that share nothing: the same models as on one host, and nothing left."""

import json
from pathlib import Path

import pytest
from distributed import Security

from tests.environments.wheels import make_wheel
from tests.hosts.network import Cluster, Host, network
from tests.hosts.postgres import serve_postgres
from tests.own_cluster import wait_for
from tests.programs import ROOT

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
DESK = f"""
{AWAIT_SERVER}
import boto3
from pathlib import Path
boto3.client("s3").create_bucket(Bucket="models")
deploy = [sys.executable, "-m", "partwise.flows.cli.main", "deploy"]
subprocess.run([*deploy, "--pool", "far", "--pool-type", "process"], cwd={str(ROOT)!r}, check=True)
Path("script").mkdir()
Path("script", "main.py").write_text(
    "import pathlib, socket; pathlib.Path('outputs', 'name').write_text(socket.gethostname())"
)
from partwise import run_script
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


def said(host: Host, *words: str, **environment: str) -> dict[str, str]:
    """Run a driver to its end, see that it leaves no process behind, and return what it found."""
    process = host.python(DRIVER, *words, **environment)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("SAID ")]
    found: dict[str, str] = json.loads(line.removeprefix("SAID "))
    wait_for(lambda: not host.processes(), f"the driver left {host.processes()}", 30)
    return found


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
        make_wheel(Path(f"/proc/{made['driver'].pid}/root/tmp/wheels"), "greeting", "1.5")
        words = ("/tmp/store", "", "sqlite:////tmp/told.sqlite", "/tmp/wheels")
        one = said(made["driver"], *words)
    assert several == one


def test_a_worker_of_prefect_on_another_host_carries_out_a_call(tmp_path: Path) -> None:
    """The script is on somebody's desk; the server and the worker of Prefect are elsewhere."""
    with network("driver", "scheduler", "store", "one") as made:
        cluster = Cluster(made, (), tmp_path)
        url = f"http://{made['scheduler'].address}:4200/api"
        known = {"PREFECT_API_URL": url, "AWS_ENDPOINT_URL_S3": cluster.store}
        server = ("-m", "prefect", "server", "start", "--no-ui", "--host", "0.0.0.0")
        with (tmp_path / "prefect.log").open("wb") as log, (tmp_path / "pool.log").open("wb") as of:
            made["scheduler"].python(*server, output=log)
            desk = made["driver"].python("-c", DESK, **known)
            made["one"].python("-c", WORKER, output=of, **known)
            output, _ = desk.communicate(timeout=600)
    assert desk.returncode == 0, output
    assert "The script ran on one.\n" in output
