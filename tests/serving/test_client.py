import asyncio
import datetime as dt
import json
import socket
import threading
import time
from contextlib import contextmanager
from decimal import Decimal
from zoneinfo import ZoneInfo

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.client import AsyncClient, Client, UnansweredError
from partwise.client.exchange import Response, body_of, exchange
from partwise.errors import ColumnError, InputError, KeyClassError, PartitionNotFoundError
from partwise.runs.run import ONLY
from partwise.serving.app import make_app
from partwise.serving.errors import DeadlineError, OverloadedError, VersionNotServedError
from partwise.serving.plain_json import read_arrow_rows, read_json_rows
from partwise.serving.server_options import ServerOptions
from partwise.serving.wire import ARROW
from partwise.store.store import Store
from tests.ports import free_port
from tests.serving.loopback import listening
from tests.serving.scales import make_predictor

API_KEY = "a-key-of-sixteen-characters"
STORES = pa.schema([("store", pa.string())])


def ask_at_once(url, *question, client=None, **options):
    with Client(url, **client or {}) as asked:
        return asked.predict(*question, **options)


def ask_by_asyncio(url, *question, client=None, **options):
    async def ask():
        async with AsyncClient(url, **client or {}) as asked:
            return await asked.predict(*question, **options)

    return asyncio.run(ask())


@pytest.fixture(params=[ask_at_once, ask_by_asyncio])
def ask(request):
    return request.param


@pytest.fixture
def store(tmp_path):
    return Store.parse(tmp_path / "store")


@contextmanager
def served(predictor, **options):
    app = make_app(predictor, ServerOptions(access_log=False, **options))
    with listening(app) as base:
        yield f"{base}/predict/{predictor.name}"


KEYS = {
    "integer": (pa.int64(), [-(2**63), 2**53 + 1, 7]),
    "unsigned": (pa.uint64(), [2**64 - 1, 0]),
    "string": (pa.string(), ["7", "", "Zürich/HB?#", "null", "\n"]),
    "float": (pa.float64(), [0.1, 2.0, float("nan"), float("inf"), 0.0]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [dt.date(2026, 11, 27), dt.date(1, 1, 1)]),
    "timestamp": (
        pa.timestamp("ns"),
        [pd.Timestamp("2026-11-27T01:00"), pd.Timestamp("2026-11-27T01:00:00.000000001")],
    ),
    "timestamp_tz": (
        pa.timestamp("ns", "Europe/Zurich"),
        [dt.datetime(2026, 7, 1, 2, tzinfo=ZoneInfo("Europe/Zurich"))],
    ),
    "time": (pa.time64("us"), [dt.time(1, 2, 3, 4)]),
    "duration": (pa.duration("ns"), [dt.timedelta(days=3, microseconds=1), pd.Timedelta(5, "ns")]),
    "decimal": (pa.decimal128(38, 2), [Decimal("19.90"), Decimal("123456789012345678901234.5")]),
    "binary": (pa.binary(), [b"\x00\xff", b""]),
}
KINDS = [*KEYS, "integer and null"]


def keys_of(kind):
    if kind == "integer and null":
        return pa.schema([("a", pa.int64()), ("b", pa.string())]), [(1, None), (None, "x")]
    data_type, values = KEYS[kind]
    # The null key is one of every class.
    return pa.schema([("a", data_type)]), [*values, None]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_class_find_their_models_as_without_a_server(store, kind):
    schema, keys = keys_of(kind)
    predictor = make_predictor(store, {key: n + 2.5 for n, key in enumerate(keys)}, schema)
    prices = pa.table({"price": [1.0, None]})
    with served(predictor) as url, Client(url) as client:
        for n, key in enumerate(keys):
            if key == "null" or (key is None and kind == "string"):
                continue
            answer = client.predict(prices, key)
            assert answer["prediction"][0].as_py() == n + 2.5
            assert_equal(answer, predictor.predict(prices, key))
            assert_equal(
                client.predict([{"price": 2}], key), predictor.predict([{"price": 2}], key)
            )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_many_keys_are_answered_as_without_a_server(store, ask, kind):
    schema, keys = keys_of(kind)
    predictor = make_predictor(store, {key: n + 2.5 for n, key in enumerate(keys)}, schema)
    lists = zip(*(key if isinstance(key, tuple) else (key,) for key in keys), strict=True)
    arrays = [pa.array(each, kind) for each, kind in zip(lists, schema.types, strict=True)]
    rows = pa.table(arrays, schema=schema).append_column("price", pa.array([1.0] * len(keys)))
    with served(predictor) as url:
        answer = ask(url, rows)

    assert answer["prediction"].to_pylist() == [n + 2.5 for n in range(len(keys))]
    assert_equal(answer, predictor.predict(rows))


