"""Prefect's own command `deploy`, with forms of ours, and begun before there is a server.

It deploys one after another. Prefect 3.8 makes a flow's form twice for each of its deployments, and
reads the machine's certificates for each of some eighty clients: of the 16 s of this process on the
twenty deployments of prefect.yaml, these were 9 s. Here a form is made once, while the server still
starts, and the certificates are read once. To put forms into deployments that are there already, as
this did before, takes the server a quarter of a second each.

There is no setting for any of it: this holds for the releases that pyproject.toml allows, and tests
of deployments look at it.
"""

import functools
import ssl
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

from partwise.processes.garbage import collecting_rarely

with collecting_rarely():
    from prefect.cli import app
    from prefect.cli.deploy import _core
    from prefect.deployments import runner
    from prefect.flows import load_flow_from_entrypoint
    from prefect.utilities.callables import ParameterSchema, parameter_schema

ONLY_PYTHON = "From Python also"
"""How the sentence begins that says what no form can hold."""


class Form(ParameterSchema):
    """The form of a flow, by which the server refuses unknown parameters by name.

    As Prefect makes it they pass, and the flow run crashes before it can say anything.
    """

    additionalProperties: bool  # noqa: N815 (its name in JSON schemas)


def main() -> None:
    """Make the forms of the entrypoints that are named, and deploy the file that stdin names then.

    Without such a line, nothing is deployed.
    """
    _core.parameter_schema = runner.parameter_schema = form_of  # type: ignore[assignment,attr-defined]
    ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]
    for entrypoint in _modules(sys.argv[1:]):
        # Whatever is wrong with one, Prefect says when it is deployed.
        with suppress(Exception):
            form_of(load_flow_from_entrypoint(entrypoint))
    file = sys.stdin.readline().strip()
    if not file:
        return
    # Prefect takes --no-prompt in front of the command only.
    sys.argv = ["prefect", "--no-prompt", "deploy", "--all", "--prefect-file", file]
    app()


def _modules(entrypoints: Iterable[str]) -> Iterable[str]:
    """Return those that name modules: a file of a script is run each time that it is loaded."""
    return (each for each in dict.fromkeys(entrypoints) if ":" not in each)


def form_of(flow: Callable[..., Any]) -> Form:
    """Return the form of a flow, in which Prefect writes what a deployment has chosen."""
    return Form(**deepcopy(_form_of(flow)), additionalProperties=False)


@functools.cache
def _form_of(flow: Callable[..., Any]) -> dict[str, Any]:
    return for_form(parameter_schema(flow).model_dump(exclude_unset=True))


def for_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a flow's parameters without the help that is of no use in a form.

    In the docstrings of flows it comes last: what only Python can pass, such as a function.
    """
    properties = {}
    for name, shown in schema.get("properties", {}).items():
        # In one line: a docstring is broken anywhere.
        text = " ".join(shown.get("description", "").split()).partition(ONLY_PYTHON)[0]
        properties[name] = {**shown, "description": text.rstrip()} if text else shown
    return {**schema, "properties": properties}


if __name__ == "__main__":
    with collecting_rarely():
        main()
