"""What the processes of a run import: what the work needs, and nothing else."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.shards import ShardOfRun, table_of

HEAVY = (
    *("prefect", "distributed", "fastapi", "sqlalchemy", "httpx", "cyclopts", "rich", "jinja2"),
    *("torch", "xgboost", "lightgbm", "sklearn", "scipy", "optuna", "onnx", "onnxruntime", "s3fs"),
)
OF_WORKERS = {"distributed", "jinja2"}
"""Dask itself, and what it imports."""
OF_FLOWS = {"jinja2", "rich"}
"""What reports and progress are made with."""
FUNCTIONS = f"""
import pickle
import sys

from partwise import LocalCluster, Result, Skip, map_partitions, train_models

HEAVY = {HEAVY!r}


def look(data, context):
    from partwise import RemoteCluster

    before = sorted(set(HEAVY) & set(sys.modules))
    if context.key == "a":
        return {{"seen": [" ".join(before)]}}
    # Whoever uses one gets the thing itself.
    assert train_models.name == "train-models"
    assert LocalCluster(workers=3).workers == 3
    assert isinstance(RemoteCluster(address="tcp://127.0.0.1:1"), RemoteCluster)
    assert pickle.loads(pickle.dumps(map_partitions)).name == "map-partitions"

    class Own(LocalCluster):
        workers: int = 7

    def made(cluster: LocalCluster | None = None) -> LocalCluster:
        return cluster or Own()

    return {{"seen": [f"{{made().workers}} {{'prefect' in sys.modules}}"]}}
"""


def test_a_child_imports_what_the_function_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "looking.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    shard = ShardOfRun(tmp_path)
    try:
        function = importlib.import_module("looking").look
        _, run = shard.run(function, table_of(a=1, b=1))
    finally:
        shard.host.close()
        del sys.modules["looking"]
    seen = dict(zip(*run.predictions().select(["key", "seen"]).to_pydict().values(), strict=True))
    assert run.failures().to_pylist() == []
    assert seen == {"a": "", "b": "7 False"}


IMPORTS = f"""
import importlib, json, sys
found = {{}}
for module in sys.argv[1:]:
    importlib.import_module(module)
    found[module] = sorted(set({HEAVY!r}) & set(sys.modules))
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("modules", "allowed"),
    [
        (
            (
                "partwise",
                "partwise.processes.keeper",
                "partwise.engine.child.main",
                "partwise.engine.worker.tasks",
                "partwise.shuffle.load",
                "partwise.studies.worker",
                "partwise.gangs.node",
                "partwise.gangs.rank",
                "partwise.blocks",
            ),
            set(),
        ),
        (("partwise.engine.worker.preload",), OF_WORKERS),
        # Dask is imported while the process is on its way that workers are forked from.
        (
            (
                "partwise.flows.train_models",
                "partwise.flows.train_distributed",
                "partwise.flows.tune_model",
                "partwise.flows.run_script",
            ),
            OF_FLOWS,
        ),
    ],
    ids=["users and children", "workers", "flows"],
)
def test_a_process_imports_nothing_that_its_work_does_not_need(modules, allowed) -> None:
    """What none of several modules imports in one process, none would import alone."""
    # Prefect is imported where one of its settings may name a server.
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    words = [sys.executable, "-c", IMPORTS, *modules]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, env=plain)
    found = json.loads(shown.stdout)
    assert found.keys() == set(modules)
    assert {name: more for name in modules if (more := set(found[name]) - allowed)} == {}
