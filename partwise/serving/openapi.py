"""The routes of a server as a document of OpenAPI 3.1, with the model that it serves."""

import json
import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any
from urllib.parse import quote

from partwise.serving.gatekeeper import OPEN
from partwise.serving.protocol import DATATYPES
from partwise.serving.questions import STATUS_TEXTS

Json = dict[str, Any]

LONGEST_KEY = 400
"""Characters of a key in the query of a URL."""
_VALUES = {"BYTES": "a", "BOOL": True}
_ERRORS = {
    "400": "The body is no JSON.",
    "401": "The API key is missing, or another one.",
    "404": "There is no such model, version or key.",
    "408": "The body came too slowly.",
    "413": "The body is too large, or has too many rows.",
    "415": "A content encoding or binary tensors, which are not taken.",
    "422": "The question does not fit the model; the sentence says where.",
    "503": "Too much work is waiting, or a model cannot be read: try again.",
    "504": "There was no answer in time.",
}
_OF_QUESTIONS = tuple(status for status in _ERRORS if status != "401")
_DESCRIPTION = (
    "Predictions by many models, one of which each key has. The routes below /v2 are those of the "
    "Open Inference Protocol; /predict takes plain rows."
)


def openapi_document(
    name: str,
    *,
    version: int = 1,
    columns: Sequence[Mapping[str, Any]] = (),
    key: Any = None,
    has_api_key: bool = False,
) -> Json:
    """Return the document.

    Args:
        name: Of the model that is served.
        version: One that is served.
        columns: The inputs of a key's model, as `/v2/models/NAME` gives them, for the examples.
        key: That key as JSON has it; None: the model has no keys.
        has_api_key: Whether requests have to show an API key.
    """
    schemes: Json = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    paths = {
        **_questions(name, version, columns, key),
        **_about_models(name, version),
        **_about_server(),
        **_for_people(),
    }
    for path, routes in paths.items():
        for route in routes.values():
            is_open = path in OPEN or not has_api_key
            route["security"] = [] if is_open else [{scheme: []} for scheme in schemes]
            route["responses"] |= {} if is_open else _errors("401")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"{name}, served by partwise",
            "version": metadata.version("partwise"),
            "description": _DESCRIPTION,
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": schemes if has_api_key else {},
        },
    }


def _about_server() -> Json:
    health = {"type": "object", "required": ["live"], "properties": {"live": {"type": "boolean"}}}
    ready = _answer("It should get requests.", _schema("Ready"))
    ready |= {"503": {"description": "It ends.", "content": _json(_schema("Ready"))}}
    text = {"200": {"description": "Counters for Prometheus.", "content": {"text/plain": {}}}}
    return {
        "/v2": _get("What this server is", _answer("Its name and release.", {"type": "object"})),
        "/v2/health/live": _get("Whether it lives", _answer("It does.", health)),
        "/v2/health/ready": _get("Whether it is ready, and what it serves", ready),
        "/metrics": _get("What was counted", text),
    }


def _about_models(name: str, version: int) -> Json:
    """Return the routes on the model and its versions."""
    key = {
        "name": "key",
        "in": "query",
        "description": "The key whose model is described, as JSON.",
        "schema": {"type": "string"},
    }
    found: Json = {}
    for path, parameters in _model_paths(name, version):
        about = _answer("Its inputs and outputs.", _schema("Model")) | _errors(
            "404", "422", "503", "504"
        )
        ready = _answer("It is.", _schema("ModelReady")) | _errors("404")
        found[path] = _get("Describe the model", about, [*parameters, key])
        found[f"{path}/ready"] = _get("Whether this version is served", ready, parameters)
    return found


