"""Calls read from the documents of runs, which another process, or another person, wrote."""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from partwise.calls.call import Call, Role, field_types, roles
from partwise.calls.every import CALLS
from partwise.calls.script import ScriptCall
from partwise.calls.written import TORCH
from partwise.errors import InputError, PartwiseError, RunFormatError, SerdeError
from partwise.evaluation.scores import names_function
from partwise.models.serdes import SERDES, ModelSerde
from partwise.publishing.sql_output import Table
from partwise.redaction import without_secrets
from partwise.renamed import block_of_today, with_new_names
from partwise.scripts.spec import argument_words
from partwise.sources.opening import data_of_recipe
from partwise.trainers import TrainerSettings
from partwise.trainers.allowed_modules import check_allowed
from partwise.trainers.ranks.every import DistributedSettings
from partwise.trainers.ranks.torch import TorchDistributor

_COLUMNS = frozenset({"label", "features", "columns", "partition_by", "keep_columns", "weight"})
"""Settings that name columns, which may look like the name of a function."""


def read_arguments(
    call: Mapping[str, Any], *, is_own: bool = False
) -> tuple[type[Call], dict[str, Any]]:
    """Return the kind of a call that `describe_intent` wrote down, and its arguments.

    Of a call that cannot be repeated, what is known is there: no data where the rows were in
    memory. `is_own`: a key of this process signed it. Another one may name functions and classes of
    allowed modules only, even if its caller is trusted.

    Raises:
        RunFormatError: It is not a call that partwise writes down.
        InputError: A class of the call's is not there any more.
        FunctionError: It names a module that it must not.
    """
    try:
        kind = _kind_of(call)
        arguments = _of_today(kind, call["arguments"])
        if not is_own:
            for name in function_names(call):
                check_allowed(name)
        types, known = field_types(kind), roles(kind)
        # Without a value it was not given: its flow has the default.
        given = {name: value for name, value in arguments.items() if value is not None}
        read = {
            name: _from_plain(name, types[name], known[name], value, is_own)
            for name, value in given.items()
        }
        if issubclass(kind, ScriptCall):
            return kind, read
        read["version"] = call["version"]
        if (recipe := call["data"]) is not None:
            read |= {"data": data_of_recipe(recipe), "columns": recipe["columns"]}
            read["filter"] = recipe["filter"]
    except PartwiseError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(error) from error
    return kind, read


def read_call(call: Mapping[str, Any], *, is_own: bool = False) -> Call:
    """Return a call that was written down whole, as `read_arguments` reads it.

    Raises:
        RunFormatError: It is not a call that partwise writes down, or lacks an argument.
        InputError: A class of the call's is not there any more.
        FunctionError: It names a module that it must not.
    """
    kind, arguments = read_arguments(call, is_own=is_own)
    try:
        return kind(**arguments)
    except TypeError as error:
        raise _unreadable(error) from error


def function_names(call: Mapping[str, Any]) -> list[str]:
    """Return what a call that is written down would have imported: "package.module:name"."""
    kind = _kind_of(call)
    known = roles(kind)
    names: list[str] = []
    # By the names of today, as they are read: an old name leads to the same.
    for name, value in _of_today(kind, call["arguments"]).items():
        if name in known and known[name].function:
            names += _function_texts(value)
        if name == "serde" and value is not None and value["name"] not in SERDES:
            names.append(value["name"])
    return names


def _kind_of(call: Mapping[str, Any]) -> type[Call]:
    flow = str(call.get("flow"))
    if flow not in CALLS:
        raise _unreadable(ValueError(f"there is no flow {flow[:80]!r}"))
    return CALLS[flow]


def _of_today(kind: type[Call], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names of today."""
    if issubclass(kind, ScriptCall) and "params" in arguments:
        # Two arguments of earlier versions, of which one stood before the other.
        by_name, words = arguments["params"], arguments["arguments"]
        both = [*argument_words(by_name), *words] if by_name and words else by_name or words
        arguments = {**arguments, "params": both}
        del arguments["arguments"]
    return with_new_names(kind.flow(), arguments)


def _unreadable(error: Exception) -> RunFormatError:
    reason = without_secrets(" ".join(str(error).split()))[:300]
    return RunFormatError(
        f"The call that is written down cannot be read ({type(error).__name__}: {reason}); repeat "
        "the call itself."
    )


def _function_texts(value: Any) -> Iterator[str]:
    """Yield the texts in settings that may be imported as functions."""
    if isinstance(value, str):
        if names_function(value):
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key not in _COLUMNS:
                yield from _function_texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _function_texts(each)


def _from_plain(name: str, kind: Any, role: Role, value: Any, is_own: bool) -> Any:
    if name == "serde":
        return _serde_from_json(value["name"], value["settings"], is_own)
    if name == "output" and isinstance(value, dict):
        return Table(**value)
    if name == "output":
        return block_of_today(value)
    if name == "eval_data":
        return {key: data_of_recipe(recipe) for key, recipe in value.items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_validate(with_new_names(kind.__name__, value))
    if role.function == "always" and isinstance(value, dict):
        if value["kind"] == TORCH:
            settings = {key: each for key, each in value.items() if key != "kind"}
            return TorchDistributor(**with_new_names("TorchDistributor", settings))
        value = _trainer_of_today(value)
        adapter: TypeAdapter[Any] = TypeAdapter(TrainerSettings | DistributedSettings)
        return adapter.validate_python(value)
    return value


def _trainer_of_today(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trainer by their names of today, those of candidates as well."""
    if settings["kind"] == "tuned":
        return with_new_names("Tuned", settings)
    inner = [
        _trainer_of_today(each) if isinstance(each, Mapping) else each
        for each in settings.get("candidates", ())
    ]
    return {**settings, "candidates": inner} if inner else dict(settings)


def _serde_from_json(name: str, settings: Mapping[str, Any], is_own: bool) -> ModelSerde:
    """Make a serde of its class and plain settings: a class of serdes, and nothing else.

    Raises:
        InputError: There is no such class.
        FunctionError: A document must not name its module.
        SerdeError: It is not a class of serdes, or takes no such settings.
    """
    kind: Any = SERDES.get(name)
    if kind is None:
        if not is_own:
            check_allowed(name)
        module, _, qualname = name.partition(":")
        try:
            kind = getattr(importlib.import_module(module), qualname)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"The serde {name!r} cannot be imported: {error}") from error
    # Looked at before it is called: anything that can be called could be named here.
    is_class = isinstance(kind, type) and dataclasses.is_dataclass(kind)
    known = {*dir(kind), *(each.name for each in dataclasses.fields(kind))} if is_class else set()
    if not known >= {"filename", "read", "write"}:
        raise SerdeError(f"{name!r}, which a call names as its serde, is not a class of serdes.")
    try:
        made = kind(**settings)
    except TypeError as error:
        raise SerdeError(f"The serde {name!r} takes no such settings: {error}.") from error
    if not isinstance(made, ModelSerde):
        raise SerdeError(f"{name!r}, which a call names as its serde, is not a ModelSerde.")
    return made
