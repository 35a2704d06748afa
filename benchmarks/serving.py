"""What `partwise serve` costs and withstands, beside MLflow's scoring server and MLServer.

    python benchmarks/serving.py [--keys 10000] [--seconds 15] [--folder FOLDER] [--json]

A catalog of small LightGBM models, each with a proved export, is made once in FOLDER, which takes
some minutes, and kept. Then servers on loopback addresses are asked by Debian's `wrk` at an open
rate: a question is sent when its time has come, whatever became of the one before
(benchmarks/served/open_rate.lua).

warm          keys that were asked before: a tenth of all, with the cache that is the default, and
              all of them, with one that is large enough
cold          each question is for another key, and no model is loaded: from this machine's disk,
              and from a bucket that answers 30 ms late
promotions    three new versions under load, in which the models of all keys differ
killed        one of two processes, under load
MLflow, MLServer
              with the model of one key each, in an environment of their own
              (`make .venv-served/stamp`); without it they are left out
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import boto3

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.rows.buckets import BUCKET, late_bucket
from benchmarks.served.bodies import Body, bodies, of_mlflow, of_mlserver, open_inference, plain
from benchmarks.served.catalog import CATALOG, NIGHTS, Made, make_catalog
from benchmarks.served.load import Asked, ask
from benchmarks.served.peers import PYTHON, mlflow_serving, mlserver_serving, peer_models
from benchmarks.served.servers import Server, partwise_serving

WARM_RATE, COLD_RATE = 200, 50
INFER, PREDICT = f"/v2/models/{CATALOG}/infer", f"/predict/{CATALOG}"
LARGE_CACHE_MIB = 1024
EVERY_S = 12
"""From one promotion to the next: a server looks for a new version every 5 s, and loads it."""


@dataclass(frozen=True)
class Case:
    """What one server had to do, and how it did."""

    name: str
    asked: Asked
    cpu_ms: float | None
    """Of all processes of the server, for each answer; None: not known."""
    memory_mib: float
    started_s: float


def main() -> None:
    """Measure all cases, and print each when it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=15, help="of load for each figure")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir(), "partwise-serving")
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--json", action="store_true", help="a last line for other programs")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
    made = make_catalog(given.folder, given.keys)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {given.keys:,} keys")
    print(
        f"{'':<34}{'rate':>6}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'CPU ms':>8}{'failed':>8}"
        f"{'late':>6}{'MiB':>7}{'start s':>9}"
    )
    figures: dict[str, float] = {}
    for name in given.only:
        for case in CASES[name](made, given.seconds):
            _print(case)
            figures |= _figures(case)
    if given.json:
        print(json.dumps(figures))


def warm(made: Made, seconds: int) -> Iterator[Case]:
    """Ask for keys whose models are loaded."""
    hot = made.keys // 10
    with partwise_serving(str(made.store)) as server:
        _load(server, made, hot)
        for name, path, body in (
            ("warm, a tenth of the keys", INFER, open_inference),
            ("the same by plain JSON", PREDICT, plain),
        ):
            yield _case(name, server, path, _bodies(made, body, hot), WARM_RATE, seconds)
    with partwise_serving(
        str(made.store), "--warm", "all", "--cache-mib", LARGE_CACHE_MIB
    ) as server:
        everything = _bodies(made, open_inference, made.keys)
        yield _case("warm, all keys", server, INFER, everything, WARM_RATE, seconds)


def cold(made: Made, seconds: int) -> Iterator[Case]:
    """Ask for another key each time, of a server that has no model loaded."""
    each_once = _bodies(made, open_inference, made.keys)
    with partwise_serving(str(made.store), "--warm", "none") as server:
        yield _case("cold, from disk", server, INFER, each_once, COLD_RATE, seconds)
    with late_bucket(), partwise_serving(_copy(made), "--warm", "none") as server:
        yield _case("cold, a bucket 30 ms away", server, INFER, each_once, COLD_RATE, seconds)


def promotions(made: Made, seconds: int) -> Iterator[Case]:
    """Change all models three times while the server is asked, and compare with the time before."""
    hot = made.keys // 10
    asked = _bodies(made, open_inference, hot)
    with partwise_serving(str(made.store)) as server:
        _load(server, made, hot)
        yield _case("steady", server, INFER, asked, WARM_RATE, seconds)

        def promote_thrice() -> None:
            began = time.monotonic()
            for number in range(3):
                time.sleep(max(0, began + number * EVERY_S - time.monotonic()))
                _promote(made)

        with _meanwhile(promote_thrice):
            case = _case("three promotions", server, INFER, asked, WARM_RATE, 3 * EVERY_S + 2)
    yield case
    if len(case.asked.versions) < 4:
        raise SystemExit(f"not all three new versions were served: {case.asked.versions}")


