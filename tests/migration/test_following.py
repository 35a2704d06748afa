"""Which uses of other systems' names are found in a program, and what is said of each."""

import ast
import textwrap

import pytest

from partwise.migration.following import Use, uses_of
from partwise.migration.names import known_names
from partwise.migration.programs import Cell, parsed, read_program

MANY = "from snowflake.ml.modeling.distributors.many_model import ManyModelTraining"


def uses(*sources: str) -> list[Use]:
    texts = [textwrap.dedent(source) for source in sources]
    cells = [Cell(number, text, ast.parse(text)) for number, text in enumerate(texts, 1)]
    return uses_of(cells, known_names())


def told(*sources: str) -> list[tuple[str, str]]:
    return [(use.name, use.row.verdict) for use in uses(*sources)]


def test_a_run_is_followed_from_its_class_to_its_models_through_functions_and_cells():
    found = uses(
        """
        import snowflake.ml.modeling.distributors.many_model as mm
        from snowflake.ml.modeling.distributors.distributed_partition_function import entities as e

        def begin(trainer, rows):
            return trainer.run(partition_by="S", snowpark_dataframe=rows, run_id="r")

        def show(run):
            for key, each in run.partition_details.items():
                print(key.lower(), each.stage_artifacts_manager.list())
        """,
        """
        run = begin(mm.ManyModelTraining(fit, "STAGE"), rows)
        show(run)
        assert run.wait() == e.RunStatus.SUCCESS
        print([each.logs for each in run.get_progress()["DONE"]], run.get_model("North"))
        """,
    )
    assert [(use.cell, use.line, use.name, use.row.verdict) for use in found] == [
        (1, 6, "ManyModelTraining.run", "other name"),
        (1, 6, "ManyModelTraining.run(snowpark_dataframe=)", "needs the session"),
        (1, 9, "DPFRun.partition_details", "differs"),
        (1, 10, "SinglePartitionDetails.stage_artifacts_manager", "other name"),
        (1, 10, "StageArtifactsManager.list", "other name"),
        (2, 2, "ManyModelTraining", "other name"),
        (2, 4, "DPFRun.wait", "same"),
        (2, 4, "RunStatus.SUCCESS", "same"),
        (2, 5, "SinglePartitionDetails.logs", "other name"),
        (2, 5, "DPFRun.get_progress", "differs"),
        (2, 5, "ManyModelRun.get_model", "other name"),
    ]


def test_what_a_function_is_given_is_known_by_who_calls_it():
    assert told(
        f"""
        {MANY} as Many

        def fit(rows, its):
            model = make(rows.to_pandas())
            model.rmse = 0.3
            its.upload_to_stage(model.params, "params.json")
            its.with_session(lambda session: session.table("T"))
            named(model, its)
            return model

        def named(model, its):
            model.name = its.partition_id

        Many(train_func=fit, stage_name="S")
        """
    ) == [
        ("DataConnector.to_pandas", "same"),
        ("an attribute set on a model", "differs"),
        ("PartitionContext.upload_to_stage", "other name"),
        ("PartitionContext.with_session", "differs"),
        ("PartitionContext.with_session(fn=)", "differs"),
        ("Session.table", "needs the session"),
        ("PartitionContext.partition_id", "differs"),
        ("ManyModelTraining", "other name"),
    ]


def test_arguments_are_judged_by_place_and_by_name():
    found = uses(
        """
        from snowflake.ml.modeling.distributors.distributed_partition_function.entities import (
            ExecutionOptions,
        )
        from snowflake.ml.modeling.distributors.xgboost import XGBEstimator

        ExecutionOptions(False, max_retries=2, num_cpus_per_worker=2, patience=3)
        XGBEstimator(100, "binary:logistic", **others)
        """
    )
    assert [(use.name, use.row.verdict, use.row.here) for use in found if "=)" in use.name] == [
        ("ExecutionOptions(use_head_node=)", "differs", ""),
        ("ExecutionOptions(num_cpus_per_worker=)", "other name", "cpus"),
        ("ExecutionOptions(patience=)", "none", ""),
        ("XGBEstimator(objective=)", "differs", 'params={"objective": objective}'),
    ]


