"""The Open Inference Protocol, version 2: bodies of requests as questions, and answers as bodies.

A column is an input of shape (rows,) or (rows, 1); null is a missing value. `parameters.key` names
the key of all rows; without it the key columns are inputs themselves, and rows of many keys may
stand in one request. Answers hold a level and a status of each row then, and where a row has no
prediction: null in an output of numbers.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import orjson

from partwise.errors import ColumnError
from partwise.formatting import counted, did_you_mean, shortened, value_text
from partwise.runs.run import ONLY
from partwise.serving.errors import RequestError
from partwise.serving.keys import key_of_json
from partwise.serving.questions import OK, POLICIES, STATUS_TEXTS, Answer, Question, Values
from partwise.tables.keys.key_classes import KeyColumn

_PARAMETERS = ("key", *POLICIES, "binary_data_output")
"""The last one is sent by clients that would take binary outputs; they take JSON as well."""
_INTEGERS = {
    **{f"INT{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
_FLOATS: dict[str, Any] = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
_OTHERS = {"BYTES": str, "BOOL": bool}
DATATYPES = (*_INTEGERS, *_FLOATS, *_OTHERS)
_OF_KIND = {"f": "FP", "i": "INT", "u": "UINT"}
STATUSES = np.array(STATUS_TEXTS, dtype=object)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A question, and how its answer is to look."""

    question: Question
    id: str | None
    """Of the request, as its client counts them."""
    outputs: tuple[str, ...]
    """Those that are asked for; none: all."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body.

    Raises:
        RequestError: It is no JSON (400), which NaN and Infinity are not; or no object (422).
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The body is no JSON: {error}", 400) from error
    if type(found) is not dict:
        raise RequestError("The body is no JSON object: send {...}.")
    return found


def check_names(found: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    """Refuse names that a request does not have; `RequestError`."""
    for name in found:
        if name not in known:
            raise RequestError(
                f"{what} {shortened(name)!r} is not known: there are {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )


def question_of(
    columns: Mapping[str, Values],
    n_rows: int,
    fields: Mapping[str, Any],
    key_columns: Sequence[KeyColumn],
) -> Question:
    """Return what is asked of rows; the fields may have `key`, `on_missing` and `extra`.

    Raises:
        InputError: A field has a value that it cannot have.
        KeyClassError: The key is of another class than its column.
    """
    key = fields.get("key", ONLY)
    key = key if key is ONLY else key_of_json(key, key_columns)
    policies = {name: fields[name] for name in POLICIES if name in fields}
    return Question(columns=columns, n_rows=n_rows, key=key, **policies)


def check_rows(n_rows: int, max_rows: int) -> None:
    """Refuse no rows, and too many; `RequestError`."""
    if not n_rows:
        raise RequestError("There are no rows: send at least one.")
    if n_rows > max_rows:
        raise RequestError(f"{n_rows:,} rows are too many: send {max_rows:,} at once at most.", 413)


def read_infer_request(
    body: bytes, key_columns: Sequence[KeyColumn], max_rows: int
) -> InferRequest:
    """Return what a body of `infer` asks for.

    Args:
        body: As it came.
        key_columns: Of the model that is asked.
        max_rows: The most rows that are taken.

    Raises:
        RequestError: The body is none of the protocol, or a value does not fit its datatype.
        ColumnError: An input stands there twice.
        KeyClassError: The key is of another class than its column.
    """
    found = parse_object(body)
    inputs = found.get("inputs")
    if type(inputs) is not list or not inputs:
        raise RequestError("inputs is missing: a list with an object for each column.")
    parameters = _object(found.get("parameters"), "parameters")
    check_names(parameters, _PARAMETERS, "The parameter")
    columns: dict[str, Any] = {}
    n_rows = -1
    for given in inputs:
        name, rows, values = _read_input(given, max_rows)
        if name in columns:
            raise ColumnError(f"The input {shortened(name)!r} stands there twice: send it once.")
        if n_rows not in (-1, rows):
            raise RequestError(
                f"The input {shortened(name)!r} has {counted(rows, 'row')}, and those before it "
                f"{n_rows}: all have to have as many."
            )
        n_rows, columns[name] = rows, values
    question = question_of(columns, n_rows, parameters, key_columns)
    return InferRequest(question=question, id=_read_id(found), outputs=_read_outputs(found))


def _read_id(found: Mapping[str, Any]) -> str | None:
    given = found.get("id")
    if given is not None and type(given) is not str:
        raise RequestError("id is to be text.")
    return given


def _read_outputs(found: Mapping[str, Any]) -> tuple[str, ...]:
    given = found.get("outputs")
    if given is not None and type(given) is not list:
        raise RequestError("outputs is to be a list.")
    names: list[str] = []
    for each in given or ():
        if type(name := _object(each, "An output").get("name")) is not str:
            raise RequestError("An output has no name: send its name as text.")
        names.append(name)
    return tuple(names)


def _object(found: Any, what: str) -> dict[str, Any]:
    if found is None:
        return {}
    if type(found) is not dict:
        raise RequestError(f"{what} is to be an object.")
    return found


def _read_input(given: Any, max_rows: int) -> tuple[str, int, Sequence[Any]]:
    """Return the name of an input, its rows and its values."""
    if type(given) is not dict or type(name := given.get("name")) is not str:
        raise RequestError("An input is to be an object with name, shape, datatype and data.")
    shape, datatype, data = given.get("shape"), given.get("datatype"), given.get("data")
    if not (type(shape) is list and shape and type(shape[0]) is int and shape[0] >= 0) or (
        len(shape) > 1 and shape[1:] != [1]
    ):
        raise RequestError(
            f"The shape of input {shortened(name)!r} is {shortened(str(shape))}: each column is an "
            "input of its own, of shape [rows] or [rows, 1]."
        )
    if type(datatype) is not str or datatype not in DATATYPES:
        raise RequestError(
            f"The datatype of input {shortened(name)!r} is {shortened(repr(datatype))}: there are "
            f"{', '.join(DATATYPES)}."
        )
    rows = shape[0]
    check_rows(rows, max_rows)
    if type(data) is not list:
        raise RequestError(f"The data of input {shortened(name)!r} is to be a list in JSON.")
    if len(shape) == 2 and data and type(data[0]) is list:
        if not all(type(each) is list and len(each) == 1 for each in data):
            raise RequestError(f"The data of input {shortened(name)!r} is not of shape {shape}.")
        data = list(chain.from_iterable(data))
    if len(data) != rows:
        raise RequestError(
            f"The input {shortened(name)!r} has {counted(len(data), 'value')}, and its "
            f"shape is {shape}."
        )
    return name, rows, _values_of(data, datatype, name)


def _values_of(data: list[Any], datatype: str, name: str) -> list[Any]:
    """Return values as their datatype has them: FP32 is rounded to it, integers of FP64 floats."""
    kinds = set(map(type, data))
    if datatype == "FP64" and kinds == {float}:
        return data
    kinds.discard(NoneType)
    if datatype in _FLOATS:
        return data if not kinds else _floats(data, kinds, datatype, name)
    if datatype in _OTHERS:
        if kinds - {_OTHERS[datatype]}:
            raise _misfit(name, datatype, data)
        return data
    lowest, highest = _INTEGERS[datatype]
    if kinds - {int} or not all(v is None or lowest <= v <= highest for v in data):
        raise _misfit(name, datatype, data)
    return data


def _floats(data: list[Any], kinds: set[type], datatype: str, name: str) -> list[Any]:
    if kinds - {float, int}:
        raise _misfit(name, datatype, data)
    if int in kinds:
        for value in data:
            if type(value) is int and int(float(value)) != value:
                raise RequestError(
                    f"{value} of input {shortened(name)!r} does not fit {datatype} without loss: "
                    "send INT64."
                )
    elif datatype == "FP64":
        return data
    with np.errstate(over="ignore"):
        rounded = np.array(data, np.float64).astype(_FLOATS[datatype])
    if np.isinf(rounded).any():
        raise _misfit(name, datatype, data)
    values: list[Any] = rounded.tolist()
    return [None if v is None else r for v, r in zip(data, values, strict=True)]


def _misfit(name: str, datatype: str, data: Sequence[Any]) -> RequestError:
    """Return the error for the first value that does not fit its datatype."""
    if datatype in _INTEGERS:
        lowest, highest = _INTEGERS[datatype]
        fits = [type(v) is int and lowest <= v <= highest for v in data]
    elif datatype in _FLOATS:
        most = float(np.finfo(_FLOATS[datatype]).max)
        fits = [type(v) in (int, float) and abs(v) <= most for v in data]
    else:
        fits = [type(v) is _OTHERS[datatype] for v in data]
    wrong = (i for i, (v, fit) in enumerate(zip(data, fits, strict=True)) if not (fit or v is None))
    place = next(wrong, 0)
    return RequestError(
        f"{shortened(repr(data[place]))} in row {place} of input {shortened(name)!r} is no value "
        f"of the datatype {datatype}."
    )


def render_infer_response(answer: Answer, model: str, request: InferRequest) -> bytes:
    """Return an answer as a body of the protocol.

    Raises:
        RequestError: An output is asked for that the answer does not have.
    """
    one = request.question.key is not ONLY and len(answer.models) == 1
    outputs: dict[str, np.ndarray] = dict(answer.outputs)
    if not one:
        levels = np.array([*(each.level for each in answer.models), -1], np.int32)
        outputs["level"] = levels[answer.used]
    if not one or answer.status.any():
        outputs["status"] = STATUSES[answer.status]
    if request.outputs:
        outputs = _chosen(outputs, request.outputs)
    rendered: dict[str, Any] = {"model_name": model, "model_version": str(answer.version)}
    if request.id is not None:
        rendered["id"] = request.id
    rendered["parameters"] = {"reference": answer.reference}
    if one:
        used = answer.models[0]
        rendered["parameters"] |= {"run": used.run_id, "key": used.key, "level": used.level}
    rendered["outputs"] = [
        {"name": name, "shape": values.shape, "datatype": _datatype_of(values), "data": values}
        for name, values in outputs.items()
    ]
    return dump(rendered)


def _chosen(outputs: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    ready = dict(outputs)
    if "status" in names and "status" not in ready:
        n_rows = len(next(iter(ready.values())))
        ready["status"] = np.full(n_rows, STATUS_TEXTS[OK], object)
    check_names(dict.fromkeys(names), tuple(ready), "The output")
    return {name: ready[name] for name in names}


def _datatype_of(values: np.ndarray) -> str:
    if values.dtype.kind in _OF_KIND:
        return f"{_OF_KIND[values.dtype.kind]}{8 * values.dtype.itemsize}"
    # Whole numbers and truths with gaps are objects.
    kinds = {bool} if values.dtype.kind == "b" else set(map(type, values)) - {type(None)}
    return "INT64" if kinds == {int} else "BOOL" if kinds == {bool} else "BYTES"


def dump(value: Any) -> bytes:
    """Return a value with arrays as JSON; numbers that are not finite are null."""
    return orjson.dumps(value, _plain, orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    """Return what orjson does not write itself: arrays of objects, of float16, or with gaps."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Decimal | bytes | dt.timedelta):
        # Text, as it is of keys.
        return value_text(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON.")
