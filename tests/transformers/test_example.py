"""The example that trains a classifier, exports it and serves it without torch."""

import json
import os
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a model that is trained

EXAMPLES = Path(__file__).parents[2] / "examples"
NO_TORCH = (
    "import runpy, sys; sys.modules |= dict.fromkeys(['torch', 'transformers', 'partwise']);"
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tickets") / "new"


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    """What the example prints for a person who has told no library to stay offline."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "fine_tuned_to_served.py", folder.name],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=900,
        env={name: os.environ[name] for name in os.environ if name != "HF_HUB_OFFLINE"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_process_has_the_same_tokenizer_and_so_trains_the_same_model(said, folder):
    """Those that `tokenizers` trained numbered words otherwise in each; one model had 0.51."""
    example = runpy.run_path(str(EXAMPLES / "fine_tuned_to_served.py"))
    tickets = example["make_tickets"](example["TRAINING"], random.Random(7))
    here = example["make_tokenizer"]([text for text, _ in tickets]).get_vocab()
    there = json.loads((folder / "checkpoint" / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(there) > 500
    assert here == there


def test_the_classifier_learns_and_its_exports_are_as_good(said):
    table = dict(re.findall(r"^(torch|onnx|int8) .* ([\d.]+)%$", said, re.MULTILINE))
    accuracy = {name: float(value) / 100 for name, value in table.items()}
    assert accuracy["torch"] > 0.8, "of four kinds, chance is right in a quarter"
    assert accuracy["onnx"] == accuracy["torch"]
    assert abs(accuracy["int8"] - accuracy["torch"]) < 0.03


def test_int8_takes_less_than_half_of_the_room(said, folder):
    sizes = {name: (folder / name / "model.onnx").stat().st_size for name in ("onnx", "int8")}
    assert sizes["int8"] < sizes["onnx"] / 2


@pytest.mark.parametrize("name", ["onnx", "int8"])
def test_it_is_served_by_a_process_that_has_neither_torch_nor_transformers(said, folder, name):
    tickets = ["where is the router? tracking says nothing", "you charged me twice for the lamp"]
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, EXAMPLES / "serve_tickets.py", folder / name],
        input="\n".join(tickets),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["ticket"] for answer in answers] == tickets
    assert [answer["kind"] for answer in answers] == ["delivery", "billing"]