def _questions(name: str, version: int, columns: Sequence[Mapping[str, Any]], key: Any) -> Json:
    """Return the routes that predict."""
    parameters = {} if key is None else {"parameters": {"key": key}}
    inputs = [{**column, "shape": [1], "data": [_example(column)]} for column in columns] or [
        {"name": "price", "datatype": "FP64", "shape": [1], "data": [1.5]}
    ]
    row = {column["name"]: _example(column) for column in columns} or {"price": 1.5}
    rows = {"rows": [row], **({} if key is None else {"key": key})}
    found = {
        f"{path}/infer": _post(
            "Predict, by the Open Inference Protocol",
            _json(_schema("InferRequest"), {**parameters, "inputs": inputs}),
            _schema("InferResponse"),
            of_path,
        )
        for path, of_path in _model_paths(name, version)
    }
    found["/predict/{name}"] = _post(
        "Predict, of plain rows",
        _json(_schema("PredictRequest"), rows),
        _schema("PredictResponse"),
        [_name_parameter(name)],
    )
    return found


def _for_people() -> Json:
    page = {"200": {"description": "A page.", "content": {"text/html": {}}}}
    text = {"type": "string", "maxLength": LONGEST_KEY}
    like = {"name": "like", "in": "query", "description": "A part of the key.", "schema": text}
    key = {
        "name": "key",
        "in": "query",
        "required": True,
        "description": "The id of a key, as /keys has it, or the key as text.",
        "schema": text,
    }
    keys = _answer("At most 50 of them.", {"type": "object"}) | _errors("422", "503")
    one = _answer("What the page shows.", {"type": "object"}) | _errors("404", "422", "503")
    document = _answer("An OpenAPI document.", {"type": "object"})
    return {
        "/keys": _get("Keys that a text is a part of", keys, [like]),
        "/keys/one": _get("The champion of a key", one, [key]),
        "/keys/history": _get("The champions that a key has had", one, [key]),
        "/openapi.json": _get("This document", document),
        "/docs": _get("This document as a page", page),
        "/": _get("The page of keys", page),
    }


def _model_paths(name: str, version: int) -> list[tuple[str, list[Json]]]:
    """Return the paths of a model and of a version, and the parameters in them."""
    of_version = {
        "name": "version",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
        "example": str(version),
    }
    model = "/v2/models/{name}"
    of_model = [_name_parameter(name)]
    return [(model, of_model), (f"{model}/versions/{{version}}", [*of_model, of_version])]


def _name_parameter(name: str) -> Json:
    return {"name": "name", "in": "path", "required": True, "schema": {"const": name}}


def _example(column: Mapping[str, Any]) -> Any:
    datatype = column["datatype"]
    return _VALUES.get(datatype, 1 if "INT" in datatype else 1.5)


def _get(summary: str, responses: Json, parameters: Sequence[Json] = ()) -> Json:
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": responses}}


def _post(summary: str, content: Json, answer: Json, parameters: Sequence[Json]) -> Json:
    route = {
        "summary": summary,
        "parameters": list(parameters),
        "requestBody": {"required": True, "content": content},
        "responses": _answer("Predictions, in the order of the rows.", answer)
        | _errors(*_OF_QUESTIONS),
    }
    return {"post": route}


def _answer(description: str, schema: Json) -> Json:
    return {"200": {"description": description, "content": _json(schema)}}


def _errors(*statuses: str) -> Json:
    return {
        status: {"description": _ERRORS[status], "content": _json(_schema("Error"))}
        for status in statuses
    }


def _json(schema: Json, example: Any = None) -> Json:
    return {
        "application/json": {"schema": schema} | ({} if example is None else {"example": example})
    }


