"""Calls are what flows take: each field once, described, written down and read back."""

import dataclasses
import inspect
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partwise
from partwise.calls.call import Call, KeyedCall, VersionedCall, role_of
from partwise.calls.descriptions import descriptions, with_parameters
from partwise.calls.every import CALLS
from partwise.calls.exports import ExportCall, ValidateCall
from partwise.calls.intent import describe_intent
from partwise.calls.one_model import DistributedCall, TuneCall
from partwise.calls.partitions import InferCall, MapCall, PortfolioCall, TrainCall
from partwise.calls.pipeline import PipelineCall
from partwise.calls.reading import read_arguments
from partwise.calls.script import ScriptCall
from partwise.engine.fallbacks import Constant
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import Environment
from partwise.evaluation import Backtest, HoldoutFraction
from partwise.gangs.options import GangOptions
from partwise.models.export_options import ExportOptions, ValidationOptions
from partwise.models.serdes import PickleSerde
from partwise.runs.documents import to_json
from partwise.sources.opening import open_source
from partwise.trainers import LightGBMTrainer, Mean
from partwise.trainers.ranks.lightgbm import DistributedLightGBM

EVERY = [*CALLS.values(), PipelineCall]
MODULE = "tests.flows.best_functions"
ROWS = pa.table({"k": ["a"], "y": [1.0]})


@pytest.mark.parametrize("kind", EVERY)
def test_a_flow_takes_the_fields_of_its_call_and_says_what_each_is(kind: type[Call]) -> None:
    names = {each.name for each in dataclasses.fields(kind)}
    flow = getattr(partwise, kind.flow())
    assert set(inspect.signature(flow).parameters) == names
    assert descriptions(kind).keys() == names
    properties = flow.parameters.properties
    assert properties.keys() == names
    for name, text in descriptions(kind).items():
        assert " ".join(properties[name]["description"].split()) == text
        assert text.endswith((".", "?")), name


def test_words_are_those_of_the_class_that_is_nearest() -> None:
    assert "One model on all rows" in descriptions(ExportCall)["data"]
    assert descriptions(ValidateCall)["example_inputs"].startswith("As export_models")
    assert descriptions(ExportCall)["example_inputs"].startswith("For PyTorch modules")


def test_the_section_stands_before_what_is_returned() -> None:
    text = with_parameters("Do it.\n\n    Returns:\n        The run.\n", ExportCall)
    assert text.startswith("Do it.\n\nArgs:\n    training_run_id: The run of")
    assert text.endswith("\n\nReturns:\n    The run.")
    assert max(map(len, text.splitlines())) <= 96


SERDES = st.sampled_from([None, PickleSerde(), PickleSerde(filename="x.pkl")])
FUNCTIONS = st.sampled_from([f"{MODULE}:fit_shifted", f"{MODULE}:fit_median"])
OPTIONS = st.builds(ExecutionOptions, max_retries=st.integers(0, 9))
SCALINGS = st.builds(ScalingConfig, ranks=st.integers(1, 9))
TRAINERS = st.builds(LightGBMTrainer, label=st.just("y"), rounds=st.integers(1, 99))
ENVIRONMENTS = st.sampled_from([Environment(), Environment(packages=("shop<2",))])
HOLDOUTS = st.sampled_from([HoldoutFraction(), Backtest(time="day", horizon=3)])
NAMES = st.lists(st.sampled_from("abc"), max_size=3)
VALUES: dict[str, Any] = {
    "trainer": TRAINERS | FUNCTIONS,
    "serde": SERDES,
    "function": FUNCTIONS,
    "predict": FUNCTIONS | st.just(""),
    "files": st.just([]),
    "candidates": st.just(["run://one@1", "catalog://sales@7#onnx"]),
    "exporter": st.just(""),
    "partition_by": st.just(["k"]),
    "on": NAMES,
    "params": st.none(),
    "execution": OPTIONS,
    "scaling": SCALINGS,
    "gang": st.builds(GangOptions, max_retries=st.integers(0, 9)),
    "environment": ENVIRONMENTS,
    "holdout": HOLDOUTS,
    "keep_columns": NAMES,
    "space": st.just({"rounds": {"kind": "randint", "low": 1, "high": 9}}),
    "metric": st.sampled_from(["", "rmse", "pinball:0.9"]),
    "output": st.none(),
    "eval_data": st.just({}),
    "options": st.builds(ExportOptions, opset=st.integers(13, 17)),
    "validation": st.builds(ValidationOptions, most_rows=st.integers(1, 99)),
    "fallback": st.lists(st.sampled_from(["run://r", "catalog://s@1"]), max_size=2)
    | (st.builds(Constant, value=st.integers(0, 9)) | TRAINERS).map(
        lambda last: ["run://r", last.model_dump(mode="json")]
    ),
    "example_inputs": FUNCTIONS | st.just(""),
}
"""What `prepare_*` puts in the place of a caller's words, by the name of the field."""


