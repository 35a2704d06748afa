"""A call of a flow, written down so that `partwise runs resume` can repeat it elsewhere."""

import dataclasses
import hashlib
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic_core import PydanticSerializationError

from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import Environment
from partwise.errors import InputError, PartwiseError, RunFormatError, SerdeError
from partwise.fingerprints.functions import (
    CodeFingerprint,
    arguments_fingerprint,
    canonical_bytes,
)
from partwise.fingerprints.libraries import library_version
from partwise.gangs.options import GangOptions
from partwise.models.serdes import SERDES, ModelSerde, serde_name
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table
from partwise.runs.claim import Intent
from partwise.runs.documents import to_json
from partwise.runs.kinds import KINDS, RunKind
from partwise.sources.descriptions import SourceDescription
from partwise.sources.input_files import checksums
from partwise.sources.opening import data_of_recipe
from partwise.trainers import Best, TrainerSettings, Tuned, resolve_trainer
from partwise.trainers.allowed_modules import check_allowed
from partwise.trainers.distributed import DistributedSettings
from partwise.trainers.scored import LabelSettings
from partwise.trainers.torch_distributor import TorchDistributor

FUNCTIONS = ("trainer", "predict", "function", "inputs", "exporter")
MAYBE_FUNCTIONS = ("space", "metric")
"""Arguments that are plain values, functions, or the names of functions."""
EXPORT_LIBRARIES = ("partwise", "lightgbm", "xgboost", "onnx", "onnxruntime")
NOT_CODE = (
    *("execution", "params", "null_keys", "on_missing_model", "output", "models"),
    *("eval_data", "scaling", "gang", "environment", "size"),
)
"""Arguments that decide which partitions there are, or how they are executed; params, and
models of transformers, are compared partition by partition, eval sets as rows are, and of an
environment the packages that it came to."""

_TORCH = "torch_distributor"
_OPTIONS: Mapping[str, type[BaseModel]] = {
    "execution": ExecutionOptions,
    "scaling": ScalingConfig,
    "gang": GangOptions,
    "environment": Environment,
}


FLOWS = tuple(kind.flow for kind in KINDS.values())
"""Those whose calls are written down."""
_COLUMNS = frozenset({"label", "features", "columns", "partition_by", "keep_columns", "weight"})
"""Settings that name columns, which may look like the name of a function."""


class _CannotRepeatError(Exception):
    """An argument that cannot be written down; says why."""


def describe_intent(
    kind: RunKind,
    source: SourceDescription,
    arguments: Mapping[str, Any],
    version: str | None,
    uses: str | None = None,
    packages: Mapping[str, str] | None = None,
    not_code: Sequence[str] = (),
) -> Intent:
    """Return what a call is about to do: its fingerprints, and the call, if it can be repeated.

    Args:
        kind: Of the run.
        source: What the source says of itself.
        arguments: The call's arguments but for data, run_id, store, cluster and version.
        version: The user's own word for the code, which is taken in place of looking.
        uses: The fingerprint of what the call uses besides: trained models, eval sets.
        packages: Versions of the packages that come before those installed here.
        not_code: Arguments, besides `NOT_CODE`, that only say how much is done.
    """
    packages = packages or {}
    deciding = {name: value for name, value in arguments.items() if name not in not_code}
    code = _fingerprint_code(deciding, version, packages)
    obstacle = None
    if source.recipe is None:
        obstacle = "the rows are a frame or table in memory, or a query with a password"
    written: dict[str, JsonValue] = {}
    for name, value in arguments.items():
        try:
            written[name] = _to_json(name, value)
        except _CannotRepeatError as error:
            obstacle = obstacle or str(error)
    call: dict[str, JsonValue] = {
        "flow": KINDS[kind].flow,
        "data": to_json(source.recipe),
        "arguments": written,
        "version": version,
    }
    return Intent(
        source_fingerprint=source.fingerprint,
        inputs_fingerprint=_fingerprint_inputs(source, arguments, uses),
        code_fingerprint=code.digest,
        code_unknown=code.unknown,
        code_parts=code.parts,
        packages=packages,
        call=None if obstacle else call,
        call_obstacle=obstacle,
        call_known=call if obstacle else None,
    )