HABITS = {
    "import torch.distributed as dist\ndist.init_process_group('nccl')": "init_process_group",
    "labels = frame['\"target\"']": "a quoted lower-case name",
    "work = ManyModelTraining(f, 's').run(run_id='r')\nwhile work.status == 'X':\n    sleep(1)": (
        "a loop that polls"
    ),
    "dataset = connector.to_torch_dataset(batch_size=4)": "DataConnector.to_torch_dataset",
}


@pytest.mark.parametrize("source", HABITS)
def test_habits_are_marked_where_their_system_is_imported(source):
    assert HABITS[source] in dict(told(MANY, source))
    assert told("from azureml.core import Run", source) == []
    assert told(source) == []


def test_a_method_is_known_by_its_name_where_only_a_class_that_programs_are_given_has_it():
    source = (
        "def helper(its, model):\n    its.upload_to_stage(model, 'a')\n    model.save_model('a')"
    )
    assert told(f"{MANY}\n{source}") == [("PartitionContext.upload_to_stage", "other name")]


def test_an_entry_script_is_known_by_its_two_functions():
    script = "def init():\n    load()\n\ndef run(mini_batch):\n    return mini_batch\n"
    found = told(f"from azureml.core import Run\n{script}")
    assert found == [("init() and run() of an entry script", "differs")]
    assert told(script) == []


def test_what_is_no_longer_theirs_is_not_told():
    assert told(
        """
        from snowflake.snowpark.context import get_active_session

        session = get_active_session()
        frame = session.table("T").filter("A > 0").to_pandas()
        print(frame.drop("A"), session.get_role())
        session = None
        session.sql("SELECT 1")
        """
    ) == [
        ("get_active_session", "needs the session"),
        ("Session.table", "needs the session"),
        ("DataFrame.to_pandas", "needs the session"),
        ("Session.get_role", "needs the session"),
    ]


def test_of_ray_it_is_said_what_to_write():
    """What Ray calls by the same or another word is none that has no counterpart."""
    found = uses(
        """
        from ray import train, tune
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        def loop(config):
            train.get_dataset_shard("train")
            train.report({"loss": 0.1})

        run = RunConfig(failure_config=FailureConfig(max_failures=3))
        TorchTrainer(loop, scaling_config=ScalingConfig(2, use_gpu=True), run_config=run).fit()
        tune.Tuner(loop, param_space={"lr": tune.loguniform(0.1, 1)})
        tune.TuneConfig(mode="min", num_samples=3)
        """
    )
    assert [(use.name, use.row.verdict, use.row.here) for use in found] == [
        ("get_dataset_shard", "other name", "context.data()"),
        ("report", "other name", "context.report(loss=0.1)"),
        (
            "RunConfig",
            "other name",
            "train_distributed(run_id=name, store=storage_path, gang=failure_config)",
        ),
        ("FailureConfig", "other name", "GangOptions(max_retries=max_failures)"),
        (
            "TorchTrainer",
            "differs",
            "train_distributed(data, TorchDistributor(train), params=params)",
        ),
        ("ScalingConfig", "differs", "ScalingConfig(ranks=num_workers)"),
        ("ScalingConfig(use_gpu=)", "differs", "ScalingConfig(gpus=1)"),
        ("TorchTrainer.fit", "differs", "run.model()"),
        ("Tuner", "differs", "tune_model(data, trainer, space)"),
        ("loguniform", "same", ""),
        (
            "TuneConfig",
            "other name",
            (
                "tune_model(metric=metric, trials=num_samples, "
                "max_concurrent=max_concurrent_trials, max_duration_s=time_budget_s, "
                "sampler=search_alg, pruner=scheduler)"
            ),
        ),
        ("TuneConfig(mode=)", "differs", 'direction="minimize"'),
    ]


def test_whole_packages_have_a_verdict():
    assert told(
        """
        from snowflake.ml.registry import registry
        import ray
        from azure.ai.ml import MLClient, command
        from azure.ai.ml.entities import AmlCompute

        registry.Registry(session).log_model(model).run(rows)
        ray.data.read_parquet("a")
        job = command(code=".", command="python a.py", tags={})
        MLClient(AmlCompute()).jobs.create_or_update(job)
        """
    ) == [
        ("Registry", "none"),
        ("data.read_parquet", "differs"),
        ("command", "other name"),
        ("command(tags=)", "differs"),
        ("MLClient", "none"),
        ("AmlCompute", "none"),
    ]


