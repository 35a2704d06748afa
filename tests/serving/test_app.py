"""What the server answers: the Open Inference Protocol, plain rows, refusals, its limits."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from partwise.errors import InputError, IntegrityError, StoreError
from partwise.serving.app import make_app
from partwise.serving.arrow_streams import from_stream
from partwise.serving.server_options import ServerOptions
from partwise.serving.wire import ARROW, FIELDS
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.keys.key_classes import KeyClass, KeyColumn
from tests.serving.fake_predictor import REFUSED, RUN, FakePredictor, Served

QUIET = ServerOptions(access_log=False)
LOCAL = "http://127.0.0.1"
HOST = [(b"host", b"127.0.0.1")]
KEY = "secret-0123456789"


@pytest.fixture
def predictor() -> FakePredictor:
    return FakePredictor()


@pytest.fixture
def client(predictor: FakePredictor) -> Iterator[TestClient]:
    with TestClient(make_app(predictor, QUIET), base_url=LOCAL) as client:
        yield client


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.2", "[::1]", "[::1]:8000"])
def test_without_an_api_key_only_names_of_this_machine_are_answered(client, host) -> None:
    assert client.get("/v2", headers={"host": host}).status_code == 200
    for stranger in (f"{host}.evil.test", "evil.test:8000", "10.0.0.7", "", "["):
        found = client.get("/v2", headers={"host": stranger})
        assert (found.status_code, found.json()["kind"]) == (403, "InputError")
        assert client.get("/v2/health/ready", headers={"host": stranger}).status_code == 200


def column(name: str, data: list[Any], datatype: str = "FP64", **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": datatype, "data": data, **more}


PRICE = column("price", [1.5, 2.0])
STORES = column("store", [2, 3], "INT64")


def infer(client: TestClient, *inputs: dict[str, Any], path: str = "sales", **body: Any) -> Any:
    return client.post(f"/v2/models/{path}/infer", json={"inputs": list(inputs), **body})


def of_key(client: TestClient, price: dict[str, Any], **parameters: Any) -> Any:
    return infer(client, price, parameters={"key": 3, **parameters})


def outputs_of(response: Any) -> dict[str, list[Any]]:
    assert response.status_code == 200, response.text
    return {each["name"]: each["data"] for each in response.json()["outputs"]}


def refused(response: Any, status: int, *texts: str) -> None:
    assert response.status_code == status, response.text
    assert response.json().keys() == {"error", "kind"}
    for text in texts:
        assert text in response.json()["error"]


def test_rows_of_one_key_are_answered_by_its_model(client):
    response = infer(client, PRICE, id="a", parameters={"key": 3})
    assert response.json() == {
        "model_name": "sales",
        "model_version": "7",
        "id": "a",
        "parameters": {"reference": "catalog://sales@7", "run": RUN, "key": "3", "level": 0},
        "outputs": [{"name": "prediction", "shape": [2], "datatype": "FP64", "data": [4.5, 6.0]}],
    }


def test_rows_of_many_keys_are_answered_in_their_order_with_level_and_status(client):
    answer = infer(client, PRICE, STORES).json()
    assert [(each["name"], each["datatype"]) for each in answer["outputs"]] == [
        ("prediction", "FP64"),
        ("level", "INT32"),
        ("status", "BYTES"),
    ]
    assert [each["data"] for each in answer["outputs"]] == [[3.0, 6.0], [0, 0], ["ok", "ok"]]


def test_a_list_or_an_object_names_the_key_as_well(client):
    for key in (3, [3], {"store": 3}):
        assert outputs_of(infer(client, PRICE, parameters={"key": key}))["prediction"] == [4.5, 6]


def test_outputs_that_are_asked_for_are_the_answer(client):
    asked = [{"name": "status", "parameters": {"binary_data": True}}]
    response = infer(client, PRICE, parameters={"key": 3}, outputs=asked)
    assert outputs_of(response) == {"status": ["ok", "ok"]}
    response = infer(client, PRICE, parameters={"key": 3}, outputs=[{"name": "prediciton"}])
    refused(response, 422, "'prediciton'", "Did you mean 'prediction'?")


def test_plain_rows_are_the_same_as_json(client):
    rows = [{"price": 1.5, "store": 2}, {"price": None, "store": 3}]
    response = client.post("/predict/sales", json={"rows": rows})
    assert response.json() == {
        "model": "sales",
        "version": 7,
        "reference": "catalog://sales@7",
        "outputs": {"prediction": [3.0, None]},
        "level": [0, 0],
        "status": ["ok", "not finite"],
        "models": [{"run": RUN, "key": "2", "level": 0}, {"run": RUN, "key": "3", "level": 0}],
        "used": [0, 1],
    }
    response = client.post("/predict/sales", json={"rows": [{"price": 2}], "key": 4, "version": 6})
    assert (response.json()["version"], response.json()["outputs"]["prediction"]) == (6, [8.0])


def arrow(client: TestClient, table: pa.Table, accept: str = "*/*", **fields: Any) -> Any:
    body = table_bytes(table.replace_schema_metadata({FIELDS: json.dumps(fields)}))
    headers = {"content-type": ARROW, "accept": accept}
    return client.post("/predict/sales", content=body, headers=headers)


def test_a_stream_of_arrow_is_answered_with_one(client):
    response = arrow(client, pa.table({"price": [1.5, 2.0]}), key=3)
    assert response.headers["content-type"] == ARROW
    table = from_stream(response.content)
    assert table["prediction"].to_pylist() == [4.5, 6.0]
    assert table["model_run"].to_pylist() == [RUN, RUN]
    assert json.loads(table.schema.metadata[FIELDS])["version"] == 7
    response = arrow(client, pa.table({"price": [1.5]}), key=3, accept="application/json")
    assert response.json()["outputs"] == {"prediction": [4.5]}
    response = client.post(
        "/predict/sales", json={"rows": [{"price": 1.0}], "key": 3}, headers={"accept": ARROW}
    )
    assert from_stream(response.content)["prediction"].to_pylist() == [3.0]


def test_what_is_no_stream_of_plain_columns_is_refused(client):
    headers = {"content-type": ARROW}
    refused(client.post("/predict/sales", content=b"{}", headers=headers), 422, "Arrow")
    refused(arrow(client, pa.table({"price": [[1.5]]}), key=3), 422, "'price'")
    refused(arrow(client, pa.table({"price": [1.5]}), kee=3), 422, "'kee'", "Did you mean 'key'?")
    refused(arrow(client, pa.table({"price": pa.array([], pa.float64())}), key=3), 422, "no rows")
    refused(arrow(client, pa.table({"price": pa.nulls(100_001)}), key=3), 413)


@pytest.mark.parametrize("key", ["3", 3.0, True, None, [3, 4], {"shop": 3}, [[3]], {}])
def test_a_key_of_another_class_is_refused(client, key):
    response = of_key(client, PRICE, key=key)
    assert response.status_code in ({404} if key is None else {422})
    if key in ("3", 3.0, True):
        refused(response, 422, "'store'", "integer")


def test_whole_numbers_beyond_doubles_are_keys_as_they_stand(client, predictor):
    for key in (2**53 + 1, 2**63 - 1):
        refused(of_key(client, PRICE, key=key), 404, str(key))


def test_an_unknown_key_is_not_found_and_no_other_one_is_named(client):
    refused(of_key(client, PRICE, key=1234), 404, "1234")
    stores = column("store", [2, 1234], "INT64")
    refused(infer(client, PRICE, stores), 404, "1234")
    answer = infer(client, PRICE, stores, parameters={"on_missing": "null"})
    assert outputs_of(answer) == {
        "prediction": [3.0, None],
        "level": [0, -1],
        "status": ["ok", "no model"],
    }
    body = {"rows": [{"price": 1}], "key": 1234, "on_missing": "null"}
    plain = client.post("/predict/sales", json=body).json()
    assert (plain["outputs"], plain["level"]) == ({"prediction": [None]}, [None])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_no_json_are_refused(client, number):
    body = f'{{"rows": [{{"price": {number}}}], "key": 3}}'
    refused(client.post("/predict/sales", content=body), 400, "JSON")


def test_an_output_that_is_not_finite_is_null_and_says_so(client):
    answer = outputs_of(of_key(client, PRICE, key=0))
    assert answer == {"prediction": [None, None], "status": ["not finite", "not finite"]}


def test_null_is_a_missing_value(client, predictor):
    answer = outputs_of(of_key(client, column("price", [None, 2.0], "FP32")))
    assert answer == {"prediction": [None, 6.0], "status": ["not finite", "ok"]}
    assert predictor.answered[-1].columns["price"] == [None, 2.0]


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("FP64", "1.5"),
        ("FP64", True),
        ("FP64", 2**53 + 1),
        ("FP32", 1e39),
        ("FP16", 70_000.0),
        ("INT8", 128),
        ("INT64", 2**63),
        ("INT32", 1.0),
        ("INT32", False),
        ("UINT8", -1),
        ("BOOL", 1),
        ("BYTES", 1),
        ("FP64", [1.5]),
        ("FP64", {}),
    ],
)
def test_a_value_that_does_not_fit_its_datatype_is_refused(client, datatype, value):
    refused(of_key(client, column("price", [None, value], datatype)), 422, "'price'", datatype)


@pytest.mark.parametrize(
    ("datatype", "value", "taken"),
    [
        ("FP64", 2, 2.0),
        ("FP32", 0.1, 0.10000000149011612),
        ("FP16", 0.1, 0.0999755859375),
        ("INT64", -(2**63), -(2**63)),
        ("UINT64", 2**64 - 1, 2**64 - 1),
        ("BYTES", "a", "a"),
        ("BOOL", True, True),
    ],
)
def test_a_value_is_taken_as_its_datatype_has_it(client, predictor, datatype, value, taken):
    infer(client, PRICE, column("more", [value, None], datatype), parameters={"extra": "ignore"})
    infer(
        client,
        PRICE,
        column("more", [value, None], datatype),
        parameters={"extra": "ignore", "key": 3},
    )
    values = predictor.answered[-1].columns["more"]
    assert values == [taken, None]
    assert type(values[0]) is type(taken)


@pytest.mark.parametrize("shape", [[2, 2], [1, 2], [3], [-2], [], "2", [2.0], [2, 1, 1], [None]])
def test_a_shape_of_anything_but_rows_is_refused(client, shape):
    response = of_key(client, {**PRICE, "shape": shape})
    assert response.status_code == 422


def test_a_column_may_have_a_second_dimension_of_one(client):
    for data in ([1.5, 2.0], [[1.5], [2.0]]):
        price = column("price", data, shape=[2, 1])
        assert outputs_of(of_key(client, price))["prediction"] == [4.5, 6.0]
    for data in ([[1.5, 2.0]], [[1.5], 2.0], [[1.5], []]):
        assert of_key(client, column("price", data, shape=[2, 1])).status_code == 422


def test_columns_that_are_missing_misspelled_or_twice_are_refused(client):
    refused(of_key(client, column("prize", [1.5])), 422, "'price'", "Did you mean 'prize'?")
    strange = column("colour", ["red", "red"], "BYTES")
    refused(infer(client, PRICE, strange, parameters={"key": 3}), 422, "'colour'")
    parameters = {"key": 3, "extra": "ignore"}
    assert outputs_of(infer(client, PRICE, strange, parameters=parameters))["prediction"]
    refused(infer(client, PRICE, PRICE, parameters={"key": 3}), 422, "twice")
    refused(infer(client, PRICE, column("store", [1], "INT64")), 422, "'store' has 1 row")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"inputs": []},
        {"inputs": {}},
        {"inputs": [1]},
        {"inputs": [{"name": 1}]},
        {"inputs": [{**PRICE, "name": None}]},
        {"inputs": [{**PRICE, "datatype": "FP128"}]},
        {"inputs": [{**PRICE, "datatype": ["FP64"]}]},
        {"inputs": [{**PRICE, "data": None}]},
        {"inputs": [{**PRICE, "data": [1.5]}]},
        {"inputs": [{**PRICE, "shape": [0], "data": []}]},
        {"inputs": [PRICE], "parameters": []},
        {"inputs": [PRICE], "parameters": {"kee": 3}},
        {"inputs": [PRICE], "parameters": {"key": 3, "extra": "take"}},
        {"inputs": [PRICE], "parameters": {"key": 3, "on_missing": []}},
        {"inputs": [PRICE], "parameters": {"key": 3}, "id": 1},
        {"inputs": [PRICE], "parameters": {"key": 3}, "outputs": {}},
        {"inputs": [PRICE], "parameters": {"key": 3}, "outputs": [{"name": 1}]},
        [],
        "text",
    ],
)
def test_a_body_of_another_form_is_refused(client, body):
    response = client.post("/v2/models/sales/infer", json=body)
    assert response.status_code == 422
    assert response.json()["error"].endswith((".", "?"))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rows": {}},
        {"rows": []},
        {"rows": [1]},
        {"rows": [{"price": 1}, 1], "key": 3},
        {"rows": [{"price": 1}, {"prize": 1}], "key": 3},
        {"rows": [{"price": 1}, {"price": 1, "more": 1}], "key": 3},
        {"rows": [{"price": [1]}], "key": 3},
        {"rows": [{"price": {}}], "key": 3},
        {"rows": [{"price": 1}], "kee": 3},
        {"rows": [{"price": 1}], "key": 3, "version": "7"},
        {"rows": [{"price": 1}], "key": 3, "version": True},
        {"rows": [{"price": 1}], "key": 3, "extra": 1},
        {"rows": [{}], "key": 3},
    ],
)
def test_plain_rows_of_another_form_are_refused(client, body):
    refused(client.post("/predict/sales", json=body), 422)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 3000, b'{"a": "\\ud800"}', b"nul"])
def test_what_is_no_json_is_refused(client, body):
    for path in ("/v2/models/sales/infer", "/predict/sales"):
        refused(client.post(path, content=body), 400, "JSON")


def test_versions_are_served_where_they_were_named(client):
    assert infer(client, PRICE, STORES, path="sales/versions/6").json()["model_version"] == "6"
    for version in ("5", "x", "-1", "7.0", "9" * 40, "²"):
        refused(infer(client, PRICE, STORES, path=f"sales/versions/{version}"), 404)
    body = {"rows": [{"price": 1}], "key": 3, "version": 5}
    refused(client.post("/predict/sales", json=body), 404)
    refused(infer(client, PRICE, STORES, path="prices"), 404, "'prices'")


def test_more_rows_than_are_taken_at_once_are_refused(predictor):
    options = replace(QUIET, max_rows=2)
    with TestClient(make_app(predictor, options), base_url=LOCAL) as client:
        assert client.post("/predict/sales", json={"rows": [{"price": 1}] * 2, "key": 3}).is_success
        response = client.post("/predict/sales", json={"rows": [{"price": 1}] * 3, "key": 3})
        refused(response, 413, "3 rows", "2")
        refused(of_key(client, column("price", [1.0] * 3)), 413)


def test_a_body_beyond_the_limit_is_refused_by_its_length_and_while_it_is_read(predictor):
    options = replace(QUIET, max_body_bytes=1000)
    with TestClient(make_app(predictor, options), base_url=LOCAL) as client:
        refused(client.post("/predict/sales", content=b" " * 1001), 413, "1,000 bytes")
        refused(client.post("/predict/sales", content=iter([b" " * 600] * 2)), 413)
        body = orjson.dumps({"rows": [{"price": 1}], "key": 3}).ljust(1000)
        assert client.post("/predict/sales", content=iter([body[:500], body[500:]])).is_success


def test_a_content_encoding_and_binary_tensors_are_refused(client):
    refused(client.post("/predict/sales", headers={"content-encoding": "gzip"}), 415)
    headers = {"inference-header-content-length": "3"}
    refused(client.post("/v2/models/sales/infer", headers=headers, content=b"{}"), 415)


def test_an_api_key_opens_all_but_health(predictor):
    options = replace(QUIET, api_key=KEY)
    with TestClient(make_app(predictor, options), base_url=LOCAL) as client:
        for path in ("/v2", "/metrics", "/v2/models/sales", "/nothing"):
            refused(client.get(path), 401)
        for headers in (
            {"authorization": f"Bearer {KEY}x"},
            {"authorization": f"Basic {KEY}"},
            {"authorization": KEY},
            {"x-api-key": ""},
            {"x-api-key": b"\xff"},
        ):
            refused(client.get("/v2", headers=headers), 401)
        refused(client.post("/predict/sales", content=b"{}"), 401)
        assert predictor.answered == []
        for headers in ({"authorization": f"bearer {KEY}"}, {"x-api-key": KEY}):
            assert client.get("/v2", headers=headers).is_success
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert client.get(path).is_success


def test_a_request_id_is_taken_where_it_is_harmless(client):
    headers = {"x-request-id": "night-7.a_B"}
    assert client.get("/v2", headers=headers).headers["x-request-id"] == "night-7.a_B"
    made = set()
    for given in ("a b", "a" * 65, "\xff", "", "<script>"):
        answer = client.get("/v2", headers={"x-request-id": given.encode("latin-1")})
        made.add(answer.headers["x-request-id"])
    assert len(made) == 5
    assert all(len(each) == 16 for each in made)


def test_each_request_is_a_line_of_the_access_log(predictor, capfdbinary):
    with TestClient(make_app(predictor), base_url=LOCAL) as client:
        client.post("/predict/sales?key=secret", json={"rows": [{"price": 1}], "key": 3})
        client.get("/v2/nothing", headers={"x-request-id": "a"})
    first, second = map(orjson.loads, capfdbinary.readouterr().out.splitlines())
    assert (first["method"], first["path"], first["status"]) == ("POST", "/predict/sales", 200)
    assert (second["request_id"], second["status"]) == ("a", 404)
    assert "secret" not in str(first)


def test_health_names_what_is_served_and_what_was_refused(client, predictor):
    assert client.get("/v2/health/live").json() == {"live": True}
    ready = client.get("/v2/health/ready").json()
    assert ready == {
        "ready": True,
        "model": "sales",
        "version": 7,
        "reference": "catalog://sales@7",
    }
    predictor.refused = REFUSED
    refusal = client.get("/v2/health/ready").json()["refused"]
    assert refusal == {"reference": "catalog://sales@8", "error": "IntegrityError"}


def test_a_model_is_described_by_its_key(client):
    served = client.get("/v2/models/sales").json()
    assert (served["name"], served["versions"]) == ("sales", ["7", "6"])
    assert served["inputs"] == [{"name": "store", "datatype": "INT64", "shape": [-1]}]
    described = client.get("/v2/models/sales/versions/6", params={"key": "3"}).json()
    assert described["inputs"] == [{"name": "price", "datatype": "FP64", "shape": [-1]}]
    refused(client.get("/v2/models/sales", params={"key": "a"}), 422)
    refused(client.get("/v2/models/sales", params={"key": "77"}), 404)
    assert client.get("/v2/models/sales/ready").json() == {"name": "sales", "ready": True}
    refused(client.get("/v2/models/sales/versions/5/ready"), 404)


def test_a_plain_text_in_a_query_is_a_key(predictor):
    predictor.current = Served(key_columns=(KeyColumn(name="s", key_class=KeyClass.STRING),))
    with TestClient(make_app(predictor, QUIET), base_url=LOCAL) as client:
        refused(client.get("/v2/models/sales", params={"key": "north"}), 404, "north")


def test_what_no_route_takes_is_refused_in_the_form_of_errors(client):
    for method, path, status in (
        ("GET", "/v3", 404),
        ("GET", "/v2/", 404),
        ("GET", "/predict/sales", 405),
        ("DELETE", "/v2/models/sales", 405),
        ("POST", "/v2/repository/models/sales/load", 404),
    ):
        refused(client.request(method, path), status, method)


@pytest.mark.parametrize(
    "error", [IntegrityError("s3://secret differs"), StoreError("s3://secret")]
)
def test_a_model_that_cannot_be_read_is_unavailable_without_its_path(client, predictor, error):
    def fail() -> None:
        raise error

    predictor.before = fail
    response = of_key(client, PRICE)
    refused(response, 503, "try again")
    assert response.headers["retry-after"] == "1"
    assert "secret" not in response.text


def test_an_error_that_nobody_expected_is_a_fixed_sentence(client, predictor, caplog):
    def fail() -> None:
        raise RuntimeError("s3://secret")

    predictor.before = fail
    refused(of_key(client, PRICE), 500, "log")
    assert "s3://secret" in caplog.text


def test_what_is_loaded_is_answered_by_the_loop_and_the_rest_by_threads(client, predictor):
    of_key(client, PRICE)
    of_key(client, column("price", [1.0] * 257))
    infer(client, column("price", [1.0] * 17), column("store", [2] * 17, "INT64"))
    predictor.warm = False
    of_key(client, PRICE)
    inline, *others = predictor.threads
    assert not inline.startswith("partwise-serving")
    assert all(name.startswith("partwise-serving") for name in others)
    assert len(others) == 3


async def asked(client: httpx.AsyncClient, price: float = 1.0) -> httpx.Response:
    return await client.post("/predict/sales", json={"rows": [{"price": price}], "key": 3})


def async_client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=LOCAL)


def test_requests_beyond_the_queue_are_refused_at_once(predictor):
    """One is worked on, one waits, the third is refused; then the two are answered."""
    predictor.warm = False
    begun, go_on = threading.Event(), threading.Event()
    predictor.before = lambda: (begun.set(), go_on.wait(30))
    app = make_app(predictor, replace(QUIET, threads=1, waiting=1, timeout_s=60))

    async def ask() -> list[int]:
        async with async_client(app) as client:
            first = asyncio.create_task(asked(client))
            await asyncio.to_thread(begun.wait, 30)
            second = asyncio.create_task(asked(client))
            third = asyncio.create_task(asked(client))
            done, _ = await asyncio.wait({second, third}, return_when=asyncio.FIRST_COMPLETED)
            (early,) = done
            assert early.result().headers["retry-after"] == "1"
            refused(early.result(), 503, "Too many")
            go_on.set()
            answers = [await each for each in (first, second, third)]
            return sorted(answer.status_code for answer in answers)

    assert asyncio.run(ask()) == [200, 200, 503]
    assert len(predictor.answered) == 2


def test_a_request_whose_time_is_over_is_told_so_and_what_waits_is_not_begun(predictor):
    predictor.warm = False
    go_on = threading.Event()
    predictor.before = lambda: go_on.wait(30)
    app = make_app(predictor, replace(QUIET, threads=1, timeout_s=0.05))

    async def ask() -> None:
        async with async_client(app) as client:
            for answer in await asyncio.gather(asked(client, 1.0), asked(client, 2.0)):
                refused(answer, 504, "0.05 s")
            go_on.set()
            predictor.before = lambda: None
            # The one thread is free again only once the first work has come to its end.
            answers = [await asked(client, 3.0)]
            while not answers[-1].is_success:
                answers.append(await asked(client, 3.0))

    asyncio.run(ask())
    # The first gave up by its deadline, the second was never begun.
    assert [each.columns["price"] for each in predictor.answered] == [[3.0]]


def test_bodies_that_wait_are_held_up_to_a_limit(predictor):
    predictor.warm = False
    go_on = threading.Event()
    predictor.before = lambda: go_on.wait(30)
    options = replace(QUIET, threads=1, timeout_s=60, max_body_bytes=1000)
    app = make_app(predictor, options)
    body = orjson.dumps({"rows": [{"price": 1.0}], "key": 3}).ljust(1000)

    async def ask() -> list[int]:
        async with async_client(app) as client:
            asked = [
                asyncio.create_task(client.post("/predict/sales", content=body)) for _ in range(6)
            ]
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert {each.result().status_code for each in done} == {503}
            go_on.set()
            return sorted([(await each).status_code for each in asked])

    assert asyncio.run(ask()) == [200] * 4 + [503] * 2


def test_a_body_that_comes_too_slowly_is_refused(predictor):
    app = make_app(predictor, replace(QUIET, body_timeout_s=0.05))

    async def ask() -> None:
        async with async_client(app) as client:
            sent: list[Any] = []
            scope = {"type": "http", "method": "POST", "path": "/predict/sales", "headers": HOST}
            scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http"}

            async def send(message: Any) -> None:
                sent.append(message)

            await app({**scope, "root_path": ""}, asyncio.Event().wait, send)
            assert sent[0]["status"] == 408
            assert (await client.get("/v2/health/live")).is_success

    asyncio.run(ask())


def test_the_work_of_a_client_that_has_left_is_not_begun(predictor):
    predictor.warm = False
    begun, go_on = threading.Event(), threading.Event()
    predictor.before = lambda: (begun.set(), go_on.wait(30))
    app = make_app(predictor, replace(QUIET, threads=1, timeout_s=60))
    body = orjson.dumps({"rows": [{"price": 2.0}], "key": 3})
    scope = {"type": "http", "method": "POST", "path": "/predict/sales", "headers": HOST}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""}

    async def ask() -> None:
        async with async_client(app) as client:
            first = asyncio.create_task(asked(client, 1.0))
            await asyncio.to_thread(begun.wait, 30)
            messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
            sent: list[Any] = []

            async def receive() -> Any:
                return messages.pop(0)

            async def send(message: Any) -> None:
                sent.append(message)

            await app(scope, receive, send)
            assert sent == []
            go_on.set()
            assert (await first).is_success
            assert (await asked(client, 3.0)).is_success

    asyncio.run(ask())
    assert [each.columns["price"] for each in predictor.answered] == [[1.0], [3.0]]


def test_a_newer_version_is_seen_and_a_failed_look_changes_nothing(predictor):
    looks: list[int] = []

    def newer(seen: FakePredictor) -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise StoreError("s3://secret cannot be listed.")
        seen.current = Served(version=8)
        seen.refused = REFUSED

    predictor.newer = newer
    with TestClient(make_app(predictor, replace(QUIET, poll_s=0.01)), base_url=LOCAL) as client:
        assert predictor.refreshed.wait(30)
        assert client.get("/v2/health/ready").json()["version"] == 8
        assert of_key(client, PRICE).json()["model_version"] == "8"
        while "partwise_served_version 8.0" not in (text := client.get("/metrics").text):
            pass
        assert "partwise_newer_version_refused 1.0" in text
    assert predictor.closed.is_set()


def test_a_key_column_may_not_exist(predictor):
    predictor.current = Served(key_columns=())
    with TestClient(make_app(predictor, QUIET), base_url=LOCAL) as client:
        assert infer(client, PRICE, parameters={"key": 3}).status_code == 422


def test_metrics_count_requests_rows_loads_and_versions(predictor):
    with TestClient(make_app(predictor, replace(QUIET, metrics_keys=1)), base_url=LOCAL) as client:
        infer(client, PRICE, STORES)
        infer(client, PRICE, column("store", [2, 1234], "INT64"), parameters={"on_missing": "null"})
        predictor.warm = False
        of_key(client, PRICE)
        client.get("/v2/models/other")
        lines = set(client.get("/metrics").text.splitlines())
    assert {
        'partwise_requests_total{route="infer",status="200"} 3.0',
        'partwise_requests_total{route="model",status="404"} 1.0',
        'partwise_request_seconds_count{route="infer"} 3.0',
        'partwise_rows_total{level="0"} 5.0',
        'partwise_rows_total{level="none"} 1.0',
        "partwise_cold_loads_total 1.0",
        "partwise_waiting_requests 0.0",
        "partwise_served_version 7.0",
        "partwise_newer_version_refused 0.0",
        'partwise_key_rows_total{key="2"} 2.0',
        'partwise_key_rows_total{key="other keys"} 3.0',
    } <= lines


def test_keys_are_counted_only_where_that_was_asked_for(client):
    of_key(client, PRICE)
    assert "partwise_key_rows" not in client.get("/metrics").text


def test_a_question_of_arrow_keeps_its_columns(client, predictor):
    arrow(client, pa.table({"price": pa.array([1.5], pa.float32())}), key=3)
    question = predictor.answered[-1]
    assert question.columns["price"].type == pa.float32()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        # uvicorn ended in an OverflowError of each.
        ("port", 65_536, "give at most 65535"),
        ("timeout_s", float("inf"), "give a number that ends"),
        ("timeout_s", float("nan"), "give more than 0"),
        ("processes", 0, "give at least 1"),
    ],
)
def test_options_that_no_server_can_have_are_refused(name, value, said):
    with pytest.raises(InputError, match=f"{name}={value}: {said}"):
        ServerOptions(**{name: value})