@pytest.mark.parametrize("kind", ["date", "timestamp_tz", "decimal", "binary", "duration"])
def test_keys_in_rows_of_python_are_those_that_python_has(store, ask, kind):
    schema, keys = keys_of(kind)
    predictor = make_predictor(store, {key: n + 2.5 for n, key in enumerate(keys)}, schema)
    rows = [{"a": key, "price": 1.0} for key in keys]
    with served(predictor) as url:
        answer = ask(url, rows)

    assert answer["prediction"].to_pylist() == [n + 2.5 for n in range(len(keys))]
    assert_equal(answer, predictor.predict(rows))


def test_decimals_in_rows_are_numbers_for_a_model(store, ask):
    schema = pa.schema([("a", pa.string()), ("b", pa.decimal128(9, 2))])
    keys = [("x", Decimal("1.50")), (None, Decimal("2.50"))]
    predictor = make_predictor(store, {key: n + 2.5 for n, key in enumerate(keys)}, schema)
    exact = Decimal("123456789012345678901234567890.5")
    rows = [
        {"a": a, "b": b, "price": price} for (a, b), price in zip(keys, (exact, 2), strict=True)
    ]
    with served(predictor) as url:
        for question in ((rows,), (rows[1:],), ([{"price": exact}, {"price": None}], keys[0])):
            assert_equal(ask(url, *question), predictor.predict(*question))
    body = body_of([{"price": exact}, {"price": 1}], ONLY, None, "fail", "fail")
    sent = read_arrow_rows(body.content, max_rows=9).columns["price"]
    assert sent.to_pylist() == [exact, 1]


@pytest.mark.parametrize("value", [float("inf"), np.float32("-inf"), b"\x07", -0.0])
def test_a_model_gets_the_values_of_rows_and_no_text_in_their_place(value):
    body = body_of([{"price": value}, {"price": None}], ONLY, None, "fail", "fail")
    read = read_arrow_rows if body.content_type == ARROW else read_json_rows
    values = read(body.content, max_rows=9).columns["price"]
    found = values if isinstance(values, list) else values.to_pylist()
    assert [repr(each) for each in found] == [repr(getattr(value, "item", lambda: value)()), "None"]


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16])
def test_nan_in_a_row_is_a_missing_value_of_whatever_precision(kind):
    rows = [{"price": kind("nan")}, {"price": kind(1.5)}]
    body = body_of(rows, ONLY, None, "fail", "fail")
    assert read_json_rows(body.content, max_rows=9).columns["price"] == [None, 1.5]


def test_a_value_that_no_column_has_is_named_with_its_column():
    with pytest.raises(InputError, match=r"^The column 'place' has \(1, 2\) among .* type tuple"):
        body_of([{"place": (1, 2)}], ONLY, None, "fail", "fail")


def test_texts_beside_decimals_stand_for_the_keys_that_they_do_in_json(store, ask):
    schema = pa.schema([("a", pa.date32()), ("b", pa.decimal128(9, 2))])
    key = (dt.date(2026, 3, 1), Decimal("1.50"))
    predictor = make_predictor(store, {key: 7.5}, schema)
    rows = [{"a": "2026-03-01", "b": Decimal("1.5"), "price": 1.0}]
    with served(predictor) as url:
        for question in ((rows,), (rows, key)):
            assert_equal(ask(url, *question), predictor.predict(*question))
    assert predictor.predict(rows)["prediction"].to_pylist() == [7.5]


def assert_equal(found, expected):
    """Compare tables to the bit, NaN with NaN."""
    assert found.schema.equals(expected.schema, check_metadata=True)
    for name in found.column_names:
        np.testing.assert_array_equal(found[name].to_numpy(), expected[name].to_numpy())


