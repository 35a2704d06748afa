"""What `help()` and notebooks show of a flow."""

import inspect
import pydoc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import WithJsonSchema

import partwise
from partwise import ExecutionOptions
from partwise.flows.orchestration.python_signature import python_signature
from partwise.runs.run import Run

FLOWS = partwise.flows.__all__


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_shows_the_types_of_python(name: str) -> None:
    flow = getattr(partwise, name)
    shown = str(inspect.signature(flow))
    assert len(shown) <= 1_500
    assert "Schema" not in shown
    assert "Annotated" not in shown
    assert list(inspect.signature(flow).parameters) == list(inspect.signature(flow.fn).parameters)
    # The page of `help()` begins with it, and has the documentation below.
    page = pydoc.render_doc(flow, renderer=pydoc.plaintext)
    assert f"{name}{shown}"[:200] in page
    assert "Args:" in page


def test_types_have_their_names_only_and_settings_what_differs() -> None:
    def flow(
        data: Annotated[Any, WithJsonSchema({"type": "string"})],
        way: Literal["a", "b"] = "a",
        *,
        place: str | Path | None = None,
        by_name: Annotated[Mapping[str, int], WithJsonSchema({})] = {},
        call: Callable[..., Any] | str = "",
        usual: ExecutionOptions = ExecutionOptions(),  # noqa: B008
        other: ExecutionOptions = ExecutionOptions(max_retries=3),  # noqa: B008
    ) -> Run:
        raise NotImplementedError

    shown = str(python_signature(inspect.signature(flow)))
    assert shown.startswith(
        "(data: Any, way: 'a' | 'b' = 'a', *, place: str | Path | None = None, "
        "by_name: Mapping[str, int] = {}, call: Callable | str = '', "
        "usual: ExecutionOptions = ExecutionOptions(), "
        "other: ExecutionOptions = ExecutionOptions(max_retries=3)"
    )
    assert shown.endswith(" -> Run")
