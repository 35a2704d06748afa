"""Snowflake's classes of many models: what a notebook of theirs asks of them."""

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partwise
from partwise.compat.snowflake.ml.data import DataConnector
from partwise.compat.snowflake.ml.data.sharded_data_connector import ShardedDataConnector
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.dpf import (
    DPF,
    MappedFunction,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.dpf_run import (  # noqa: E501
    DPFRun,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.entities import (  # noqa: E501
    ExecutionOptions,
    PartitionStatus,
    RunStatus,
    own_options,
)
from partwise.compat.snowflake.ml.modeling.distributors.many_model import (
    InferenceFunction,
    ManyModelTraining,
    TorchSerde,
)
from partwise.compat.snowflake.snowpark import Session
from partwise.compat.snowflake.stages import rows_of, stage_store
from partwise.connector.context import MemoryLink
from partwise.datasets.dataset import Dataset
from partwise.datasets.registration import register_dataset
from partwise.errors import InputError, ModelNotFoundError, RunExistsError, SerdeError
from partwise.migration.names import Name, known_names
from partwise.sources.opening import open_source

ROWS = pd.DataFrame({"STORE": [1, 1, 2], "X": [1.0, 2.0, 3.0]})
NOT_ANSWERED = {
    # Of it, no reference says whether it is called of the class or of an estimator.
    "XGBEstimator.load_model",
    # Of partwise itself, under the same name.
    "ModelSerde.*",
    "PickleSerde.*",
}
PACKAGE = Path(partwise.__file__).parent / "compat"


def train(data: Any, context: Any) -> Any:
    print("trains", context.partition_id)
    context.upload_to_stage({"of": context.partition_id}, "notes.pkl")
    return None if context.partition_id == "2" else float(data.to_pandas()["X"].mean())


@pytest.mark.usefixtures("shared_cluster")
def test_a_run_of_training_is_followed_read_and_restored(tmp_path: Path) -> None:
    stage = str(tmp_path / "stage")
    options = ExecutionOptions(max_retries=0)
    run = ManyModelTraining(train, stage).run(
        partition_by="STORE", snowpark_dataframe=ROWS, run_id="v1", execution_options=options
    )
    assert run.wait() is RunStatus.SUCCESS
    with pytest.raises(RunExistsError, match=r"'v1' exists in .* \(SUCCESS\): .*overwrite"):
        ManyModelTraining(train, stage).run(
            partition_by="STORE", snowpark_dataframe=ROWS, run_id="v1"
        )
    assert list(run.get_progress()) == ["DONE"]
    details = run.partition_details
    assert list(details) == ["1", "2"]
    assert details["1"].status is PartitionStatus.DONE
    assert details["1"].status == details["1"].status.name == "DONE"
    assert details["1"].logs == "trains 1\n"
    files = details["1"].stage_artifacts_manager
    assert {"model.pkl", "notes.pkl"} <= set(files.list())
    assert files.get("notes.pkl") == {"of": "1"}
    assert Path(files.download("log.txt", str(tmp_path))).read_text() == "trains 1\n"
    assert run.get_model("1") == 1.5
    with pytest.raises(ModelNotFoundError, match="has no model"):
        run.get_model("2")

    restored = DPFRun.restore_from(run_id="v1", stage_name=stage)
    assert restored.status is RunStatus.SUCCESS
    with pytest.raises(RuntimeError, match="was restored"):
        restored.wait()
    with pytest.raises(RuntimeError, match="was restored"):
        restored.cancel()


def context_in_memory() -> tuple[partwise.PartitionContext, MemoryLink]:
    link = MemoryLink()
    return partwise.PartitionContext(key=7, key_columns=("STORE",), link=link), link


def test_functions_are_given_what_theirs_take() -> None:
    context, link = context_in_memory()
    rows = partwise.DataConnector.from_dataframe(ROWS)

    def draw(data: Any, theirs: Any) -> int:
        assert isinstance(data, DataConnector)
        assert len(data.to_pandas(limit=2)) == 2
        theirs.upload_to_stage(
            [1], "a.json", write_function=lambda obj, path: Path(path).write_text(json.dumps(obj))
        )
        theirs.upload_to_stage({2}, "b.pkl")
        assert theirs.download_from_stage("b.pkl") == {2}
        with pytest.raises(InputError, match="of the partition '7'"):
            theirs.download_from_stage("b.pkl", stage_path="other/8")
        return 3

    assert MappedFunction(draw)(rows, context) is None
    assert link.artifacts["a.json"] == b"[1]"
    InferenceFunction(lambda data, model, theirs: model + 1)(rows, 4, context)
    from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function import (
        partition_context,
    )

    assert partition_context.PartitionContext(context).download_from_stage("output.pkl") == 5


def test_tensors_have_a_second_axis_and_the_last_batch_is_dropped() -> None:
    pytest.importorskip("torch")
    (batch,) = DataConnector.from_dataframe(ROWS).to_torch_dataset(batch_size=2)
    assert batch["X"].shape == (2, 1)


def test_tensors_of_single_rows_are_of_all_rows() -> None:
    torch = pytest.importorskip("torch")
    rows = DataConnector.from_dataframe(ROWS).to_torch_dataset()
    assert [row["X"].tolist() for row in rows] == [[1.0], [2.0], [3.0]]
    batches = torch.utils.data.DataLoader(rows, batch_size=2)
    assert [batch["X"].shape for batch in batches] == [(2, 1), (1, 1)]
    (batch,) = DataConnector.from_dataframe(ROWS).to_torch_datapipe(batch_size=2)
    assert batch["X"].shape == (2, 1)


def test_a_serde_of_modules_takes_what_its_error_says_to_pass(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    own = type("Own", (torch.nn.Linear,), {"__module__": __name__})
    path = str(tmp_path / "model.pt")
    with pytest.raises(SerdeError, match=r"classes=.*=TorchSerde.mode=.state.,"):
        TorchSerde().write(own(1, 1), path)
    assert TorchSerde(classes=[own]) == partwise.TorchSerde(classes=(own,))

    def factory() -> Any:
        return own(1, 1)

    by_state = TorchSerde("weights.pt", mode="state", factory=factory)
    assert by_state == partwise.TorchSerde(filename="weights.pt", mode="state", factory=factory)
    by_state.write(model := factory(), path)
    assert torch.equal(by_state.read(path).weight, model.weight)


def test_named_files_of_a_stage_are_read_alone_and_have_to_be_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(DPF, "_started", lambda self, rows, *_: rows["data"])
    for name in ("a/x[1].parquet", "b/x.parquet", "x.parquet", "!x.parquet", "_y.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [1]}), tmp_path / name)
    (tmp_path / "a/notes.txt").touch()

    def read(*names: str) -> list[str]:
        call = DPF(train, str(tmp_path / "out")).run_from_stage
        found = open_source(call(str(tmp_path), "again", partition_ids=names)).fragments([])
        return [each.constants["__FILE__"] for each in found]

    assert read("b/x.parquet", "a/x[1].parquet") == ["b/x.parquet", "a/x[1].parquet"]
    assert read("x.parquet", "x.parquet", "!x.parquet") == ["x.parquet", "!x.parquet"]
    assert read("_y.parquet", "x.parquet") == ["_y.parquet", "x.parquet"]
    with pytest.raises(InputError, match=r"has not: 'c.parquet', 'a/x1.parquet'\."):
        read("c.parquet", "x.parquet", "a/x1.parquet")


def test_no_file_of_a_stage_that_matches_is_passed_over(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(DPF, "_started", lambda self, rows, *_: rows["data"])
    run = DPF(train, str(tmp_path / "out")).run_from_stage
    for name in ("a", "__NULL__"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "_SUCCESS").touch()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "in/a/data.parquet")
    found = open_source(run(str(tmp_path / "in"), "v1")).fragments([])
    assert [each.constants["__FILE__"] for each in found] == ["a/data.parquet"]
    (tmp_path / "in/__NULL__/data.parquet").touch()
    with pytest.raises(InputError, match=r"would be left out, .*: '__NULL__/data.parquet'\."):
        run(str(tmp_path / "in"), "v1")
    assert run(str(tmp_path / "in"), "v1", "*.csv").names


def test_what_does_nothing_or_cannot_be_is_said() -> None:
    with pytest.warns(UserWarning, match="do nothing here"):
        assert own_options(ExecutionOptions(use_head_node=False)).max_retries == 1
    own = partwise.ExecutionOptions(cpus=2)
    assert own_options(own) is own
    with pytest.raises(InputError, match="factory"):
        TorchSerde(weights_only=True)
    with pytest.raises(InputError, match="resume"):
        DPF(print, "s").run(
            partition_by="STORE",
            snowpark_dataframe=ROWS,
            run_id="a",
            on_existing_artifacts="resume",
        )


def test_stages_are_folders() -> None:
    assert stage_store("@db.schema.my_stage/sub/") == "artifacts/stages/DB.SCHEMA.MY_STAGE/sub"
    assert stage_store("s3://bucket/runs") == "s3://bucket/runs"
    with pytest.raises(InputError, match="no stage"):
        stage_store("@")


def test_frames_of_snowpark_come_by_arrow() -> None:
    table = partwise.DataConnector.from_dataframe(ROWS).to_arrow()
    frame = type("DataFrame", (), {"to_arrow_batches": lambda self: iter([table, table])})
    frame.__module__ = "snowflake.snowpark.dataframe"
    assert rows_of(frame()).num_rows == 6
    for batches in ([], [("Row",)]):
        frame.to_arrow_batches = lambda self, given=batches: iter(given)
        frame.to_pandas = lambda self: ROWS
        assert rows_of(frame()) is ROWS


def stands(module: str) -> bool:
    path = PACKAGE / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def answered() -> list[Name]:
    """Return the rows of the table that stand at a module path which the layer has."""
    rows = [row for row in known_names().rows if row.page == "snowflake.md"]
    return [
        row
        for row in rows
        if stands(row.module)
        and row.verdict in ("same", "other name", "differs")
        and row.name not in NOT_ANSWERED
    ]


def title(row: Name) -> str:
    return f"{row.module}.{row.name}"


def test_rows_come_from_statements_sources_and_datasets(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pa.Table.from_pandas(ROWS)
    pq.write_table(rows, "rows.parquet")
    register_dataset("rows", rows)
    session = Session.builder.create()
    session.create_dataframe(ROWS).write.save_as_table("T")
    for made in (
        DataConnector.from_sql("SELECT * FROM T"),
        DataConnector.from_sources(session, "rows.parquet"),
        DataConnector.from_dataset("rows"),
        ShardedDataConnector.from_dataset(Dataset.open("rows")),
        ShardedDataConnector.from_sources(session, ["rows.parquet"], equal=False),
    ):
        assert made.to_pandas().to_dict("list") == ROWS.to_dict("list")
    streamed = made.to_huggingface_dataset(streaming=True, batch_size=2, drop_last_batch=True)
    assert [row["X"] for row in streamed] == [1.0, 2.0]
    assert made.to_huggingface_dataset(limit=9)["STORE"][:] == [1, 1, 2]
    (batch,) = made.to_torch_datapipe(batch_size=2)
    assert batch["X"].tolist() == [[1.0], [2.0]]
    with pytest.raises(InputError, match="cannot be carried out"):
        DataConnector.from_sql("DELETE FROM T")


@pytest.mark.parametrize("row", answered(), ids=title)
def test_names_of_the_table_are_there_with_their_arguments(row: Name) -> None:
    owner, _, attribute = row.name.partition(".")
    found = getattr(importlib.import_module(f"partwise.compat.{row.module}"), owner)
    if attribute == "run_id" or attribute in getattr(found, "__dataclass_fields__", {}):
        return
    found = getattr(found, attribute) if attribute else found
    if row.parameters is not None and callable(found):
        assert set(row.parameters) <= set(inspect.signature(found).parameters)
