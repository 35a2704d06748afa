"""The newest other Python of this machine: the wheel is installed there, and a project trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow  # downloads and installs all that partwise needs: half a minute
def test_a_wheel_is_installed_and_a_project_trains(other_python: str, tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "PARTWISE_"))}
    # With the second, each process would compile all packages again.
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        kept.pop(name, None)
    kept["UV_HTTP_RETRIES"] = "3"
    bin_ = tmp_path / "venv" / "bin"

    def run(*words: str, folder: Path = tmp_path) -> str:
        done = subprocess.run(
            words,
            cwd=folder,
            env={**kept, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "Traceback" not in said
        assert "Warning" not in said or words[0] != "partwise", said
        return done.stdout

    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    run(*build, folder=ROOT)
    [wheel] = tmp_path.glob("*.whl")
    run(other_python, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    # Six seconds of a core, where pip takes forty.
    install = [uv.find_uv_bin(), "pip", "install", "--native-tls", "--python", str(bin_ / "python")]
    run(*install, "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    run("partwise", "init", "shop")
    shop = tmp_path / "shop"
    rows = ("data/sales.parquet", "--partition-by", "store", "--workers", "1")
    train = run("partwise", "train", *rows, "--trainer", "forecast:fit", folder=shop)
    assert "20 DONE" in train
    # Who resumes with this release what an earlier one wrote there keeps it.
    script = "from tests.reference.values import code, python; print(python(), code(), sep='\\n')"
    name, digest = run("python", "-c", script, folder=ROOT).splitlines()
    stored = json.loads((ROOT / "tests/reference/v3/values.json").read_text())["code"]
    assert stored.get(name, digest) == digest