def killed(made: Made, seconds: int) -> Iterator[Case]:
    """Kill one of two processes while they are asked."""
    hot = made.keys // 10
    with partwise_serving(str(made.store), "--processes", 2) as server:
        _load(server, made, hot)

        connections: list[int] = []

        def kill() -> None:
            time.sleep(seconds / 3)
            connections.append(server.kill_one())

        with _meanwhile(kill):
            asked = _bodies(made, open_inference, hot)
            case = _case("one killed of two processes", server, INFER, asked, WARM_RATE, seconds)
    # What the killed one had used is lost.
    yield replace(case, cpu_ms=None)
    print(f"{'':<4}the killed one had {connections[0]} connections")


def others(made: Made, seconds: int) -> Iterator[Case]:
    """Ask MLflow's server and MLServer for the same rows, of one model."""
    if not PYTHON.exists():
        print("MLflow and MLServer are left out: make .venv-served/stamp installs them")
        return
    folder, hot = peer_models(made), made.keys // 10
    for name, start, path, body in (
        ("MLflow, one model", mlflow_serving, "/invocations", of_mlflow),
        ("MLServer, one model", mlserver_serving, INFER, of_mlserver),
    ):
        with start(folder) as server:
            asked = _bodies(made, body, hot)
            ask(server.url + path, asked, WARM_RATE // 4, 2)
            yield _case(name, server, path, asked, WARM_RATE, seconds)


CASES: dict[str, Callable[[Made, int], Iterator[Case]]] = {
    "warm": warm,
    "cold": cold,
    "promotions": promotions,
    "killed": killed,
    "others": others,
}


def _bodies(made: Made, body: Body, count: int) -> list[str]:
    keys, rows = made.questions()
    return bodies(body, keys[:count], rows[:count])


def _load(server: Server, made: Made, count: int) -> None:
    """Ask for each of so many keys, so that their models are loaded."""
    rate = WARM_RATE * 2
    ask(server.url + INFER, _bodies(made, open_inference, count), rate, 2 + count / rate)


def _case(
    name: str, server: Server, path: str, asked: Sequence[str], rate: int, seconds: float
) -> Case:
    before = server.cpu_s()
    found = ask(server.url + path, asked, rate, seconds)
    cpu_ms = 1e3 * (server.cpu_s() - before) / max(found.answers, 1)
    return Case(name, found, cpu_ms, server.memory_mib(), server.started_s)


def _promote(made: Made) -> None:
    """Promote the models of the other night than those in use."""
    from partwise import Catalog, Everything, promote_models

    store = str(made.store)
    used = Catalog.open(CATALOG, store).table["run_id"][0].as_py()
    (other,) = (night for night in NIGHTS if night != used)
    promote_models(CATALOG, models=f"{other}-onnx", rule=Everything(), require="onnx", store=store)


@contextmanager
def _meanwhile(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _copy(made: Made) -> str:
    """Copy the store to the bucket that the environment names, and return its URL."""
    client = boto3.client("s3")
    for file in sorted(made.store.rglob("*")):
        if file.is_file():
            client.upload_file(str(file), BUCKET, str(file.relative_to(made.store)))
    return f"s3://{BUCKET}"


def _print(case: Case) -> None:
    asked = case.asked
    cpu = "" if case.cpu_ms is None else f"{case.cpu_ms:.2f}"
    print(
        f"{case.name:<34}{asked.sent / max(asked.seconds, 1e-9):>6.0f}{asked.p50_ms:>9.2f}"
        f"{asked.p99_ms:>9.2f}{asked.max_ms:>9.1f}{cpu:>8}{asked.failed:>8}"
        f"{asked.late:>6}{case.memory_mib:>7.0f}{case.started_s:>9.1f}",
        flush=True,
    )


def _figures(case: Case) -> dict[str, float]:
    asked = case.asked
    found = {
        "p50 ms": asked.p50_ms,
        "p99 ms": asked.p99_ms,
        "CPU ms": case.cpu_ms,
        "failed": asked.failed,
        "MiB": case.memory_mib,
    }
    return {f"{case.name}: {figure}": value for figure, value in found.items() if value is not None}


if __name__ == "__main__":
    main()
