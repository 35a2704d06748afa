"""Another user of the machine, who finds the ports of a cluster that a run has started."""

import json
import os
import subprocess
import sys

import psutil
import pytest

from partwise.blocks import LocalCluster

STRANGER = 65534

ATTACK = """
import asyncio, json, os, sys
import distributed
from distributed.comm import connect
from distributed.security import Security

from partwise.blocks.temporary_certificate import temporary_security

addresses, uid = json.loads(sys.argv[1]), int(sys.argv[2])
if os.getuid() != uid:
    os.setuid(uid)
own = temporary_security()

async def attempt(address, security):
    role = security.get_connection_args("client") if security else {}
    connection = await connect(address, timeout=2, **role)
    question = {"op": "run", "function": distributed.protocol.to_serialize(os.getuid), "args": None,
                "kwargs": {}, "wait": True, "reply": True}
    await connection.write(question)
    return await asyncio.wait_for(connection.read(), 3)

async def main():
    said = {}
    for address in addresses:
        place = address.partition("://")[2]
        for url, security in ((f"tcp://{place}", None), (f"tls://{place}", own)):
            try:
                said[url] = f"let in: {await attempt(url, security)}"
            except Exception as error:
                said[url] = f"refused: {type(error).__name__}"
    print(json.dumps(said))

asyncio.run(main())
"""


def _attack(addresses: list[str]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", ATTACK, json.dumps(addresses), str(STRANGER)],
        capture_output=True,
        text=True,
        check=True,
    )
    answers: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")
def test_nobody_else_runs_code_on_a_cluster_that_a_run_started():
    with LocalCluster(workers=1).client() as client:
        info = client.scheduler_info()
        worker = next(iter(info["workers"].values()))
        addresses = [info["address"], worker["nanny"], *info["workers"]]
        answers = _attack(addresses)
        processes = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        listening = {
            connection.laddr.port
            for process in [*processes, psutil.Process()]
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        pages = {info["services"]["dashboard"], worker["services"]["dashboard"]}
        statuses = {_status(port, "/info/main/workers.html") for port in pages}
        assert client.submit(os.getuid).result() == 0

    assert len(answers) == 6
    assert all(answer.startswith("refused") for answer in answers.values()), answers
    # What else listens are the ports for HTTP, which have no pages.
    spoken = {int(address.rpartition(":")[2]) for address in addresses}
    assert listening == spoken | pages
    assert statuses == {404}


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")
def test_the_attack_would_be_seen():
    """The same attempt is let in where a cluster speaks plaintext."""
    import distributed

    options = {"n_workers": 0, "protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster:
        # A scheduler has no "run", and answers so; a connection that is refused has no answer.
        answers = _attack([cluster.scheduler_address])
    assert [answer.partition(":")[0] for answer in answers.values()] == ["let in", "refused"]


def _status(port: int, path: str) -> int:
    import httpx

    return httpx.get(f"http://127.0.0.1:{port}{path}").status_code