def _schema(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Json = {"type": "string"}
_SCALAR: Json = {"type": ["string", "number", "boolean", "null"]}


def _schemas() -> Json:
    shape = {"type": "array", "items": {"type": "integer"}}
    column = {"name": _TEXT, "datatype": {"enum": list(DATATYPES)}, "shape": shape}
    tensor = {**column, "data": {"type": "array", "minItems": 1}}
    return {
        **_schemas_of_questions(tensor),
        **_schemas_of_answers(tensor),
        **_schemas_of_models(column),
        "Error": _object({"error": _TEXT, "kind": _TEXT}),
    }


def _schemas_of_questions(tensor: Json) -> Json:
    key = {
        "description": "A value; of several key columns a list of them, or an object by column.",
        "anyOf": [
            _SCALAR,
            {"type": "array", "items": _SCALAR},
            {"type": "object", "minProperties": 1},
        ],
    }
    policies = {
        "on_missing": {
            "description": "What becomes of rows that no level has a model for.",
            "enum": ["fail", "null"],
        },
        "extra": {
            "description": "What becomes of columns that a model does not know.",
            "enum": ["fail", "ignore"],
        },
    }
    parameters = _object({}, key=key, **policies)
    parameters |= {"type": ["object", "null"], "additionalProperties": False}
    rows = {
        "description": "All with the same columns.",
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "additionalProperties": _SCALAR},
    }
    version = {"type": ["integer", "null"]}
    return {
        "InferRequest": _object(
            {"inputs": {"type": "array", "minItems": 1, "items": _object(tensor)}},
            id={"type": ["string", "null"]},
            parameters=parameters,
            outputs={"type": ["array", "null"], "items": _object({"name": _TEXT})},
        ),
        "PredictRequest": _object({"rows": rows}, key=key, version=version, **policies)
        | {"additionalProperties": False},
    }


def _schemas_of_answers(tensor: Json) -> Json:
    whole = {"type": "integer"}
    of_rows = {
        "outputs": {"type": "object", "additionalProperties": {"type": "array"}},
        "level": {"type": "array", "items": {"type": ["integer", "null"]}},
        "status": {"type": "array", "items": {"enum": list(STATUS_TEXTS)}},
        "models": {"type": "array", "items": {"type": "object"}},
        "used": {"type": "array", "items": whole},
    }
    outputs = {"type": "array", "items": _object(tensor)}
    of_model = {"model_name": _TEXT, "model_version": _TEXT, "parameters": {"type": "object"}}
    return {
        "InferResponse": _object({**of_model, "outputs": outputs}, id=_TEXT),
        "PredictResponse": _object(
            {"model": _TEXT, "version": whole, "reference": _TEXT, **of_rows}
        ),
    }


def _schemas_of_models(column: Json) -> Json:
    columns = {"type": "array", "items": _object(column)}
    yes = {"type": "boolean"}
    about = {"name": _TEXT, "versions": {"type": "array", "items": _TEXT}, "platform": _TEXT}
    served = {"model": _TEXT, "version": {"type": "integer"}, "reference": _TEXT}
    return {
        "Model": _object({**about, "inputs": columns, "outputs": columns}),
        "ModelReady": _object({"name": _TEXT, "ready": yes}),
        "Ready": _object({"ready": yes, **served}),
    }


def _object(required: Json, **optional: Json) -> Json:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def curl_of(document: Mapping[str, Any], path: str, method: str) -> str:
    """Return the command of a shell that asks a route of a document, at the address $SERVER."""
    route = document["paths"][path][method]
    words = ["curl"]
    if route["security"]:
        words += ["-H", '"Authorization: Bearer $API_KEY"']
    query = []
    for parameter in route["parameters"]:
        if parameter["in"] == "path":
            value = parameter["schema"].get("const") or parameter["example"]
            path = path.replace(f"{{{parameter['name']}}}", quote(value, safe=""))
        elif parameter.get("required"):
            query.append(f"{parameter['name']}=...")
    if method == "post":
        body = route["requestBody"]["content"]["application/json"]["example"]
        words += ["-H", "'Content-Type: application/json'"]
        words += ["--data", shlex.quote(json.dumps(body, ensure_ascii=False))]
    address = "".join([path, *(["?", "&".join(query)] if query else [])])
    return " ".join([*words, f'"$SERVER"{shlex.quote(address)}'])