def _fingerprint_code(
    arguments: Mapping[str, Any], version: str | None, packages: Mapping[str, str]
) -> CodeFingerprint:
    """Fingerprint all that decides what becomes of a partition of given rows, params and model.

    Raises:
        InputError: A file that the function reads is missing.
    """
    deciding = {name: value for name, value in arguments.items() if name not in NOT_CODE}
    for name in (*FUNCTIONS, *MAYBE_FUNCTIONS):
        # What a name stands for may change; and a resume by name goes on with a function's run.
        value = deciding.get(name)
        if isinstance(value, str) and (name in FUNCTIONS or names_function(value)):
            deciding[name] = resolve_trainer(value)
    files = deciding.pop("inputs") if _are_files(deciding.get("inputs")) else ()
    trainer: Any = deciding.get("trainer")
    libraries: tuple[str, ...] = ()
    if isinstance(trainer, LabelSettings):
        libraries = (*trainer.libraries, "partwise")
    if version is None and isinstance(trainer, Best | Tuned):
        deciding["trainer"] = trainer.resolved()
    elif isinstance(trainer, Best):
        deciding["trainer"] = trainer.map_functions(_name_of)
    if "validation" in deciding:
        # A newer one is proved anew.
        libraries = EXPORT_LIBRARIES
    if version is not None:
        # The user's word stands for code, but not for settings, which can be compared.
        serde = deciding.get("serde")
        deciding |= {"version": version, "serde": serde and [serde_name(serde), serde.filename]}
        for name in (*FUNCTIONS, *MAYBE_FUNCTIONS):
            if callable(deciding.get(name)) and not isinstance(deciding[name], BaseModel):
                del deciding[name]
    given = {f"library {name}": library_version(name) for name in libraries}
    given |= {f"library {name}": found for name, found in packages.items()}
    given |= {f"file {name}": digest for name, digest in checksums(files).items()}
    return arguments_fingerprint({f"{name}=": value for name, value in deciding.items()}, given)


def _name_of(function: Any) -> str:
    """Return what a user's word for the code leaves to be compared of a function."""
    return function if isinstance(function, str) else getattr(function, "__name__", "")


def names_function(text: str) -> bool:
    """Tell "package.module:function" from the name of a metric, which may be "pinball:0.9"."""
    return ":" in text and text.rpartition(":")[2].isidentifier()


def _are_files(inputs: Any) -> bool:
    """Tell the files that a function reads from the function that makes inputs for an export."""
    return isinstance(inputs, list | tuple)


def _fingerprint_inputs(
    source: SourceDescription, arguments: Mapping[str, Any], uses: str | None
) -> str | None:
    """Fingerprint all that partitions are made of; None where that is unknown."""
    params = arguments.get("params")
    try:
        if isinstance(params, Mapping):
            # The order of keys is no matter; that of one key's parameters is.
            params = sorted(map(canonical_bytes, params.items()))
        inputs = [source.fingerprint, arguments.get("null_keys"), params, uses]
        return hashlib.sha256(canonical_bytes(inputs)).hexdigest()
    except TypeError:
        return None


