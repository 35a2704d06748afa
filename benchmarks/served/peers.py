"""MLflow's scoring server and MLServer, each with one model, in an environment of their own."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.frame.row import ROOT
from benchmarks.served.catalog import ROUNDS, Made
from benchmarks.served.servers import Server, free_port, serving

PYTHON = ROOT / ".venv-served" / "bin" / "python"
# One thread a prediction, as partwise has.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1"}


def peer_models(made: Made) -> Path:
    """Return the folder with the model of key 0 as both want it, which is made once."""
    folder = made.folder / "peers"
    if not (folder / "mlserver" / "model-settings.json").exists():
        folder.mkdir(exist_ok=True)
        script = Path(__file__).with_name("peer_model.py")
        words = [str(PYTHON), str(script), str(made.rows), str(folder), str(ROUNDS)]
        subprocess.run(words, check=True, capture_output=True)
    return folder


@contextmanager
def mlflow_serving(folder: Path) -> Iterator[Server]:
    """Run MLflow's scoring server, with one process."""
    port = free_port()
    words = ["-m", "mlflow", "models", "serve", "-m", str(folder / "mlflow"), "-p", str(port)]
    words += ["--env-manager", "local", "--workers", "1"]
    environment = {**ENVIRONMENT, "PATH": f"{PYTHON.parent}:/usr/bin:/bin"}
    with serving([str(PYTHON), *words], port, "/ping", environment) as server:
        yield server


@contextmanager
def mlserver_serving(folder: Path) -> Iterator[Server]:
    """Run MLServer, whose inference goes without its pool of processes."""
    port = free_port()
    settings = {
        "host": "127.0.0.1",
        "http_port": port,
        "grpc_port": free_port(),
        "metrics_port": free_port(),
        "parallel_workers": 0,
    }
    (folder / "mlserver" / "settings.json").write_text(json.dumps(settings))
    words = [str(PYTHON.with_name("mlserver")), "start", str(folder / "mlserver")]
    with serving(words, port, "/v2/health/ready", ENVIRONMENT) as server:
        yield server
