"""Ray Tune's part of `benchmarks/study.py`, run by a Python that has ray[tune] and optuna.

python benchmarks/ray_study.py TRIALS SECONDS SLOTS
"""

import json
import sys
import tempfile
import time
from typing import Any


def main() -> None:
    """Run the trials, and print seconds of the call, and of the tuning alone, as JSON."""
    trials, seconds, slots = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    began = time.monotonic()
    import ray
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    def objective(config: Any) -> Any:
        time.sleep(seconds)
        return {"loss": (config["x"] - 0.3) ** 2}

    ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
    ready = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            objective,
            param_space={"x": tune.uniform(-1.0, 1.0)},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                search_alg=OptunaSearch(seed=0),
                num_samples=trials,
                max_concurrent_trials=slots,
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        found = tuner.fit()
        assert len(found) == trials
    ended = time.monotonic()
    ray.shutdown()
    sys.stdout.write(json.dumps({"tune_s": ended - ready, "wall_s": ended - began}) + "\n")


if __name__ == "__main__":
    main()
