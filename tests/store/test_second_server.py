"""The store's contract with a second server that speaks S3, written by others than moto.

`pip install localbucket` into any environment, and have it on PATH; without, this is skipped.
"""

import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from partwise.store.store import Store
from partwise.testing import StoreContract
from tests.lazily import Lazily
from tests.ports import free_port

boto3 = Lazily("boto3")

BUCKET = "tests"


@pytest.fixture(scope="module")
def second_server(localbucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a LocalBucket with one bucket."""
    folder: Path = tmp_path_factory.mktemp("localbucket")
    (folder / "root").mkdir()
    port = free_port()
    with (folder / "log").open("wb") as log:
        command = [localbucket, "--port", str(port), str(folder / "root")]
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _await_port(process, port, folder / "log")
        url = f"http://127.0.0.1:{port}"
        client = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield url
    finally:
        process.kill()
        process.wait()


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"localbucket does not answer: {log.read_text()}")
            time.sleep(0.05)


class TestLocalBucket(StoreContract):
    """What holds for moto and for a directory holds here."""

    @pytest.fixture
    def store(self, second_server: str) -> Store:
        return Store.parse(f"s3://{BUCKET}/{uuid.uuid4().hex}/x", endpoint_url=second_server)
