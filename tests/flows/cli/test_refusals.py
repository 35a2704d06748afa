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


def predict(data, model):
    return model


def exporter():
    return "no exporter"
"""
CODE = """
import contextlib, io, json, sys
from partwise.flows.cli.main import main

ended, imported = [], []
heavy = {"prefect", "distributed", "dask", "lightgbm", "xgboost", "pandas", "torch"}
for words in json.loads(sys.stdin.read()):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        code = main(words)
    ended.append([code, err.getvalue()])
    imported.append(sorted(heavy & set(sys.modules)))
json.dump([ended, imported], sys.stdout)
"""
TRAIN = ("train", "sales.parquet", "-p", "store", "--trainer", "lightgbm", "--label", "sales")
FIT = (*TRAIN, "--features", "price")
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
    ((*TRAIN, "--filter", "pric > 0"), "Did you mean 'price'"),
    ((*TRAIN, "--workers", "2", "--devices", "0"), "name different clusters"),
    ((*TRAIN[:3], "stor", *TRAIN[4:]), "Did you mean 'store'"),
    (("train", "gone.parquet", *TRAIN[2:]), "gone.parquet"),
    ((*TRAIN[:5], "lightgbn"), "Did you mean 'lightgbm'"),
    ((*TRAIN[:5], "best", "--candidate", "linaer"), "Did you mean 'linear'"),
    (
        (*TRAIN[:5], "best", *TRAIN[6:], "--candidate", "linear", "--metric", "rmes"),
        "Did you mean 'rmse'",
    ),
    ((*TRAIN[:5], "mine:fitt"), "fitt"),
    ((*TRAIN[:5], "mine:exporter"), r"exporter\(\) cannot be called with \(data, context\)"),
    (TRAIN[:4], "--trainer is missing. See partwise train --help"),
    (TRAIN[:5], "--trainer needs a value. See"),
    ((*TRAIN[:4], "--trianer", "lightgbm"), "Unknown option: --trianer. Did you mean --trainer"),
    (("train", *TRAIN[2:]), "DATA is missing: Where the rows come from"),
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
    # Each other option wrong once.
    (("train", "mine.py", *TRAIN[2:]), "--file-format, or in Python Files"),
    (("train", "bad.csv", *TRAIN[2:]), "'.*bad.csv' cannot be read as csv: .*line 2"),
    (("train", "dataset://sales@9", *TRAIN[2:]), "has no version 9; it has 1"),
    ((*FIT, "--filter", "day ~ 3"), "--filter 'day ~ 3' is not of the form"),
    ((*FIT, "--calendar", "day"), "calendar column 'day' is int64: cast it to a date"),
    ((*FIT, "--rounds", "-3"), "--rounds: .* greater than or equal to 1"),
    ((*FIT, "--holdout-by-time", "dya"), "Did you mean 'day'"),
    ((*FIT, "--holdout-by-time", "day", "--holdout-start", "soon"), "'soon' is not an ISO 8601"),
    ((*FIT, "--backtest-time", "day", "--backtest-horizon", "3X"), "'3X' is not a length of time"),
    ((*FIT, "--folds", "1"), "--folds: .*greater than or equal to 2"),
    ((*FIT, "--max-retries", "-1"), "--max-retries: .*greater than or equal to 0"),
    ((*FIT, "--sample", "0"), "--sample: .*greater than or equal to 1"),
    ((*FIT, "--workers", "-1"), "--workers. Must be >= 0"),
    ((*FIT, "--store", "s3:/bucket"), "'s3:/bucket' is of an unknown kind"),
    ((*FIT, "--store", "a", "--store", "b"), "--store specified multiple times"),
    ((*FIT, "--file-format", "paruqet"), 'Did you mean "parquet"'),
    ((*FIT, "--types", "zip=strin"), "as 'strin', which is not a type"),
    ((*FIT, "--csv-encoding", "utf9"), "--csv-encoding: there is no encoding of this name"),
    ((*FIT, "--tune", "num_leaves=randnt(3,9)"), "give uniform, .*Did you mean 'randint'"),
    (
        (*TRAIN[:5], "xgboost", *TRAIN[6:], "--features", "price", "--param", "max_dpth=3"),
        "XGBoost has no parameter 'max_dpth' .*Did you mean 'max_depth'",
    ),
    (
        (*TRAIN[:5], "xgboost", *TRAIN[6:], "--features", "price", "--param", "max_depth=deep"),
        "XGBoost refuses .* max_depth expect int but value='deep'",
    ),
    ((*TRAIN[:5], "linear", *TRAIN[6:], "--param", "x"), "'x' is not of the form name=value"),
    ((*INFER, "--training-run-id", "train", "--predict", "mine:predict"), "cannot be called with"),
    ((*INFER, "--training-run-id", "train", "--format", "onnxx"), 'Did you mean "onnx"'),
    (
        ("pipeline", *TRAIN[1:], "--features", "price", "--inference-data", "gone.parquet"),
        "There is no file or directory .*gone.parquet",
    ),
    (
        ("pipeline", *TRAIN[1:], "--features", "price", "--keep-columns", "pric"),
        "--keep-columns .*Did you mean 'price'",
    ),
    (
        ("train-distributed", "sales.parquet", "--trainer", "xgbost", "--label", "sales"),
        "--trainer 'xgbost' is not known.* Did you mean 'xgboost'",
    ),
    (
        ("tune", "sales.parquet", *TRAIN[4:], "--space", "num_leaves=randnt(3,9)"),
        "--space .*Did you mean 'randint'",
    ),
    (
        ("tune", "sales.parquet", *TRAIN[4:], "--space", "num_leaves"),
        "--space 'num_leaves' is not of the form name=values",
    ),
    (("runs", "list", "--since", "yesterday"), "--since 'yesterday' is not a moment"),
    (("runs", "export", "train", "--to", "x.docx"), "ends in '.docx': name a file that ends in"),
    (("runs", "show", "train", "--generation", "9"), "no generation 9; its newest is 1"),
    (("data", "show", "sales@9"), "has no version 9; it has 1"),
    (("data", "gc", "--older-than-days", "-1"), "--older-than-days. Must be >= 0"),
    (("data", "gc", "--older-than-days", "inf"), "--older-than-days. Must be <= 36500"),
    (("catalog", "gc", "sales", "--older-than-days", "1e12"), "--older-than-days. Must be <= 3"),
    (("environments", "gc", "--older-than", "nan"), "--older-than. Must be <= 36500"),
    (("runs", "gc", "train", "--grace-hours", "nan"), "grace_hours is nan; it must be 0 or more"),
    (("runs", "gc", "train", "--grace-hours", "1e12"), r"1e\+12; it must be .* at most 876,000"),
]
REFUSED_LATER = [
    (("train", "empty", *TRAIN[2:]), "Directory '.*empty' holds no file that ends in"),
    (("train", "query-block/none", *TRAIN[2:]), "PREFECT_API_URL"),
    ((*FIT, "--filter", "day < 2026-13-45"), "compares column 'day' of type int64"),
    ((*FIT, "--address", "nonsense"), "'nonsense' is not an address of a Dask scheduler"),
    ((*FIT, "--cluster-class", "nonsense"), "'nonsense' does not name a class"),
    ((*INFER, "--training-run-id", "train", "--output", "nonsense"), "not a block's name"),
    (("run-script", "train.py", "--inputs", "x"), "--inputs 'x' is not of the form NAME=PATH"),
    (("run-script", "train.py", "--backend", "mpii"), 'Did you mean "mpi"'),
    ((*FIT, "--requirements", "gone.txt"), "--requirements is|cannot be read|goes with|trainers"),
    (("data", "register", "s2", "sales.parquet", "--label", "sals"), "Did you mean 'sales'"),
    (
        ("tune", "sales.parquet", *FIT[4:], "--space", "num_leaves=4", "--metric", "rmes"),
        "'rmes'.*Did you mean 'rmse'",
    ),
    (("export", "infer"), "of the kind 'infer'; --training-run-id names a run of train_models"),
    (("scale", "3"), "Give the scheduler's --address"),
]
"""By what knows a cluster, a work pool or a database, or compares values: Prefect comes along."""


def test_a_call_is_refused_before_prefect_is_imported(tmp_path: Path) -> None:
    all_refused = [*REFUSED, *REFUSED_LATER]
    shutil.copytree(STORE, tmp_path / "artifacts")
    rows = sales()
    rows = rows.append_column("note", pa.array(["a"] * len(rows)))
    pq.write_table(rows, tmp_path / "sales.parquet")
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "bad.csv").write_text("a,b\n1\n")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    ended = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([words for words, _ in all_refused]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        # Nobody answers there, whether the session has started a server or not.
        env={
            **os.environ,
            "PREFECT_API_URL": "http://127.0.0.1:1/api",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        check=True,
    )
    refusals, imported = json.loads(ended.stdout)
    for (code, text), (words, message) in zip(refusals, all_refused, strict=True):
        *_, last = text.splitlines()
        assert code == 2, (words, text)
        assert re.search(f"^error: .*{message}", last), (words, last)
    for (words, _), found in zip(REFUSED, imported, strict=False):
        assert found == [], words
    assert sorted(tmp_path.rglob("*")) == before
