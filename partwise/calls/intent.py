"""What a call is about to do, as a resume compares it: its code, its inputs, the call itself."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, JsonValue

from partwise.calls.call import Role, VersionedCall, roles
from partwise.calls.written import CannotRepeatError, to_plain
from partwise.evaluation.scores import names_function
from partwise.fingerprints.functions import (
    CodeFingerprint,
    arguments_fingerprint,
    canonical_bytes,
)
from partwise.fingerprints.libraries import library_version
from partwise.models.serdes import serde_name
from partwise.renamed import first_names
from partwise.runs.claim import Intent
from partwise.runs.documents import to_json
from partwise.sources.descriptions import SourceDescription
from partwise.sources.input_files import checksums
from partwise.trainers import Best, Tuned, resolve_trainer
from partwise.trainers.ranks.torch import TorchDistributor
from partwise.trainers.scored import LabelSettings

EXPORT_LIBRARIES = ("partwise", "lightgbm", "xgboost", "onnx", "onnxruntime")


def describe_intent(
    call: VersionedCall,
    source: SourceDescription,
    uses: str | None = None,
    packages: Mapping[str, str] | None = None,
) -> Intent:
    """Return what a call is about to do: its fingerprints, and the call, if it can be repeated.

    The call has what its texts came to in their places: keys, serde, params, output. `uses` is the
    fingerprint of what it uses besides: trained models, eval sets. `packages` come before those
    installed here.
    """
    packages = packages or {}
    arguments, known = call.written_arguments(), roles(type(call))
    version = call.version or None
    first = first_names(call.flow())
    compared = {first.get(name, name): value for name, value in arguments.items()}
    their = {first.get(name, name): role for name, role in known.items()}
    code = _fingerprint_code(compared, their, version, packages)
    obstacle = None
    if source.recipe is None:
        obstacle = "the rows are a frame or table in memory, or a query with a password"
    written: dict[str, JsonValue] = {}
    for name, value in arguments.items():
        try:
            written[name] = to_plain(name, value, known[name])
        except CannotRepeatError as error:
            obstacle = obstacle or str(error)
    whole: dict[str, JsonValue] = {
        "flow": call.flow(),
        "data": to_json(source.recipe),
        "arguments": written,
        "version": version,
    }
    return Intent(
        source_fingerprint=source.fingerprint,
        inputs_fingerprint=_fingerprint_inputs(source, compared, uses),
        code_fingerprint=code.digest,
        code_unknown=code.unknown,
        code_parts=code.parts,
        packages=packages,
        call=None if obstacle else whole,
        call_obstacle=obstacle,
        call_known=whole if obstacle else None,
    )


def _fingerprint_code(
    arguments: Mapping[str, Any],
    roles: Mapping[str, Role],
    version: str | None,
    packages: Mapping[str, str],
) -> CodeFingerprint:
    """Fingerprint all that decides what becomes of a partition of given rows, params and model."""
    deciding = {name: value for name, value in arguments.items() if roles[name].decides}
    functions = {name: role.function for name, role in roles.items() if role.function}
    for name, function in functions.items():
        # What a name stands for may change; and a resume by name goes on with a function's run.
        value = deciding.get(name)
        if isinstance(value, str) and (function == "always" or names_function(value)):
            deciding[name] = resolve_trainer(value)
    for name, value in deciding.items():
        # A resume of what is written down is given lists in the places of tuples.
        if isinstance(value, TorchDistributor):
            deciding[name] = replace(value, params=_as_written(value.params))
        elif isinstance(value, Mapping):
            deciding[name] = _as_written(value)
    files = [path for name in arguments if roles[name].is_files for path in deciding.pop(name)]
    trainer: Any = deciding.get("trainer")
    libraries: tuple[str, ...] = ()
    if isinstance(trainer, LabelSettings):
        libraries = (*trainer.libraries, "partwise")
    if version is None and isinstance(trainer, Best | Tuned):
        deciding["trainer"] = trainer.resolved()
    elif isinstance(trainer, Best):
        deciding["trainer"] = trainer.map_functions(_name_of)
    if "validation" in deciding:
        # A newer one is proved again.
        libraries = EXPORT_LIBRARIES
    if version is not None:
        # The user's word stands for code, but not for settings, which can be compared.
        serde = deciding.get("serde")
        deciding |= {"version": version, "serde": serde and [serde_name(serde), serde.filename]}
        for name in functions:
            if callable(deciding.get(name)) and not isinstance(deciding[name], BaseModel):
                del deciding[name]
    given = {f"library {name}": library_version(name) for name in libraries}
    given |= {f"library {name}": found for name, found in packages.items()}
    given |= {f"file {name}": digest for name, digest in checksums(files).items()}
    return arguments_fingerprint({f"{name}=": value for name, value in deciding.items()}, given)


def _as_written(value: Any) -> Any:
    """Return what JSON makes of a value of dicts, lists and tuples."""
    if isinstance(value, Mapping):
        return {key: _as_written(each) for key, each in value.items()}
    return [_as_written(each) for each in value] if isinstance(value, list | tuple) else value


def _name_of(function: Any) -> str:
    """Return what a user's word for the code leaves to be compared of a function."""
    return function if isinstance(function, str) else getattr(function, "__name__", "")


def _fingerprint_inputs(
    source: SourceDescription, arguments: Mapping[str, Any], uses: str | None
) -> str | None:
    """Fingerprint all that partitions are made of; None where that is unknown."""
    params = arguments.get("params")
    try:
        if isinstance(params, Mapping):
            # The order of keys does not matter; that of one key's parameters does.
            params = sorted(map(canonical_bytes, params.items()))
        inputs = [source.fingerprint, arguments.get("null_keys"), params, uses]
        return hashlib.sha256(canonical_bytes(inputs)).hexdigest()
    # A value that cannot be compared between processes: what is unknown counts as changed.
    except TypeError:
        return None
