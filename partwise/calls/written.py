"""The arguments of a call as JSON, so that another process can repeat the call."""

import dataclasses
import sys
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError

from partwise.calls.call import Role
from partwise.environments.environment import Environment
from partwise.errors import InputError
from partwise.models.serdes import serde_name
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table
from partwise.runs.documents import to_json
from partwise.trainers.ranks.torch import TorchDistributor

TORCH = "torch_distributor"
"""The kind of a TorchDistributor, which is not a model with one of its own."""


class CannotRepeatError(Exception):
    """An argument that cannot be written down; says why."""


def to_plain(name: str, value: Any, role: Role) -> JsonValue:
    """Return an argument of a call as JSON has it."""
    if value is None:
        return None
    if name == "eval_data" and None in value.values():
        raise CannotRepeatError("eval_data= is held in memory, or is a query with a password")
    # Those of single partitions, which have been read by now where a path was given.
    if name == "params" and role.is_data:
        raise CannotRepeatError("params= is held in memory")
    if role.function == "always" or callable(value):
        return _function_to_json(name, value)
    if name == "serde":
        return _serde_to_json(value)
    if isinstance(value, Table):
        if value.database.has_secret and not value.block:
            raise CannotRepeatError("output= holds a password")
        return value.block or to_json(dataclasses.asdict(value))
    if isinstance(value, Environment) and value.has_password:
        raise CannotRepeatError("environment= holds a password")
    if isinstance(value, DatasetOutput):
        return str(value)
    if isinstance(value, BaseModel):
        return _to_json(name, value.model_dump(mode="json"))
    if isinstance(value, list | tuple):
        value = [
            each.model_dump(mode="json") if isinstance(each, BaseModel) else each for each in value
        ]
    return _to_json(name, value)


def _to_json(name: str, value: Any) -> JsonValue:
    try:
        return to_json(value)
    except (TypeError, ValueError) as error:
        raise CannotRepeatError(f"{name}= cannot be written as JSON") from error


def _function_to_json(name: str, value: Any) -> JsonValue:
    if isinstance(value, str):
        return value
    if isinstance(value, BaseModel):
        try:
            plain = value.model_dump(mode="json")
        except PydanticSerializationError as error:
            raise CannotRepeatError(f"{name}= has a function: {error}") from None
        return _to_json(name, plain)
    if isinstance(value, TorchDistributor):
        settings = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        settings["train_func"] = _function_to_json(name, value.train_func)
        return _to_json(name, {"kind": TORCH, **settings, "params": {**value.params}})
    module, qualname = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    found = getattr(sys.modules.get(module), qualname, None)
    # Something else may have this name, as where a decorator has wrapped it: that would be called.
    if module == "__main__" or found is not value:
        shown = qualname or type(value).__name__
        raise CannotRepeatError(
            f"{name}= is {shown!r} of {module or 'nowhere'}, which another process cannot import"
        )
    return f"{module}:{qualname}"


def function_parameter(name: str, value: Any) -> JsonValue:
    """Return a function or trainer as another process can find it: settings, or module:name."""
    try:
        plain = _function_to_json(name, value)
    except CannotRepeatError as error:
        raise InputError(f"{error}: put it in a module.") from None
    if isinstance(plain, dict) and plain["kind"] == TORCH:
        raise InputError(f"{name}= is a TorchDistributor, which Prefect's API does not take.")
    return plain


def _serde_to_json(value: Any) -> JsonValue:
    name = serde_name(value)
    if name.startswith("__main__:") or not dataclasses.is_dataclass(value):
        raise CannotRepeatError(f"serde= is {name!r}, which another process cannot make again")
    try:
        settings = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"name": name, "settings": to_json(settings)}
    except (TypeError, ValueError) as error:
        raise CannotRepeatError(f"the settings of serde= {name!r} are not plain") from error
