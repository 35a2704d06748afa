"""Named classes from training to exports, with partitions that lack some of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.blocks import RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.exports.works import CLASSES_FILE
from partwise.flows import export_models, run_inference, train_distributed, train_models
from partwise.reports.report import render_report
from partwise.runs.run import Run
from partwise.tables.classes import CLASS_COLUMN
from partwise.trainers import LightGBMTrainer, XGBoostTrainer
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from tests.flows.test_train_distributed import TWO

CLASSES: dict[str, tuple[Any, ...]] = {
    "text": ("c", "a", "b"),
    "booleans": (False, True),
    "integers": (9, 2**53 + 1, 2**53),
}
PARTITIONS = {"all": (0, 1, -1), "lacks": (1, -1), "one class": (1,), "one row": (0,)}
TRAINERS: dict[str, Callable[..., Any]] = {
    "lightgbm": lambda n, **more: LightGBMTrainer(
        params={"objective": "multiclass" if n > 2 else "binary", "min_data_in_leaf": 2}, **more
    ),
    "xgboost": lambda n, **more: XGBoostTrainer(
        params={"objective": "multi:softprob" if n > 2 else "binary:logistic"}, **more
    ),
}


def rows_of(classes: tuple[Any, ...]) -> pa.Table:
    """Rows whose feature tells their class; that of an unlabelled one too."""
    rows = []
    for key, places in PARTITIONS.items():
        for i in range(1 if key == "one row" else 40):
            place = places[i % len(places)]
            label = None if i == 7 else classes[place]
            rows.append({"key": key, "row": i, "x": float(place % len(classes)), "y": label})
    return pa.Table.from_pylist(rows)


def of_key(run: Run, key: str) -> pa.Table:
    found = run.predictions()
    return found.filter(pc.equal(found["key"], key)).sort_by("row")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "library"), [("text", "lightgbm"), ("booleans", "xgboost"), ("integers", "xgboost")]
)
def test_classes_are_the_same_in_each_partition_and_run(
    kind: str, library: str, tmp_path: Path, cluster: RemoteCluster
) -> None:
    classes = CLASSES[kind]
    given: Any = {
        "store": tmp_path,
        "cluster": cluster,
        "execution": ExecutionOptions(n_shards=1),
    }
    table = rows_of(classes)
    trainer = TRAINERS[library](
        len(classes), label="y", classes=classes, features=("x",), rounds=30, min_rows=2
    )
    trained = train_models(table, "key", trainer, run_id="trained", **given)
    statuses = dict(
        zip(*(trained.partitions[n].to_pylist() for n in ("key", "status")), strict=True)
    )
    assert statuses == {
        "all": "DONE", "lacks": "DONE", "one class": "DONE", "one row": "SKIPPED",
    }  # fmt: skip
    exported = export_models("trained", data=table, run_id="exported", **given)
    used = {
        name: run_inference(
            table,
            "key",
            name,
            run_id=f"{name}-used",
            keep_columns=["row", "y"],
            on_missing_model="skip",
            **given,
        )
        for name in ("trained", "exported")
    }
    columns = ["prediction"] if len(classes) == 2 else [f"prediction_{i}" for i in range(3)]
    for key in ("all", "lacks", "one class"):
        assert exported.artifact(key, CLASSES_FILE) == {
            "label": "y",
            "classes": list(classes),
        }
        model, file = (of_key(used[name], key) for name in ("trained", "exported"))
        for rows in (model, file):
            assert rows.column_names == ["key", "row", "y", *columns, CLASS_COLUMN]
            labelled = rows.filter(rows["y"].is_valid())
            assert labelled[CLASS_COLUMN].to_pylist() == labelled["y"].to_pylist()
        for name in columns:
            np.testing.assert_allclose(model[name], file[name], atol=1e-6)
    for run in (trained, exported, *used.values()):
        assert "one row" in render_report(run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "booleans"])
def test_one_model_of_all_rows_names_its_classes(
    kind: str, tmp_path: Path, cluster: RemoteCluster
) -> None:
    classes = CLASSES[kind]
    objective = "multi:softprob" if len(classes) > 2 else "binary:logistic"
    trainer = DistributedXGBoost(
        label="y", classes=classes, features=("x",), params={"objective": objective}, rounds=30
    )
    given: Any = {"store": tmp_path, "cluster": cluster}
    # Sorted, so that a rank lacks the first class.
    table = rows_of(classes).sort_by("x")
    train_distributed(table, trainer, run_id="trained", scaling=TWO, **given)
    export_models("trained", data=table, run_id="exported", **given)
    for name in ("trained", "exported"):
        used = run_inference(
            table, training_run_id=name, keep_columns=["row", "y"], **given
        ).predictions()
        labelled = used.filter(used["y"].is_valid())
        assert labelled[CLASS_COLUMN].to_pylist() == labelled["y"].to_pylist()
        assert labelled.num_rows == table.num_rows - 3
