"""The README's own words: its first model and its commands are run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from partwise.flows.demo.table import write_demo_table
from tests.transformers.tiny_checkpoints import save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
CODE = dict(re.findall(r"```(python|bash)\n(.*?)```", README, re.DOTALL))
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where a reader stands after `make demo`."""
    path = tmp_path_factory.mktemp("reader")
    (path / "demo").mkdir()
    write_demo_table(path / "demo" / "sales.parquet")
    return path


def read_aloud(command: list[str], folder: Path) -> str:
    """Run a command as a reader would, and return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_first_model_of_ones_own(prefect_server, folder) -> None:
    (folder / "first.py").write_text(CODE["python"])
    printed = read_aloud([sys.executable, "first.py"], folder)
    assert "SUCCESS" in printed
    assert "50 trees; nothing printed" in printed
    assert "prediction" in printed


@pytest.mark.slow
def test_the_commands(prefect_server, folder) -> None:
    printed = [read_aloud(command.split(), folder) for command in COMMANDS]
    assert "second-used" in printed[3]
    told = zip(COMMANDS, printed, strict=True)
    assert all(("sales" if " data " in command else "SUCCESS") in text for command, text in told)
    (sample,) = (text for text in printed if "A sample of 3 of the 100 partitions" in text)
    assert "next: the same without --sample  (run all partitions)" in sample


@pytest.mark.slow
def test_the_commands_for_models_of_hugging_face(folder) -> None:
    save_checkpoint(folder / "my-bert", "distilbert", "sequence-classification")
    commands = re.findall(r"^    (partwise transformers [^#\n]*)", README, re.MULTILINE)

    printed = [read_aloud(command.split(), folder) for command in commands]

    assert len(printed) == 3
    assert "distilbert" in printed[0]
    assert (folder / "served" / "model.onnx").is_file()


def test_the_two_commands_are_those_of_the_makefile_and_of_ci() -> None:
    wanted = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert wanted == ["demo", "test"]
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    for name in wanted:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE)
        assert f"make {name}" in ci


def test_every_place_that_the_readme_names_exists() -> None:
    names = re.findall(r"`((?:tasks|flows|blocks|tests|benchmarks)/[\w./]+)`", README)
    names += re.findall(r"python ((?:benchmarks|examples)/[\w./]+)", README)
    names += re.findall(r"\]\(([\w/]+\.md)\)", README)
    assert len(names) >= 3
    assert [name for name in names if not (ROOT / name).exists()] == []
