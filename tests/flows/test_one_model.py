"""One model on all rows: inference of every row exactly once, exports of it, and their proof."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import ColumnError, InputError, ModelNotFoundError
from partwise.flows import export_models, run_inference, validate_exports
from partwise.outcomes import RunStatus
from partwise.reports.report import render_report
from partwise.runs.layout import lay_out
from partwise.runs.run import Run
from partwise.sources.derived import BLOCK_ROWS
from partwise.store.store import Store
from tests.lazily import Lazily
from tests.one_model import make_model_run

pytestmark = pytest.mark.usefixtures("single_shard")
dd, xgboost = Lazily("dask.dataframe"), Lazily("xgboost")

ROWS = 3000
SMALL = ExecutionOptions(n_shards=3, max_retries=0)
ONE = ExecutionOptions(n_shards=1, max_retries=0)
"""All on one worker: each one has to load XGBoost first."""


def table_of(rows: int = ROWS) -> pa.Table:
    chance = np.random.default_rng(3)
    x = chance.normal(size=(2, rows)).astype(np.float32)
    return pa.table({"x": x[0], "z": x[1], "row": np.arange(rows), "shop": np.arange(rows) % 4})


def features(table: pa.Table) -> np.ndarray:
    return np.column_stack([table["x"].to_numpy(), table["z"].to_numpy()])


@pytest.fixture(scope="module")
def booster() -> "xgboost.Booster":
    table = table_of()
    label = features(table) @ [2, -1]
    matrix = xgboost.DMatrix(features(table), label, feature_names=["x", "z"])
    return xgboost.train({"max_depth": 3}, matrix, 5)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("one-model")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    """Files with small row groups, and one that is larger than a block."""
    folder = tmp_path_factory.mktemp("rows")
    table = table_of()
    pq.write_table(table.slice(0, 1000), folder / "0.parquet", row_group_size=300)
    pq.write_table(table.slice(1000), folder / "1.parquet")
    return folder


@pytest.fixture(scope="module")
def trained(store, booster, rows, tmp_path_factory) -> Run:
    recipe = {"paths": [str(rows)], "columns": ["x", "z"], "filter": None}
    call = {"flow": "train_distributed", "data": recipe, "arguments": {}, "version": None}
    folder = tmp_path_factory.mktemp("model")
    files = {"words.txt": b"word"}
    return make_model_run(Store.parse(store), "trained", booster, folder, call=call, files=files)


def check(run: Run, booster: "xgboost.Booster", count: int = ROWS) -> pa.Table:
    """See that each row has the model's prediction, exactly once."""
    assert run.status is RunStatus.SUCCESS
    found = run.predictions().sort_by("row")
    assert found["row"].to_pylist() == list(range(count))
    matrix = xgboost.DMatrix(features(table_of(count)), feature_names=["x", "z"])
    expected = booster.predict(matrix)
    np.testing.assert_allclose(found["prediction"].to_numpy(), expected, rtol=1e-6)
    return found


def test_the_model_of_a_run_needs_no_key(trained, booster) -> None:
    assert trained.model().get_dump() == booster.get_dump()
    assert trained.model(0).get_dump() == booster.get_dump()
    with pytest.raises(ModelNotFoundError):
        trained.model(1)
    page = render_report(trained)
    assert "training run of one model" in page
    lines = page.partition('<section id="ranks"')[2].partition("</section>")[0]
    assert lines.count("<td>DONE</td>") == 2


def infer(store, cluster, data: Any, **arguments: Any) -> Run:
    given = {"training_run_id": "trained", "keep_columns": ["row"], "execution": SMALL} | arguments
    return run_inference(data, store=store, cluster=cluster, **given)


def test_every_row_is_in_one_block(trained, booster, store, cluster, rows) -> None:
    run = infer(store, cluster, rows, run_id="blocks")
    found = check(run, booster)
    assert found.column_names == ["block", "row", "prediction"]
    assert run.document.partition_by == ["block"]
    again = infer(store, cluster, rows, run_id="blocks", on_existing_artifacts="resume")
    assert (again.executed, again.kept) == (0, run.ledger.num_rows)


def test_rows_in_memory_and_a_dask_frame(trained, booster, store, cluster) -> None:
    table = table_of()
    check(infer(store, cluster, table, execution=ONE), booster)
    frame = dd.from_pandas(table.to_pandas(), npartitions=3)
    run = infer(store, cluster, frame)
    assert run.ledger.num_rows == 3
    check(run, booster)


def test_columns_that_are_named_make_partitions_with_one_model(
    trained, booster, store, cluster, rows
) -> None:
    run = infer(store, cluster, rows, partition_by="shop", execution=ONE)
    assert run.ledger["key.shop"].to_pylist() == [0, 1, 2, 3]
    check(run, booster)


def seen(data: Any, model: Any, context: Any) -> dict[str, Any]:
    """Predict, and read what rank 0 left beside the model."""
    word = context.download("words.txt", run_id="trained", read=lambda path: Path(path).read_text())
    return {"id": [id(model)] * data.num_rows, "word": [word] * data.num_rows}


def test_a_process_reads_the_model_once(trained, store, cluster, rows) -> None:
    run = infer(store, cluster, rows, partition_by="shop", predict=seen, execution=ONE)
    found = run.predictions()
    assert len(set(found["id"].to_pylist())) == 1
    assert set(found["word"].to_pylist()) == {"word"}


def test_an_export_of_the_one_model(trained, booster, store, cluster, rows, tmp_path) -> None:
    run = export_models("trained", "onnx", run_id="onnx", store=store, cluster=cluster)
    assert run.counts == {"DONE": 1}
    assert run.ledger["rows"].to_pylist() == [ROWS]
    assert run.model().predict(table_of().select(["x", "z"])) is not None
    assert lay_out(run, Store.parse(tmp_path / "served")) == 1
    again = validate_exports("onnx", run_id="proof", store=store, cluster=cluster)
    assert again.counts == {"DONE": 1}
    onnx = {"format": "onnx", "execution": ONE}
    check(infer(store, cluster, rows, training_run_id="onnx", **onnx), booster)
    check(infer(store, cluster, rows, partition_by="shop", **onnx), booster)


def test_what_is_refused(trained, store, cluster, rows) -> None:
    with pytest.raises(InputError, match="training_run_id is missing"):
        run_inference(rows, store=store, cluster=cluster)
    with pytest.raises(ColumnError, match="does not have"):
        infer(store, cluster, rows, partition_by="shops")


@pytest.mark.slow
def test_a_large_table_is_cut_into_blocks(trained, booster, store, cluster, tmp_path) -> None:
    count = 2 * BLOCK_ROWS + 5
    pq.write_table(table_of(count), tmp_path / "rows.parquet")
    run = infer(store, cluster, tmp_path / "rows.parquet")
    check(run, booster, count)
    assert pc.sum(run.ledger["rows"]).as_py() == count
    assert run.ledger["rows"].to_pylist() == [BLOCK_ROWS, BLOCK_ROWS, 5]
