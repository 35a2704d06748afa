"""Runs that hold exports: which one belongs to a training run, and which can be laid out."""

import datetime as dt
import json
import math
from dataclasses import replace

import pyarrow as pa
import pytest

from partwise.errors import InputError, RunNotFoundError
from partwise.runs.exports import find_exports
from partwise.runs.kinds import RunKind
from partwise.runs.layout import lay_out
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.run_maker import RunMaker


@pytest.fixture
def training(local_store: Store) -> Run:
    return finished(local_store, "training", "train")


def finished(store: Store, run_id: str, kind: RunKind, serde: str = "", of: str = "") -> Run:
    """Make a run of one partition, of the models of another run or of none."""
    maker = RunMaker(store, run_id, kind, serde)
    maker.identity = replace(maker.identity, models=(f"run://{of}",) if of else ())
    maker.begin()
    maker.commit(("a", "DONE", 1.0))
    return maker.end(1)


def test_the_one_export_in_the_format_is_found(training: Run, local_store: Store) -> None:
    finished(local_store, "as-onnx", "export", "onnx", of="training")
    finished(local_store, "as-pt2", "export", "pt2", of="training")
    finished(local_store, "of-another", "export", "onnx", of="another")
    assert find_exports(training, "onnx").run_id == "as-onnx"
    with pytest.raises(RunNotFoundError, match="no export of the run 'training' to torchscript"):
        find_exports(training, "torchscript")


def test_a_run_that_cannot_be_read_keeps_nobody_from_the_others(training: Run, local_store) -> None:
    local_store.write("runs/newer/run.json", b'{"format_version": 99}\n')
    with pytest.raises(RunNotFoundError, match=r"cannot be read: .*newer"):
        find_exports(training, "onnx")
    finished(local_store, "as-onnx", "export", "onnx", of="training")
    assert find_exports(training, "onnx").run_id == "as-onnx"


def test_a_collection_is_no_export_of_a_training_run(training: Run, local_store: Store) -> None:
    hub = finished(local_store, "hub", "export-transformers", "onnx", of="training")
    with pytest.raises(RunNotFoundError, match="no export of the run 'training' to onnx"):
        find_exports(training, "onnx")
    with pytest.raises(InputError, match="'hub' is of the kind 'export-transformers'; training_"):
        find_exports(hub, "onnx")


@pytest.mark.parametrize("kind", ["export", "export-transformers"])
def test_exports_of_either_kind_are_laid_out(kind: RunKind, local_store: Store, tmp_path) -> None:
    run = finished(local_store, "made", kind, "onnx")
    assert lay_out(run, Store.parse(tmp_path / "served")) == 1
    index = json.loads((tmp_path / "served" / "index.json").read_text())
    (entry,) = index["partitions"]
    assert (tmp_path / "served" / entry["model"]).read_bytes() == b"a 1.0"


def test_no_other_run_is_laid_out(training: Run, tmp_path) -> None:
    with pytest.raises(InputError, match="of the kind 'train'; only a run of export_models or"):
        lay_out(training, Store.parse(tmp_path / "served"))


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([1.5, math.nan, math.inf, -math.inf]), [1.5, "nan", "inf", "-inf"]),
        (pa.array([b"\xff", b"a", b""]), ["ff", "61", ""]),
        (pa.array([0, 1, 86_400_000_000], pa.duration("us")), ["0", "0.000001", "86400"]),
        (pa.array([dt.datetime(2024, 2, 29, 1)]), ["2024-02-29T01:00:00"]),  # noqa: DTZ001
        (pa.array([dt.date(2024, 2, 29), None]), ["2024-02-29", None]),
    ],
)
def test_the_index_of_keys_of_any_type_is_json(values, texts, local_store, tmp_path) -> None:
    keys = pa.schema([("key", values.type)])
    maker = RunMaker(local_store, "made", "export", "onnx", keys=keys)
    maker.begin()
    maker.commit(*((key, "DONE", 1.0) for key in values.to_pylist()))
    lay_out(maker.end(len(values)), Store.parse(tmp_path / "served"))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "served" / "index.json").read_text()
    index = json.loads(text, parse_constant=refuse)
    found = [entry["key"]["key"] for entry in index["partitions"]]
    assert sorted(found, key=str) == sorted(texts, key=str)
