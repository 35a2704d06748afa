"""Whatever a body is, the answer is no failure of the server, and the server goes on."""

import asyncio
import json
import random
from typing import Any

import httpx
import pyarrow as pa

from partwise.serving.app import make_app
from partwise.serving.server_options import ServerOptions
from partwise.serving.wire import ARROW, FIELDS
from partwise.tables.ipc_streams import table_bytes
from tests.serving.scales import make_predictor
from tests.thoroughness import THOROUGH

INFER = {
    "id": "a",
    "parameters": {"key": 3, "on_missing": "null", "extra": "ignore"},
    "inputs": [
        {"name": "price", "shape": [2, 1], "datatype": "FP32", "data": [[1.5], [None]]},
        {"name": "store", "shape": [2], "datatype": "INT64", "data": [2, 3]},
    ],
    "outputs": [{"name": "status"}],
}
PLAIN = {"rows": [{"price": 1.5, "store": 2}, {"price": None, "store": 3}], "version": 1}
STREAM = table_bytes(
    pa.table({"price": [1.5, None], "store": [2, 3]}).replace_schema_metadata(
        {FIELDS: json.dumps({"on_missing": "null"})}
    )
)
STRANGE = [
    *(None, True, False, 0, -1, 2, 1e308, -0.0, 2**53 + 1, 2**64, -(2**63), "", "a", "\0", "NaN"),
    *("null", "7", "ß" * 1000, [], [[]], [None], [[[1]]], {}, {"": {}}, {"key": 3}, "FP64", [2, 1]),
]


def mutated(value: Any, draw: random.Random) -> Any:
    """The value, with something in it replaced, left out or doubled."""
    if draw.random() < 0.15:
        return draw.choice(STRANGE)
    if isinstance(value, dict) and value:
        name = draw.choice(list(value))
        changed = {**value, name: mutated(value[name], draw)}
        if draw.random() < 0.1:
            del changed[name]
        if draw.random() < 0.1:
            changed[draw.choice(["key", "prize", ""])] = draw.choice(STRANGE)
        return changed
    if isinstance(value, list) and value:
        place = draw.randrange(len(value))
        changed = [*value]
        changed[place : place + 1] = [mutated(value[place], draw)] * draw.choice([0, 1, 1, 1, 2])
        return changed
    return draw.choice(STRANGE)


def scrambled(body: bytes, draw: random.Random) -> bytes:
    """The bytes, with some of them changed, cut or doubled."""
    changed = bytearray(body)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed))
        changed[place] = draw.choice([draw.randrange(256), changed[place] ^ 1 << draw.randrange(8)])
    if draw.random() < 0.2:
        del changed[draw.randrange(len(changed)) :]
    return bytes(changed)


def requests(count: int) -> list[tuple[str, bytes, str]]:
    draw = random.Random(7)
    made = []
    for _ in range(count):
        path, value = draw.choice([("/v2/models/sales/infer", INFER), ("/predict/sales", PLAIN)])
        match draw.randrange(3):
            case 0:
                made.append((path, scrambled(json.dumps(value).encode(), draw), "text/json"))
            case 1:
                body = json.dumps(mutated(value, draw)).encode()
                made.append((path, body, "application/json"))
            case _:
                made.append(("/predict/sales", scrambled(STREAM, draw), ARROW))
    return made


def test_no_body_makes_the_server_fail(local_store):
    keys = pa.schema([("store", pa.int64())])
    predictor = make_predictor(local_store, {key: float(key) for key in range(5)}, keys)
    app = make_app(predictor, ServerOptions(access_log=False))
    statuses: dict[int, int] = {}

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path, body, form in requests(10_000 if THOROUGH else 2_000):
                answer = await client.post(path, content=body, headers={"content-type": form})
                statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
                assert answer.status_code in (200, 400, 404, 413, 422), (path, body, answer.text)
                if answer.status_code != 200:
                    assert answer.json().keys() == {"error", "kind"}

    asyncio.run(ask())
    assert min(statuses[200], statuses[400], statuses[422]) > 50
