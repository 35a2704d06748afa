"""The table of names: what it tells people to write is there to be written."""

import ast
import inspect
from typing import Any

import pytest

import partwise
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.flows.orchestration.started_run import StartedRun
from partwise.migration.names import Name, known_names
from partwise.ranks.context import RankContext
from partwise.runs.run import Run

NAMES = known_names()
STAND_INS = {
    "run": (Run, StartedRun),
    "context": (PartitionContext, RankContext),
    "data": (DataConnector,),
}


def _taken(function: Any) -> set[str]:
    fields = getattr(function, "__dataclass_fields__", None)
    return set(fields or inspect.signature(function).parameters)


def _takes(function: Any, names: set[str]) -> bool:
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return names <= _taken(function) or inspect.Parameter.VAR_KEYWORD in kinds


FLOWS = [getattr(partwise, name) for name in partwise._MODULES["partwise.flows"]]
OPTIONS = set().union(*map(_taken, FLOWS))


def _has(owner: Any, name: str) -> bool:
    fields = getattr(owner, "__dataclass_fields__", {})
    return hasattr(owner, name) or name in fields or name in getattr(owner, "__annotations__", {})


def _meant(node: ast.expr) -> list[Any]:
    """What a dotted name of an answer may be; empty: something of another library."""
    match node:
        case ast.Name(id=name) if name in partwise.__all__:
            return [getattr(partwise, name)]
        case ast.Name(id=name):
            return list(STAND_INS.get(name, ()))
        case ast.Attribute(value=ast.Name(id="get_context")):
            return []
        case ast.Attribute():
            owners = _meant(node.value)
            found = [each for each in owners if _has(each, node.attr)]
            if owners and not found:
                raise LookupError(ast.unparse(node))
            if node.attr == "start":
                return owners
            return [getattr(each, node.attr) for each in found if hasattr(each, node.attr)]
    return []


def _check(node: ast.AST) -> None:
    """Refuse an answer that names what is not there, or gives it arguments that it has not."""
    match node:
        case ast.Call():
            given = {each.arg for each in node.keywords if each.arg}
            functions = [each for each in _meant(node.func) if callable(each)]
            if functions and not any(_takes(each, given) for each in functions):
                raise LookupError(ast.unparse(node))
        case ast.Name(id=name) if name[0].isupper() and name not in partwise.__all__:
            raise LookupError(name)
        case ast.Attribute():
            _meant(node)
        case ast.Assign(targets=[ast.Name(id=name)]) if name not in OPTIONS:
            raise LookupError(name)


def _answers() -> list[str]:
    rows = [*NAMES.rows, *NAMES.habits.values()]
    rows += [argument for row in NAMES.rows for argument in row.arguments.values()]
    return sorted({row.here for row in rows if row.here and not row.here.startswith("partwise ")})


def test_what_is_to_be_written_is_there_with_its_arguments():
    for here in _answers():
        for node in ast.walk(ast.parse(here)):
            _check(node)


def _open(row: Name) -> list[str]:
    """The parameters of a call of theirs of which nothing is said."""
    said = {each.id for each in ast.walk(ast.parse(row.here)) if isinstance(each, ast.Name)}
    return [each for each in row.parameters or () if each not in said | set(row.arguments)]


def test_of_each_argument_something_is_said():
    calls = [row for row in NAMES.rows if row.parameters and row.verdict != "none"]
    assert [(row.name, found) for row in calls if (found := _open(row))] == []
    own = [(row, argument) for row in NAMES.rows for argument in row.arguments.maps[0]]
    assert [(row.name, one) for row, one in own if one not in (row.parameters or ())] == []


def test_what_is_the_same_has_the_same_name():
    classes = [row.name for row in NAMES.rows if row.verdict == "same" and "." not in row.name]
    assert {"RunStatus", "PickleSerde", "ExecutionOptions"} <= set(classes) <= set(partwise.__all__)


def test_each_class_that_a_row_names_has_a_row():
    named = [(row, row.gives) for row in NAMES.rows if row.gives]
    named += [(row, row.base) for row in NAMES.rows if row.base]
    named += [(row, one) for row in NAMES.rows for each in row.functions.values() for one in each]
    missing = [name for row, name in named if not NAMES.class_path(row, name) and name != "object"]
    assert missing == []


@pytest.mark.parametrize(
    ("path", "name", "beyond"),
    [
        ("snowflake.ml.data.DataConnector.to_pandas", "DataConnector.to_pandas", ""),
        ("snowflake.ml.modeling.distributors.many_model.ManyModelRun.wait", "DPFRun.wait", ""),
        ("snowflake.ml.modeling.tune.search.BayesOpt", "BayesOpt", ""),
        ("azureml.core.run.Run.get_context", "Run.get_context", ""),
        ("azureml.core.Workspace.from_config", "Workspace.*", ""),
        ("snowflake.ml.registry.registry.Registry", "*", "registry.Registry"),
    ],
)
def test_a_path_leads_to_its_row(path, name, beyond):
    found = NAMES.find(path)
    assert found is not None
    assert (found[0].name, found[1]) == (name, beyond)


def test_of_what_nobody_knows_there_is_no_row():
    assert NAMES.find("numpy.random.uniform") is None
