"""A server as a process of its own: a catalog of two key columns, whose models are real exports."""

import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from partwise import (
    Everything,
    LightGBMTrainer,
    LocalCluster,
    export_models,
    promote_models,
    train_models,
)
from tests.ports import free_port

HANGS_S = 20


@dataclass(frozen=True)
class Server:
    port: int
    process: subprocess.Popen[bytes]
    store: Path
    loaded: frozenset[str]
    """The files that were in its memory when it said that it listens: before any question."""

    def ask(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """Send a body, by a connection of its own; a hang is a timeout of the socket."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_S)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers["content-type"], answer.read()
        finally:
            connection.close()

    def memory_mib(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 2**20


def make_catalog(folder: Path) -> Path:
    """A store with the catalog "sales": keys are a region and the number of a shop."""
    rows = pa.table(
        {
            "region": ["north", "süd"] * 80,
            "shop": [shop for shop in (1, 2) for _ in range(80)],
            "price": [float(i % 17) for i in range(160)],
            "size": [i % 5 for i in range(160)],
            "label": [float(i % 17 + i % 5) for i in range(160)],
        }
    )
    source, store = folder / "rows.parquet", folder / "where-models-are"
    pq.write_table(rows, source)
    given: dict[str, Any] = {"store": str(store), "cluster": LocalCluster(workers=1)}
    trainer = LightGBMTrainer(label="label", features=["price", "size"], rounds=3)
    train_models(source, ["region", "shop"], trainer, run_id="night", **given)
    export_models("night", run_id="night-onnx", **given)
    promote_models(
        "sales", models="night-onnx", rule=Everything(), require="onnx", store=str(store)
    )
    return store


@contextmanager
def serving(store: Path, *options: str) -> Iterator[Server]:
    """Serve the catalog; it has to live as long as the block."""
    port = free_port()
    words = ["serve", "catalog://sales", "--store", str(store), "--port", str(port), *options]
    code = "from partwise.flows.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words, "--no-access-log"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        said: list[bytes] = []
        listens = threading.Event()

        def read() -> None:
            for line in process.stderr or ():
                said.append(line)
                if b"running on" in line:
                    listens.set()
            listens.set()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert listens.wait(60)
            assert process.poll() is None, said
            maps = psutil.Process(process.pid).memory_maps()
            yield Server(port, process, store, frozenset(each.path for each in maps))
            assert process.poll() is None, said[-20:]
        finally:
            process.terminate()
            process.wait(30)
            reader.join()
