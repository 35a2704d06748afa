"""What a study costs beside its trials: 64 trials of a second on two slots, and others beside it.

    python -m benchmarks.study [--trials 64] [--seconds 1] [--others] [--ray PYTHON] [--json]

`tune_model` runs on two workers of one thread. With --others, Optuna runs the same trials in two
processes of joblib with a study in a file, as its guide for several processes has it. With
--ray, Ray Tune does so on two CPUs, with Optuna's sampler: PYTHON is that of an environment of its
own, in which `pip install "ray[tune]" optuna` was run. With --json the seconds of all are one line.
"""

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from partwise import ExecutionOptions, PickleSerde, Result, tune_model
from partwise.blocks import LocalCluster

SLOTS = 2
SECONDS = 1.0


def sleep(data: Any, context: Any) -> Result:  # noqa: ARG001 (what trainers are given)
    """Sleep, and be as good as the settings say."""
    time.sleep(float(context.params["seconds"]))
    value = float(context.params["x"])
    return Result({"x": value}, metrics={"loss": (value - 0.3) ** 2})


def of_partwise(trials: int, seconds: float) -> dict[str, float]:
    """Return seconds of the trials alone, of the stage, and of the whole call."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        run = tune_model(
            pa.table({"x": [1.0, 2.0]}),
            sleep,
            {"x": {"kind": "uniform", "low": -1.0, "high": 1.0}, "seconds": seconds},
            metric="loss",
            trials=trials,
            run_id="benchmark",
            store=folder,
            serde=PickleSerde(),
            execution=ExecutionOptions(),
            cluster=LocalCluster(workers=SLOTS),
        )
        wall = time.monotonic() - began
        assert run.summary is not None
        return {"tune_s": run.summary.stages["tune"], "wall_s": wall}


def _work(url: str, trials: int, seconds: float, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(url))
    study = optuna.load_study(
        study_name="benchmark", storage=storage, sampler=optuna.samplers.TPESampler(seed=seed)
    )

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -1.0, 1.0)
        time.sleep(seconds)
        return (x - 0.3) ** 2

    study.optimize(objective, n_trials=trials)


def of_optuna(trials: int, seconds: float) -> dict[str, float]:
    """Return seconds of the same in processes of joblib."""
    import optuna
    from joblib import Parallel, delayed

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder, "journal"))
        began = time.monotonic()
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(url))
        optuna.create_study(study_name="benchmark", storage=storage)
        shares = [math.ceil((trials - slot) / SLOTS) for slot in range(SLOTS)]
        Parallel(n_jobs=SLOTS)(
            delayed(_work)(url, share, seconds, slot) for slot, share in enumerate(shares)
        )
        return {"wall_s": time.monotonic() - began}


def of_ray(python: str, trials: int, seconds: float) -> dict[str, float]:
    """Return seconds of the same by Ray Tune, in another environment."""
    script = Path(__file__).with_name("ray_study.py")
    words = [python, str(script), str(trials), str(seconds), str(SLOTS)]
    # Its own variable, as ours would have it look for our packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure, and print one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--ray", default="", help="A Python that has ray[tune] and optuna.")
    parser.add_argument("--json", action="store_true", help="one line for all of them")
    given = parser.parse_args()
    ideal = math.ceil(given.trials / SLOTS) * given.seconds
    found = {"partwise": of_partwise(given.trials, given.seconds)}
    if given.others:
        found["optuna with joblib"] = of_optuna(given.trials, given.seconds)
    if given.ray:
        found["ray tune"] = of_ray(given.ray, given.trials, given.seconds)
    if given.json:
        print(json.dumps({f"{name} s": figures["wall_s"] for name, figures in found.items()}))
        return
    for name, figures in found.items():
        shown = {key: round(value, 2) for key, value in figures.items()}
        within = figures["wall_s"] <= 1.1 * ideal + 5
        print(json.dumps({"name": name, "ideal_s": ideal, **shown, "within_goal": within}))
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
