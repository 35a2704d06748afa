"""The arguments of a call as the parameters of a flow run elsewhere: plain values and names."""

import os
from collections.abc import Mapping
from datetime import date
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, JsonValue, SecretBytes, SecretStr

from partwise.blocks.named_fields import NamedFields
from partwise.calls.written import function_parameter
from partwise.errors import InputError
from partwise.models.serdes import SERDES, serde_name
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table
from partwise.redaction import masked
from partwise.runs.documents import to_json
from partwise.sources.files.file_set import Files
from partwise.sources.opening import OpenedData
from partwise.sources.sql.query import Query


def sent_parameters(arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the arguments of a call as JSON that the same flow takes from Prefect's API.

    What is None is left out: for the flow that is as if it were not given.

    Raises:
        InputError: An argument cannot be sent: it is in memory of this process, such as a table or
            the function of a script, or it would leave a password in Prefect's database.

    Example:
        >>> sent_parameters({"seed": 3, "columns": ("day", "price"), "serde": PickleSerde()})
        {'seed': 3, 'columns': ['day', 'price'], 'serde': 'pickle'}
    """
    parameters: dict[str, JsonValue] = {}
    for name, value in arguments.items():
        plain = _plain(name, value)
        if masked(plain) != plain:
            raise InputError(
                f"{name}= holds a password, which would be in Prefect's database: save a block, "
                "and give its name."
            )
        if plain is not None:
            parameters[name] = plain
    return parameters


def _plain(name: str, value: Any) -> JsonValue:
    match value:
        case None | bool() | int() | str():
            return value
        case PurePath():
            return os.path.abspath(value)
        case date():
            return value.isoformat()
        case OpenedData():
            return _plain(name, value.name)
        case Files():
            return to_json(value.recipe())
        case Query() | Table():
            return value.block or _refuse(name, f"a {type(value).__name__} without a saved block")
        case DatasetOutput():
            return str(value)
        case NamedFields():
            return _block(name, value)
        case BaseModel():
            return to_json(value.model_dump(mode="json"))
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                return _refuse(name, f"a {type(value).__name__} with keys that are no texts")
            return {key: _plain(name, item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(name, item) for item in value]
    if name == "serde" and serde_name(value) in SERDES:
        if value == SERDES[serde_name(value)]():
            return serde_name(value)
        return _refuse(name, f"a {type(value).__name__} with settings of its own")
    if callable(value):
        return function_parameter(name, value)
    try:
        return to_json(value)
    except (TypeError, ValueError):
        return _refuse(name, f"a {type(value).__name__} in the memory of this process")


def _block(name: str, block: NamedFields) -> JsonValue:
    """Return a block's name, or of one that was not saved its settings."""
    if block.saved_name:
        return block.saved_name
    given = {field: getattr(block, field) for field in block.model_fields_set}
    # Prefect would store a mask in its place, which the flow takes for the secret itself.
    if any(isinstance(value, SecretStr | SecretBytes) for value in given.values()):
        return _refuse(name, f"a {type(block).__name__} with a secret that is not saved")
    return to_json(block.model_dump(mode="json", include=set(given)))


def _refuse(name: str, what: str) -> JsonValue:
    raise InputError(
        f"{name}= is {what}, which cannot be sent to another process: give a file, a URL, or the "
        f"name of what stands in a module or in a saved block."
    )
