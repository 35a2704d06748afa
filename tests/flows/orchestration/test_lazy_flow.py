"""What all flows are before somebody asks for the flow of Prefect's."""

import inspect
import pickle
from typing import Any

import cloudpickle
import pytest
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint

import partwise
from partwise.flows.orchestration.lazy_flow import LazyFlow


@pytest.fixture(params=partwise.flows.__all__)
def flow(request: pytest.FixtureRequest) -> Any:
    return getattr(partwise, request.param)


def test_prefect_finds_a_flow_by_its_entrypoint(flow) -> None:
    assert issubclass(type(flow), LazyFlow)
    found = load_flow_from_entrypoint(f"{flow.fn.__module__}:{flow.__name__}")
    assert found is flow
    assert isinstance(found, Flow)
    assert list(found.parameters.properties) == list(inspect.signature(flow).parameters)


@pytest.mark.parametrize("library", [pickle, cloudpickle])
def test_a_flow_that_a_function_refers_to_is_sent_by_its_name(flow, library) -> None:
    content = library.dumps(flow)
    assert len(content) < 200
    assert library.loads(content) is flow
