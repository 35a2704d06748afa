"""What a command refuses at once: before Prefect or Dask is imported, and with nothing written."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.reference.functions import sales

STORE = Path(__file__).parents[2] / "reference/v3/store"
"""Has a run of each kind, named for it."""
FUNCTIONS = """
def fit(data, context):
    return len(data.to_arrow())


def exporter():
    return "no exporter"
"""
CODE = """
import contextlib, io, json, sys
from partwise.flows.cli.main import main

ended = []
for words in json.loads(sys.stdin.read()):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        code = main(words)
    ended.append([code, err.getvalue()])
heavy = {"prefect", "distributed", "dask", "lightgbm", "xgboost", "pandas", "torch"}
json.dump([ended, sorted(heavy & set(sys.modules))], sys.stdout)
"""
TRAIN = ("train", "sales.parquet", "-p", "store", "--trainer", "lightgbm", "--label", "sales")
INFER = ("infer", "sales.parquet", "-p", "store")
REFUSED = [
    ((*TRAIN[:-1], "sals"), "The label 'sals' is missing; .* Did you mean 'sales'"),
    ((*TRAIN, "--features", "pric"), "Did you mean 'price'"),
    ((*TRAIN, "--features", "note"), "The feature 'note' is string, and numbers are needed"),
    (
        (*TRAIN, "--features", "price", "--param", "num_leafs=4"),
        "'num_leafs'. Did you mean 'num_leaf'",
    ),
    ((*TRAIN, "--run-id", "a/b"), "The run_id 'a/b'"),
    (
        (*TRAIN, "--run-id", "train"),
        "exists in .*another --run-id, or --on-existing-artifacts resume or overwrite",
    ),
    ((*TRAIN, "--columns", "pricee"), "Did you mean 'price'"),
    ((*TRAIN, "--where", "pric > 0"), "Did you mean 'price'"),
    ((*TRAIN, "--workers", "2", "--gpus", "0"), "name different clusters"),
    ((*TRAIN[:3], "stor", *TRAIN[4:]), "Did you mean 'store'"),
    (("train", "gone.parquet", *TRAIN[2:]), "gone.parquet"),
    ((*TRAIN[:5], "lightgbn"), "Did you mean 'lightgbm'"),
    ((*TRAIN[:5], "best", "--candidate", "linaer"), "Did you mean 'linear'"),
    (
        (*TRAIN[:5], "best", *TRAIN[6:], "--candidate", "linear", "--metric", "rmes"),
        "Did you mean 'rmse'",
    ),
    ((*TRAIN[:5], "mine:fitt"), "fitt"),
    (TRAIN[:4], "--trainer is missing. See partwise train --help"),
    (TRAIN[:5], "--trainer needs a value. See"),
    ((*TRAIN[:4], "--trianer", "lightgbm"), "Unknown option: --trianer. Did you mean --trainer"),
    (("train", *TRAIN[2:]), "DATA is missing: Parquet, CSV"),
    (("train-distributed", *TRAIN[1:2], *TRAIN[4:6], "--label", "z"), "missing; there are 'store'"),
    ((*INFER, "--training-run-id", "trainn"), "There is no run 'trainn' .*train"),
    ((*INFER, "--training-run-id", "infer"), "of the kind 'infer'"),
    ((*INFER, "--training-run-id", "train", "--keep-columns", "pric"), "Did you mean 'price'"),
    ((*INFER[:3], "day", "--training-run-id", "train"), "--partition-by is"),
    (("map", "sales.parquet", "-p", "store", "--function", "mine:fits"), "fits"),
    (("export", "trian"), "There is no run 'trian' .*train"),
    (("export", "train", "--exporter", "mine:exporter"), "is a str, which lacks describe"),
    (
        ("pipeline", *TRAIN[1:], "--format", "torchscript"),
        "Models of lightgbm cannot be exported to torchscript: choose native or onnx",
    ),
    (("pipeline", *TRAIN[1:], "--predict", "mine:fits"), "fits"),
    (("validate", "exports"), "There is no run 'exports' .*export"),
]


def test_a_call_is_refused_before_prefect_is_imported(tmp_path: Path) -> None:
    shutil.copytree(STORE, tmp_path / "artifacts")
    rows = sales()
    rows = rows.append_column("note", pa.array(["a"] * len(rows)))
    pq.write_table(rows, tmp_path / "sales.parquet")
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    before = sorted(tmp_path.rglob("*"))
    ended = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([words for words, _ in REFUSED]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
    )
    refusals, imported = json.loads(ended.stdout)
    for (code, text), (words, message) in zip(refusals, REFUSED, strict=True):
        *_, last = text.splitlines()
        assert code == 2, (words, text)
        assert re.search(f"^error: .*{message}", last), (words, last)
    assert imported == []
    assert sorted(tmp_path.rglob("*")) == before