def read_call(call: Mapping[str, Any], *, is_own: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the flow's name and the arguments of a call that `describe_intent` wrote down.

    Of a call that cannot be repeated, what is known is there: no data where the rows were in
    memory.

    Args:
        call: As it is written down.
        is_own: Whether a key of this process signed it. Another one may name functions and classes
            of allowed modules only, whatever its caller trusts.

    Raises:
        RunFormatError: It is no call that partwise writes down.
        InputError: A class of the call's is not there any more.
        FunctionError: It names a module that it must not.
    """
    try:
        flow, arguments = call["flow"], dict(call["arguments"])
        if flow not in FLOWS:
            raise ValueError(f"there is no flow {str(flow)[:80]!r}")
        if not is_own:
            for name in _names_of_functions(arguments):
                check_allowed(name)
        if flow == "run_script":
            # Of plain values only.
            return flow, arguments
        read = {name: _from_json(name, value, is_own) for name, value in arguments.items()}
        read["version"] = call["version"]
        if (recipe := call["data"]) is not None:
            read |= {"data": data_of_recipe(recipe), "columns": recipe["columns"]}
            read["filter"] = recipe["filter"]
    except PartwiseError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise RunFormatError(
            f"The call that is written down cannot be read ({type(error).__name__}: {reason}); "
            "repeat the call itself."
        ) from error
    return flow, read


def function_names(call: Mapping[str, Any]) -> list[str]:
    """Return what a call that is written down would have imported: "package.module:name"."""
    return list(_names_of_functions(call["arguments"]))


def _names_of_functions(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if name in (*FUNCTIONS, *MAYBE_FUNCTIONS) and not _are_files(value):
            yield from _function_texts(value)
        if name == "serde" and value is not None and value["name"] not in SERDES:
            yield value["name"]


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


def _to_json(name: str, value: Any) -> JsonValue:
    if value is None:
        return None
    if name == "eval_data" and None in value.values():
        raise _CannotRepeatError("eval_data= is held in memory, or is a query with a password")
    if name == "params":
        raise _CannotRepeatError("params= is held in memory")
    if (name in FUNCTIONS and not _are_files(value)) or callable(value):
        return _function_to_json(name, value)
    if name == "serde":
        return _serde_to_json(value)
    if isinstance(value, Table):
        if value.database.has_secret and not value.block:
            raise _CannotRepeatError("output= holds a password")
        return value.block or to_json(dataclasses.asdict(value))
    if isinstance(value, Environment) and value.has_password:
        raise _CannotRepeatError("environment= holds a password")
    if isinstance(value, DatasetOutput):
        return str(value)
    if isinstance(value, BaseModel):
        return to_json(value.model_dump(mode="json"))
    try:
        return to_json(value)
    except (TypeError, ValueError) as error:
        raise _CannotRepeatError(f"{name}= cannot be written as JSON") from error


def _function_to_json(name: str, value: Any) -> JsonValue:
    if isinstance(value, str):
        return value
    if isinstance(value, BaseModel):
        try:
            return to_json(value.model_dump(mode="json"))
        except PydanticSerializationError as error:
            raise _CannotRepeatError(f"{name}= has a function: {error}") from None
    if isinstance(value, TorchDistributor):
        settings = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        settings["train_func"] = _function_to_json(name, value.train_func)
        return to_json({"kind": _TORCH, **settings, "hyperparameters": {**value.hyperparameters}})
    module, qualname = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    found = getattr(sys.modules.get(module), qualname, None)
    if module == "__main__" or found is not value:
        shown = qualname or type(value).__name__
        raise _CannotRepeatError(
            f"{name}= is {shown!r} of {module or 'nowhere'}, which another process cannot import"
        )
    return f"{module}:{qualname}"


def function_parameter(name: str, value: Any) -> JsonValue:
    """Return a function or trainer as another process can find it: settings, or module:name.

    Raises:
        InputError: It cannot be found there.
    """
    try:
        plain = _function_to_json(name, value)
    except _CannotRepeatError as error:
        raise InputError(f"{error}: put it in a module.") from None
    if isinstance(plain, dict) and plain["kind"] == _TORCH:
        raise InputError(f"{name}= is a TorchDistributor, which Prefect's API does not take.")
    return plain


def _serde_to_json(value: Any) -> JsonValue:
    name = serde_name(value)
    if name.startswith("__main__:") or not dataclasses.is_dataclass(value):
        raise _CannotRepeatError(f"serde= is {name!r}, which another process cannot make again")
    try:
        settings = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"name": name, "settings": to_json(settings)}
    except (TypeError, ValueError) as error:
        raise _CannotRepeatError(f"the settings of serde= {name!r} are not plain") from error


def _from_json(name: str, value: Any, is_own: bool) -> Any:
    if value is None:
        return None
    if name in FUNCTIONS and isinstance(value, dict):
        settings = {key: each for key, each in value.items() if key != "kind"}
        if value["kind"] == _TORCH:
            return TorchDistributor(**settings)
        adapter: TypeAdapter[Any] = TypeAdapter(TrainerSettings | DistributedSettings)
        return adapter.validate_python(value)
    if name == "serde":
        return _serde_from_json(value["name"], value["settings"], is_own)
    if name == "output" and isinstance(value, dict):
        return Table(**value)
    if name in _OPTIONS:
        return _OPTIONS[name].model_validate(value)
    if name == "eval_data":
        return {key: data_of_recipe(recipe) for key, recipe in value.items()}
    return value


def _serde_from_json(name: str, settings: Mapping[str, Any], is_own: bool) -> ModelSerde:
    """Make a serde of its class and plain settings: a class of serdes, and nothing else.

    Raises:
        InputError: There is no such class.
        FunctionError: A document must not name its module.
        SerdeError: It is no class of serdes, or takes no such settings.
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
        raise SerdeError(f"{name!r}, which a call names as its serde, is no class of serdes.")
    try:
        made = kind(**settings)
    except TypeError as error:
        raise SerdeError(f"The serde {name!r} takes no such settings: {error}.") from error
    if not isinstance(made, ModelSerde):
        raise SerdeError(f"{name!r}, which a call names as its serde, is no ModelSerde.")
    return made