MAGIC = """\
%pip install --upgrade \\
    lightgbm
files = !ls
if files:
    !rm a
text = ("%s"
% files)
"""


def test_lines_of_ipython_are_passed_over_and_a_cell_of_sql_is_none_of_python(tmp_path):
    assert ast.unparse(parsed(MAGIC) or ast.parse("")) == (
        "pass\nfiles = None\nif files:\n    pass\ntext = '%s' % files"
    )
    path = tmp_path / "a.ipynb"
    path.write_text(
        """{"cells": [{"cell_type": "markdown", "source": "# A"},
        {"cell_type": "code", "source": ["SELECT 1\\n", "FROM A"]},
        {"cell_type": "code", "source": "%%writefile a.py\\nimport ray"}]}"""
    )
    cells = read_program(path)
    assert [(cell.number, cell.tree is None) for cell in cells] == [(2, True), (3, False)]


def kept(*sources: str) -> dict[str, bool]:
    return {use.name: use.is_kept for use in uses(*sources)}


def test_what_the_layer_has_is_told_from_what_it_lacks_or_refuses():
    assert kept(
        """
        from snowflake.ml.data import DataConnector
        from snowflake.ml.modeling.distributors.pytorch.scaling_config import PyTorchScalingConfig
        from snowflake.ml.registry import Registry
        from snowflake.ml.runtime_cluster import get_nodes
        from snowflake.snowpark import Session, functions as F

        PyTorchScalingConfig(1, 2, None, patience=3)
        session = Session.builder.configs({}).getOrCreate()
        frame = session.table("T").filter("A > 0").pivot("A")
        frame.group_by("A").sum("B").show()
        frame.group_by("A").cube("B")
        chosen = frame.select(F.col("A").alias("B").cast("int"), F.udf(frame))
        chosen.write.mode("append").save_as_table("U")
        rows = DataConnector.from_dataframe(frame, ingestor_class=Own)
        DataConnector.from_ray_dataset(rows)
        get_nodes()
        Registry(session)
        """
    ) == {
        "PyTorchScalingConfig": True,
        "PyTorchScalingConfig(num_workers_per_node=)": True,
        "PyTorchScalingConfig(resource_requirements_per_worker=)": True,
        "PyTorchScalingConfig(patience=)": False,
        "Session.builder": True,
        "SessionBuilder.configs": True,
        "SessionBuilder.getOrCreate": True,
        "Session.table": True,
        "DataFrame.pivot": False,
        "DataFrame.group_by": True,
        "RelationalGroupedDataFrame.cube": False,
        "DataFrame.show": True,
        "DataFrame.select": True,
        "DataFrame.write": True,
        "functions.col": True,
        "Column.cast": False,
        "functions.udf": False,
        "DataConnector.from_dataframe": True,
        "DataConnector.from_dataframe(ingestor_class=)": False,
        "DataConnector.from_ray_dataset": False,
        "get_nodes": True,
        "Registry": False,
    }


def test_of_an_attribute_the_layer_has_what_its_class_has():
    assert kept(
        """
        from azureml.core import Environment, RunConfiguration

        Environment("own").python.conda_dependencies.add_pip_package("polars")
        RunConfiguration().environment.docker
        """
    ) == {
        "Environment": True,
        "Environment(name=)": True,
        "RunConfiguration": True,
        "RunConfiguration.docker": False,
    }


STATEMENTS = {
    'session.sql("SELECT AVG(A) FROM T GROUP BY B")': True,
    'session.sql("SELECT A FROM T WHERE B = ?", [b]).collect()': True,
    "session.sql(\"SELECT A FROM T WHERE B = 'why?' AND C = ?\", [c])": True,
    'session.sql(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM T")': True,
    'session.sql("SELECT HASH(A) FROM T")': False,
    'session.sql("CREATE VIEW V AS SELECT A FROM T")': False,
    'session.sql(f"DROP TABLE IF EXISTS {name}").collect()': True,
    "session.sql(text)": False,
}


@pytest.mark.parametrize("source", STATEMENTS)
def test_of_a_statement_it_is_told_whether_the_session_of_the_layer_knows_it(source):
    found = kept(
        "from snowflake.snowpark.context import get_active_session as of", "session = of()", source
    )
    assert found["Session.sql"] is STATEMENTS[source]