ROWS = {
    "table": pa.table({"store": ["a", "b", "?"], "price": [1.5, None, 2.0]}),
    "frame": pd.DataFrame({"store": pd.Categorical(["a", "b", "?"]), "price": [1.5, np.nan, 2.0]}),
    "objects": [{"store": "a", "price": 1.5}, {"store": "b"}, {"store": "?", "price": 2}],
    "columns": {"store": ["a", "b", "?"], "price": [1.5, float("nan"), np.float32(2)]},
    "views": pa.table({"store": pa.array(["a", "b", "?"], pa.string_view()), "price": [1.0] * 3}),
}


@pytest.mark.parametrize("form", ROWS)
def test_rows_of_every_form_are_answered_as_without_a_server(store, ask, form):
    predictor = make_predictor(store, {"a": 2.0, "b": 3.0}, STORES)
    with served(predictor) as url:
        answer = ask(url, ROWS[form], on_missing="null")

    assert answer["status"].to_pylist()[2] == "no model"
    assert_equal(answer, predictor.predict(ROWS[form], on_missing="null"))


REFUSED = {
    "key": (PartitionNotFoundError, ([{"price": 1.0}], "c"), {}),
    "class": (KeyClassError, ([{"price": 1.0}], 7), {}),
    "column": (ColumnError, ([{"prise": 1.0}], "a"), {}),
    "values": (InputError, ([{"price": "one"}], "a"), {}),
    "version": (VersionNotServedError, ([{"price": 1.0}], "a"), {"version": 9}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_raises_the_error_of_the_local_call(store, ask, case):
    kind, question, options = REFUSED[case]
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    with pytest.raises(kind) as local:
        predictor.predict(*question, **options)
    with served(predictor) as url, pytest.raises(kind) as error:
        ask(url, *question, **options)

    assert type(error.value) is type(local.value)
    # A key of another class is read as JSON by the server.
    assert case == "class" or str(error.value) == str(local.value)


@pytest.mark.parametrize("rows", [7, "a", [1], [{"price": object()}], {"price": [1], "x": []}])
def test_rows_that_cannot_be_sent_are_refused_before_any_request(ask, rows):
    with pytest.raises(InputError):
        ask(f"http://127.0.0.1:{free_port()}/predict/sales", rows, "a")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:80/predict/a", "http://host", "http://host/predict/", "http://u:p@h/predict/a"],
)
def test_a_url_of_no_model_is_refused(url):
    with pytest.raises(InputError, match="give it as http"):
        Client(url)


@pytest.mark.parametrize(
    "given",
    [{"timeout_s": x} for x in (0, np.inf, np.nan, 1e10, None)] + [{"retries": 1.5}],
    ids=str,
)
def test_a_time_that_no_socket_waits_for_is_refused(given):
    with pytest.raises(InputError, match="give seconds above 0, up to 1,000,000,000"):
        Client("http://127.0.0.1:80/predict/a", **given)


def test_settings_of_a_client_may_be_numbers_of_numpy():
    Client("http://127.0.0.1:80/predict/a", timeout_s=np.float32(2.5), retries=np.int64(2))


def test_a_large_answer_is_put_together_once() -> None:
    parts = [bytes(65_536)] * 640
    began = time.process_time()
    with Client("http://127.0.0.1:80/predict/a") as client:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=iter(parts)))
        client._http = httpx.Client(transport=transport)
        outcome = client._send(body_of([{"x": 1}], "a", None, "fail", "fail"), 60)
    assert isinstance(outcome, Response)
    assert outcome.content == b"".join(parts)
    assert time.process_time() - began < 2, "each part copies all before it"


