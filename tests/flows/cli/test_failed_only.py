"""`runs resume --failed-only`: a mended function runs what failed, and the rest stays as it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from partwise.errors import InputError
from partwise.flows import train_distributed

FIT = """
def fit(data, context):
    if context.key in {refused!r}:
        raise ValueError("not yet")
    return {{"made_by": {version}}}
"""


def partwise(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    where = os.pathsep.join([str(folder), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", "partwise.flows.cli.main", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_mended_function_runs_what_failed_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("key,x\n" + "".join(f"{key},1\n" for key in "abcd"))
    module = tmp_path / "own_fit.py"
    module.write_text(FIT.format(refused="bd", version=1))
    words = ["train", "rows.csv", "--trainer", "own_fit:fit", "--partition-by", "key"]
    words += ["--run-id", "night", "--pickle", "--max-retries", "0", "--workers", "1"]
    began = partwise(*words, folder=tmp_path)
    assert began.returncode == 3, began.stderr
    module.write_text(FIT.format(refused="", version=2))
    again = partwise("runs", "resume", "night", "--failed-only", "--workers", "1", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    said = "partitions that were DONE before are kept as they are, though function own_fit.fit"
    assert f"warning: Run night: {said}" in again.stderr
    assert f"note        {said}"[:60] in again.stdout
    shown = partwise("runs", "show", "night", "--json", folder=tmp_path)
    record = json.loads(shown.stdout)
    assert (record["kept"], record["executed"]) == (2, 2)
    assert record["remark"].startswith(said)
    report = tmp_path / "artifacts" / "runs" / "night" / "report.html"
    assert said in report.read_text()


def test_a_run_that_is_one_thing_takes_no_such_word() -> None:
    with pytest.raises(InputError, match="on_existing_artifacts"):
        train_distributed("rows.csv", "module:fit", on_existing_artifacts="resume-failed")
