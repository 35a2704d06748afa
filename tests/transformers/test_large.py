"""A model with a tensor of more than 2 GiB, which no protobuf holds: minutes, and some memory."""

import json
import os
import subprocess
import sys

import pytest

CODE = """
import json, resource, sys
from pathlib import Path

import torch, transformers
from partwise.transformers import config_for, export
from partwise.exports.proof.judge import close_judges

config = transformers.DistilBertConfig(
    vocab_size=2_200_000, dim=256, hidden_dim=8, n_layers=1, n_heads=2,
)
torch.manual_seed(0)
model = transformers.DistilBertModel(config).eval()
size = sum(weights.nbytes for weights in model.parameters())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
report = export(model, config_for(config, "default"), Path(sys.argv[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
close_judges()
judge = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"size": size, "before": before, "peak": peak, "judge": judge,
    "right": report.is_right}))
"""


@pytest.mark.slow
@pytest.mark.alone(in_pairs=True)
def test_more_than_two_gigabytes_go_beside_the_model_without_a_second_copy(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["right"]
    assert found["size"] > 2**31
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size > 2**31
    assert (tmp_path / "out" / "model.onnx").stat().st_size < 10e6
    size, more, judge = (found[name] / 1e9 for name in ("size", "peak", "judge"))
    more -= found["before"] / 1e9
    print(f"{size:.2f} GB; the export took {more:.2f} more, and the judge {judge:.2f} in all")
    assert found["peak"] - found["before"] < found["size"] / 2
    assert found["judge"] < 1.5 * found["size"]