class Answers:
    """An app with a list of answers; the last one stands for all that follow."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = 0

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return
        self.requests += 1
        status, headers, body = self.answers[min(self.requests, len(self.answers)) - 1]
        headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        await send({"type": "http.response.body", "body": content})


def told(kind):
    return {"error": "No.", "kind": kind}


PASSING = {
    "full": (503, {"retry-after": "0"}, told("OverloadedError")),
    "proxy without server": (502, {}, "<html>"),
    "proxy too late": (504, {}, ["?"]),
}


@pytest.mark.parametrize("case", PASSING)
def test_what_may_pass_is_asked_again_until_it_is_answered(ask, case):
    app = Answers(PASSING[case], PASSING[case], (404, {}, told("PartitionNotFoundError")))
    with listening(app) as base, pytest.raises(PartitionNotFoundError, match="No"):
        ask(f"{base}/predict/sales", [{"price": 1.0}], "a")
    assert app.requests == 3


def test_pauses_between_retries_stay_short_however_many_there_were():
    steps, busy = exchange(1e9, retries=1500), Response(status=503, headers={}, content=b"")
    next(steps)
    waits = [steps.send(step) for _ in range(1500) for step in (busy, None)][::2]
    assert all(0 < wait.seconds <= 2 for wait in waits)
    with pytest.raises(UnansweredError, match="answered 503"):
        steps.send(busy)


def test_retries_have_an_end(ask):
    app = Answers(PASSING["full"])
    with listening(app) as base, pytest.raises(OverloadedError, match="No"):
        ask(f"{base}/predict/sales", [{"price": 1.0}], "a", client={"retries": 1})
    assert app.requests == 2


LASTING = {
    "refused": ((422, {}, told("ColumnError")), ColumnError),
    "late": ((504, {}, told("DeadlineError")), DeadlineError),
    "failed": ((500, {}, {"error": "It failed."}), UnansweredError),
    "deep": ((500, {}, b"[" * 200_000), UnansweredError),
    "elsewhere": ((302, {"location": "/"}, ""), UnansweredError),
    "strange kind": ((422, {}, told("SystemExit")), UnansweredError),
    "no Arrow": ((200, {}, {"predictions": []}), UnansweredError),
    # A wait that the client has no time for is not begun.
    "full for long": ((503, {"retry-after": "60"}, told("OverloadedError")), OverloadedError),
}


@pytest.mark.parametrize("case", LASTING)
def test_what_lasts_is_asked_once(ask, case):
    answer, kind = LASTING[case]
    app = Answers(answer)
    with listening(app) as base, pytest.raises(kind) as error:
        ask(f"{base}/predict/sales", [{"price": 1.0}], "a")
    assert app.requests == 1
    assert type(error.value) is kind


def test_lost_connections_are_made_again(ask):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = []

        def lose():
            while len(taken) < 3:
                taken.append(listener.accept()[0])
                taken[-1].close()

        thread = threading.Thread(target=lose)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/predict/sales"
        with pytest.raises(UnansweredError, match="was not reached"):
            ask(url, [{"price": 1.0}], "a", client={"retries": 2})
        thread.join()


def test_a_server_that_is_silent_is_given_up_in_time(ask):
    class Silent:
        async def __call__(self, scope, receive, send):
            while scope["type"] == "http" and (await receive())["type"] != "http.disconnect":
                pass

    with listening(Silent()) as base, pytest.raises(DeadlineError, match="within the time"):
        ask(f"{base}/predict/sales", [{"price": 1.0}], "a", client={"timeout_s": 0.2})


def test_the_api_key_is_shown_to_the_server_alone(store, ask):
    predictor = make_predictor(store, {"a": 2.0}, STORES)
    wrong = "wrong-key-of-sixteen-characters"
    with served(predictor, api_key=API_KEY) as url:
        answer = ask(url, [{"price": 1.0}], "a", client={"api_key": API_KEY})
        assert answer["prediction"].to_pylist() == [2.0]
        with pytest.raises(InputError, match="API key") as error:
            ask(url, [{"price": 1.0}], "a", client={"api_key": wrong})
    unreached = f"http://127.0.0.1:{free_port()}/predict/sales"
    with pytest.raises(UnansweredError) as other:
        ask(unreached, [{}], "a", client={"api_key": wrong, "retries": 0})
    with pytest.raises(InputError, match="strip it") as bad:
        Client(url, api_key=f"{wrong}\n")
    client = Client(url, api_key=wrong)
    texts = [repr(client), *(repr(each.value) for each in (error, other, bad))]
    assert [text for text in texts if wrong in text] == []
    client.close()


def test_many_threads_share_a_client(store):
    predictor = make_predictor(store, {"a": 2.0, "b": 3.0}, STORES)
    answers = {}
    with served(predictor) as url, Client(url) as client:

        def ask_often(key):
            answers[key] = [
                client.predict([{"price": n}], key)["prediction"][0].as_py() for n in range(20)
            ]

        threads = [threading.Thread(target=ask_often, args=(key,)) for key in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {key: [n * by for n in range(20)] for key, by in (("a", 2.0), ("b", 3.0))}