def strategy(each: "dataclasses.Field[Any]") -> st.SearchStrategy[Any]:
    if each.name == "models":
        return st.sampled_from(["", "catalog://s@7"]) if each.default == "" else st.just([])
    if each.name in VALUES:
        return VALUES[each.name]
    if each.type is int:
        return st.integers(1, 1 << 40)
    usual = each.default if each.default is not dataclasses.MISSING else "x"
    return st.just(usual)


def written_calls(kind: type[Call]) -> st.SearchStrategy[Call]:
    fields = {each.name: strategy(each) for each in dataclasses.fields(kind) if each.init}
    if not issubclass(kind, KeyedCall) and "params" in fields:
        fields["params"] = st.dictionaries(st.sampled_from("ab"), st.integers(), max_size=2)
    return st.builds(kind, **fields | {"version": st.sampled_from(["", "2"])})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(ROWS, path)
    return open_source(path)


@pytest.mark.parametrize(
    "kind", [kind for kind in EVERY if issubclass(kind, VersionedCall) and kind is not PipelineCall]
)
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_down_is_read_back(source, kind: type[VersionedCall], data) -> None:
    call = data.draw(written_calls(kind))
    intent = describe_intent(call, source.description())
    assert intent.call is not None, intent.call_obstacle
    found, arguments = read_arguments(to_json(intent.call), is_own=True)
    assert found is kind
    known = {name: value for name, value in arguments.items() if hasattr(call, name)}
    given = dataclasses.replace(call, **known).parameters()
    # As the flow that is called with them does.
    again = kind(**getattr(partwise, kind.flow()).validate_parameters(given))
    again = describe_intent(again, source.description())
    assert again.code_fingerprint == intent.code_fingerprint
    assert to_json(again.call) == to_json(intent.call)


def test_what_was_not_there_before_is_left_out_where_it_says_nothing() -> None:
    call = PortfolioCall(ROWS, ["k"], Mean(label="y"), {})
    assert not {"label", "predict"} & call.written_arguments().keys()
    named = dataclasses.replace(call, label="y").written_arguments()
    assert named["label"] == "y"
    assert "environment" not in TrainCall(ROWS, "k", Mean(label="y")).written_arguments()
    assert "format" not in ValidateCall("e").written_arguments()


DECIDES = {
    TrainCall: "partition_by trainer serde seed files",
    InferCall: "partition_by training_run_id predict format serde keep_columns seed files",
    MapCall: "partition_by function seed files",
    DistributedCall: "trainer serde params seed resume_from",
    TuneCall: "trainer space metric direction holdout fit_on serde files seed",
    ExportCall: "training_run_id format example_inputs exporter options validation serde",
}


@pytest.mark.parametrize("kind", DECIDES)
def test_what_decides_is_what_a_resume_compares(kind: type[Call]) -> None:
    """A field that is forgotten here would have a resume keep models of other settings."""
    deciding = {
        each.name
        for each in dataclasses.fields(kind)
        if role_of(each).is_written and role_of(each).decides
    }
    assert deciding == set(DECIDES[kind].split())


def test_a_pipeline_makes_the_calls_of_its_stages() -> None:
    trainer = DistributedLightGBM(label="y")
    call = PipelineCall(
        "rows.parquet", "k", trainer, run_id="p", store="s", format="pt2",
        example_inputs="m:inputs", files=["a.txt"], seed=3, keep_columns=["y"],
        filter=[("day", ">", date(2026, 1, 1))],
        serde="pickle", on_existing_artifacts="resume", cluster="tcp://a:1",
    )  # fmt: skip
    training = call.training()
    assert (training.run_id, training.seed, training.files) == ("p-train", 3, ["a.txt"])
    exporting = call.exporting("p-train")
    assert (exporting.run_id, exporting.training_run_id) == ("p-export", "p-train")
    assert (exporting.format, exporting.example_inputs, exporting.data) == (
        "pt2", "m:inputs", "rows.parquet",
    )  # fmt: skip
    validating = call.validating("p-export")
    assert (validating.export_run_id, validating.format) == ("p-export", "pt2")
    inferring = call.inferring("p-export")
    assert (inferring.data, inferring.filter) == ("rows.parquet", call.filter)
    assert (inferring.on_missing_model, inferring.keep_columns) == ("skip", ["y"])
    later = dataclasses.replace(call, inference_data="later.parquet").inferring("p-export")
    assert (later.data, later.filter) == ("later.parquet", ())
    for stage in (training, exporting, validating, inferring):
        assert (stage.store, stage.serde, stage.on_existing_artifacts, stage.cluster) == (
            "s", "pickle", "resume", "tcp://a:1",
        )  # fmt: skip


def test_the_call_of_a_script_is_read_as_plain_values() -> None:
    call = {
        "flow": "run_script", "data": None, "version": None,
        "arguments": {"entry_script": "a.py", "nodes": 2, "environment": {"packages": ["x"]}},
    }  # fmt: skip
    kind, arguments = read_arguments(call)
    assert ScriptCall(**arguments) == ScriptCall(
        "a.py", nodes=2, environment=Environment(packages=("x",))
    )
    assert kind is ScriptCall
