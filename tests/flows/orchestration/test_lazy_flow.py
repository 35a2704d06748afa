"""What all flows are before somebody asks for the flow of Prefect's."""

import inspect
import os
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint

import partwise
from partwise.errors import ArgumentError, InputError
from partwise.flows import map_partitions
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


def test_with_options_of_prefect_it_is_called_as_without(flow) -> None:
    changed = flow.with_options(name="other", retries=2)
    assert isinstance(changed, Flow)
    assert (changed.flow.name, changed.retries, flow.flow.name) == ("other", 2, flow.name)
    assert not changed.runs_directly()
    with pytest.raises(ArgumentError, match=rf"{flow.__name__}\(\) has no argument 'bad'\."):
        changed(bad=1)
    with pytest.raises(ArgumentError, match=rf"{flow.__name__}\(\) has no argument 'bad'\."):
        flow(bad=1)


@pytest.mark.parametrize(
    "given",
    [
        {"version": "\ud800"},
        {"filter": [("day", "==", "a\ud800")]},
        {"data": [os.fsdecode(b"/data/\xff.csv")]},
        {"data": Path("/data/\udcff.csv")},
    ],
)
def test_a_text_that_no_file_can_hold_is_refused_before_any_work(given) -> None:
    (name,) = given
    with pytest.raises(InputError, match=rf"^map_partitions\(\): {name} holds '\\ud.*rename"):
        map_partitions(**{"data": "rows.csv", "partition_by": "k", "function": "a:b"} | given)


@pytest.mark.parametrize("library", [pickle, cloudpickle])
def test_a_flow_that_a_function_refers_to_is_sent_by_its_name(flow, library) -> None:
    content = library.dumps(flow)
    assert len(content) < 200
    assert library.loads(content) is flow
