"""The forms that Prefect makes of the flows: what they send as they stand is accepted."""

import re

import pytest
from prefect.utilities.callables import parameter_schema

from partwise.errors import InputError
from partwise.flows import (
    compare_models,
    evaluate_predictions,
    export_models,
    export_transformers,
    find_portfolio,
    map_partitions,
    model_pipeline,
    promote_models,
    run_inference,
    run_script,
    train_distributed,
    train_models,
    validate_exports,
)
from partwise.flows.operations.prefect_deploy import form_of
from partwise.flows.orchestration.prefect_flow import PrefectFlow
from tests.lazily import Lazily

validation = Lazily("prefect.utilities.schema_tools.validation")

FLOWS = {
    flow.name: flow
    for flow in (
        train_models,
        find_portfolio,
        train_distributed,
        run_inference,
        compare_models,
        evaluate_predictions,
        promote_models,
        run_script,
        map_partitions,
        export_models,
        validate_exports,
        model_pipeline,
        export_transformers,
    )
}
FILLED_IN = {
    "data": "rows.parquet",
    "partition_by": "store",
    "trainer": "mine:fit",
    "space": {"learning_rate": {"kind": "uniform", "low": 0.1, "high": 0.2}},
    "function": "mine:fit",
    "candidates": ["catalog://sales", "night"],
    "catalog": "sales",
    "training_run_id": "one",
    "export_run_id": "one-onnx",
    "models": [{"model": "models/bert"}],
}


def form(name):
    return form_of(FLOWS[name]).model_dump_for_openapi()


def test_prefect_makes_no_form_of_a_flow_until_somebody_asks_for_it():
    """It takes pydantic 0.4 s, and a flow run needs none."""
    flow = PrefectFlow(train_models)
    assert "parameters" not in vars(flow)
    assert flow.parameters == parameter_schema(train_models.flow)
    assert set(flow.parameters.properties) == set(form("train-models")["properties"])
    with pytest.raises(InputError, match=r"partition_by: Field required"):
        flow.validate_parameters({"data": "rows.parquet"})


def test_what_a_deployment_writes_into_its_form_is_in_no_other_one():
    # As Prefect does for a block that is given in prefect.yaml.
    form_of(train_models).properties["store"]["enum"] = ["mine"]
    assert "enum" not in form("train-models")["properties"]["store"]


@pytest.mark.parametrize("name", FLOWS)
def test_a_form_sends_its_defaults_and_none_is_null(name):
    schema = form(name)
    fields = schema["properties"]
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    sent = {name: FILLED_IN[name] for name in schema.get("required", [])} | defaults
    assert sent.keys() == fields.keys()
    # As the server does before it takes a flow run.
    validation.validate(sent, schema, raise_on_error=True, preprocess=False)
    nested = ("ExportOptions", "ValidationOptions", "ExecutionOptions", "TransformersOptions")
    nested = (*nested, "ScalingConfig", "GangOptions", "Environment", "Tuned", "Budget")
    for options in (*nested, "TransformersExport"):
        for field in schema["definitions"].get(options, {}).get("properties", {}).values():
            assert field.get("default", "") is not None
            assert {"type": "null"} not in field.get("anyOf", [])


@pytest.mark.parametrize("name", FLOWS)
def test_a_form_does_not_speak_of_what_it_cannot_hold(name):
    fields = form(name)["properties"]
    for field, texts in fields.items():
        text = texts.get("description", "")
        assert "From Python" not in text, field
        for word in (", or a function of", "itself", "pandas", "frame or stream", "a serde,"):
            assert word not in text, f"{field}: {text}"
        assert text.endswith("."), field


@pytest.mark.parametrize("name", FLOWS)
def test_a_form_says_first_what_is_the_flows_own(name):
    fields = list(form(name)["properties"])
    run = [each for each in ("run_id", "store", "on_existing_artifacts") if each in fields]
    rest = [each for each in ("version", "cluster", "execution") if each in fields]
    rest += ["infrastructure"] if name == "run-script" else []
    own = [each for each in fields if each not in (*run, *rest)]
    assert fields[: len(own)] == own


@pytest.mark.parametrize("name", FLOWS)
def test_no_word_of_a_form_is_taken_for_a_tag(name):
    """Prefect's page shows descriptions as Markdown, which leaves out what looks like HTML."""
    text = str(form(name))
    assert re.findall(r"<\w[^<>]*>", text) == []
