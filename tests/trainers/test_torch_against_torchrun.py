"""A gang's ranks make the very parameters that torchrun's processes make of the same loop."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from partwise.outcomes import Result
from partwise.ranks.context import RankContext
from partwise.trainers.ranks.torch import TorchDistributor
from tests.gangs.local_ranks import ranks_that_have, run_ranks
from tests.lazily import Lazily

torch = Lazily("torch")

pytestmark = pytest.mark.slow  # processes of torchrun


def train(context: RankContext) -> Result:
    from tests.trainers.ddp_training import train_loop

    module, took = train_loop(context.rank, context.params["steps"])
    return Result(module, metrics=took)


def distribute(context: RankContext) -> dict[str, Any]:
    result = TorchDistributor(train)(context)
    return {"state": result.model.state_dict(), **result.metrics}


def by_gang(steps: int) -> dict[str, Any]:
    # DistributedDataParallel imports the second one.
    with ranks_that_have("torch.nn.parallel", "torch._dynamo", __name__):
        return run_ranks(2, distribute, params={"steps": steps})[0]


def by_torchrun(steps: int, output: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("ddp_training.py")
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--standalone", str(script), str(output), str(steps)),
        ],
        check=True,
        timeout=120,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return torch.load(output, weights_only=True)


def test_parameters_are_equal_to_the_bit(tmp_path):
    expected = by_torchrun(50, tmp_path / "state.pt")
    found = by_gang(50)
    assert expected["state"].keys() == found["state"].keys()
    for name, values in expected["state"].items():
        assert torch.equal(found["state"][name], values)
