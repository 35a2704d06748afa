"""A server of real exports as a process of its own, which all tests here ask.

Bodies that no client of ours sends are answered in JSON, and it lives. What its document of routes
says holds for questions that schemathesis makes from it.
"""

import json
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.onnx_server import HANGS_S, Server, make_catalog, serving
from tests.thoroughness import THOROUGH

pytestmark = pytest.mark.slow

ANSWERS = {200, 400, 404, 413, 415, 422}
"""What a request can come to while the store is whole and nobody else asks."""
ARROW = "application/vnd.apache.arrow.stream"
INFER, PREDICT = "/v2/models/sales/infer", "/predict/sales"
RISE_MIB = 150
"""By how much the memory of a server may rise from its first thousand requests on."""


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    catalog = make_catalog(tmp_path_factory.mktemp("fuzz"))
    with serving(catalog, "--max-rows", "1000", "--warm", "none") as server:
        yield server


def test_onnxruntime_is_loaded_before_the_first_question(server):
    assert any("onnxruntime_pybind11_state" in path for path in server.loaded)


def inputs(*columns: tuple[str, str, list[Any]], **parameters: Any) -> dict[str, Any]:
    given = [
        {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}
        for name, datatype, data in columns
    ]
    return {"id": "7", "inputs": given, "parameters": parameters}


FEATURES = (("price", "FP64", [1.0, 2.5]), ("size", "INT64", [1, None]))
ROW = {"price": 1.5, "size": 2}
VALID: tuple[tuple[str, dict[str, Any]], ...] = (
    (INFER, inputs(*FEATURES, key=["north", 1])),
    (INFER, inputs(*FEATURES, key={"region": "süd", "shop": 2}, extra="ignore")),
    (
        INFER,
        inputs(
            ("region", "BYTES", ["north", "west"]),
            ("shop", "INT64", [1, 2]),
            *FEATURES,
            on_missing="null",
        ),
    ),
    (PREDICT, {"rows": [ROW, ROW], "key": ["north", 1]}),
    (PREDICT, {"rows": [{"region": "süd", "shop": 2, **ROW}], "on_missing": "null", "version": 1}),
)
DEEP = "[" * 2000 + "]" * 2000
NUMBERS = (-1, 0, 2**31, 2**53 + 1, -(2**63), 2**64 - 1, 2**64, 10**400, 1e308, -0.0, 5e-324)
ODD: tuple[Any, ...] = (
    *(None, True, [], {}, [[]], [[1.0], [2.5]], [{}], {"": {}}, [None] * 2000),
    *("", "NaN", "Infinity", "\x00", "\ud800", "süd", "../../etc/passwd", "%00", "a" * 70_000),
    *("1e400", "2025-01-01", "null", "é" * 300, "\x1b[2J", "INT8", "FP16", "BYTES", "1"),
    *NUMBERS,
)
RAW = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "01", "'x'", "1" * 5000, DEEP, "nul")
"""What stands in the text of a body, and Python's json does not write, or reads in its own way."""

json_values = st.recursive(
    st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=20),
    lambda each: (
        st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=9), each, max_size=4)
    ),
    max_leaves=12,
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a tree of JSON."""
    yield path
    if not isinstance(tree, list | dict):
        return
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for name, value in items:
        yield from places(value, (*path, name))


def changed(tree: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A tree with something else in a place; `change` returns `DROPPED` for nothing."""
    if not path:
        return change(tree)
    name, *rest = path
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    value = changed(copy[name], tuple(rest), change)
    if value is DROPPED:
        del copy[name]
    else:
        copy[name] = value
    return copy


DROPPED = object()


ALIKE: dict[type, st.SearchStrategy[Any]] = {
    int: st.sampled_from([0, 1, 2, 3, *NUMBERS]) | st.integers(),
    float: st.sampled_from([0.5, *NUMBERS]) | st.floats(allow_nan=False, allow_infinity=False),
    str: st.sampled_from(["west", "north", "price", "shop", "INT64", "FP32", "null", "7"])
    | st.text(max_size=20),
}
"""What may take the place of a value without being of another type."""


@st.composite
def trees(draw) -> tuple[str, Any]:
    """A valid request in which some places have become others."""
    path, tree = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.sampled_from(list(places(tree))))
        kind = draw(
            st.sampled_from(["alike"] * 4 + ["value", "dropped", "wrapped", "twice", "renamed"])
        )
        value = draw(json_values)
        match kind:
            case "alike":
                tree = changed(
                    tree, place, lambda found: draw(ALIKE.get(type(found), st.just(found)))
                )
            case "dropped" if place:
                tree = changed(tree, place, lambda _: DROPPED)
            case "wrapped":
                tree = changed(tree, place, lambda found: [found, found])
            case "twice" if place and isinstance(place[-1], int):
                tree = changed(tree, place[:-1], lambda found: [*found, *found])
            case "renamed" if place and isinstance(place[-1], str):
                name = value if isinstance(value, str) else "other"
                tree = changed(
                    tree,
                    place[:-1],
                    lambda found, old=place[-1], new=name: {
                        (new if name == old else name): each for name, each in found.items()
                    },
                )
            case _:
                tree = changed(tree, place, lambda _, value=value: value)
    return path, tree


@st.composite
def bodies(draw) -> tuple[str, bytes]:
    """A path and the text of a request, of which some is raw, twice, cut off or flipped."""
    path, tree = draw(trees())
    text = json.dumps(tree, ensure_ascii=draw(st.booleans()))
    kinds = ["", "", "", "", "", "raw", "raw", "twice", "bytes", "cut", "bom", "utf-16"]
    kind = draw(st.sampled_from(kinds))
    if kind == "raw":
        # In the place of a number, an array or a text.
        marks = [at for at, letter in enumerate(text) if letter in "[{0123456789"]
        at = draw(st.sampled_from(marks or [0]))
        text = text[:at] + draw(st.sampled_from(RAW)) + text[at + 1 :]
    elif kind == "twice" and text.startswith("{") and len(text) > 2:
        text = f"{text[:-1]}, {text[1:]}"
    body = text.encode("utf-16" if kind == "utf-16" else "utf-8", "surrogatepass")
    if kind == "bom":
        body = b"\xef\xbb\xbf" + body
    elif kind == "cut":
        body = body[: draw(st.integers(0, len(body)))]
    elif kind == "bytes":
        flipped = bytearray(body)
        for _ in range(draw(st.integers(1, 8))):
            flipped[draw(st.integers(0, len(flipped) - 1))] = draw(st.integers(0, 255))
        body = bytes(flipped)
    return path, body


def arrow_of(columns: dict[str, Any], metadata: bytes) -> bytes:
    table = pa.table(columns).replace_schema_metadata({b"partwise": metadata})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


STREAMS = (
    arrow_of({"price": [1.0, 2.0], "size": [1, 2]}, b'{"key": ["north", 1]}'),
    arrow_of({"region": ["north"], "shop": [1], "price": [1.0], "size": [1]}, b"{}"),
    arrow_of({"price": pa.array(["a", "b"]).dictionary_encode(), "size": [[1], [2]]}, b"[]"),
)


@st.composite
def streams(draw) -> tuple[str, bytes]:
    """A stream of Arrow with some bytes that are others, or of which some are missing."""
    body = bytearray(draw(st.sampled_from(STREAMS)))
    for _ in range(draw(st.integers(0, 6))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return PREDICT, bytes(body[: draw(st.integers(0, len(body)) | st.just(len(body)))])


VERSIONS = st.sampled_from(["1", "01", "0", "-1", "1e3", "२", "9" * 400, "../..", "\x00", ""])
OTHER_PATHS = st.builds(
    lambda name, version: (
        f"/v2/models/{name}/versions/{urllib.parse.quote(version, safe='')}/infer"
    ),
    st.sampled_from(["sales", "Sales", "%2e%2e", "s%00", "a" * 3000]),
    VERSIONS,
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from(
            [
                "application/json",
                ARROW,
                "text/plain",
                "application/json; charset=utf-16",
                "",
                "\xff",
            ]
        ),
        "Accept": st.sampled_from(["application/json", ARROW, "*/*", "text/html", ""]),
        "Content-Encoding": st.sampled_from(["gzip", "br", "identity", "", "x" * 500]),
        "Inference-Header-Content-Length": st.sampled_from(["0", "10", "-1", "x"]),
        "X-Request-ID": st.sampled_from(["a", "\xe9", "a" * 500, "<script>"]),
        "Expect": st.just("100-continue"),
    },
)
OF_JSON = st.sampled_from([{}, {"Content-Type": "application/json"}, {"Accept": ARROW}])
OF_ARROW = st.sampled_from([{"Content-Type": ARROW}, {"Content-Type": ARROW, "Accept": "json"}])
REQUESTS = st.one_of(
    *[st.tuples(bodies(), OF_JSON)] * 4,
    *[st.tuples(streams(), OF_ARROW)] * 2,
    st.tuples(bodies() | streams(), HEADERS),
)
BODILY = st.one_of(st.binary(max_size=50), json_values.map(lambda v: json.dumps(v).encode()))


def check(server: Server, path: str, body: bytes, headers: dict[str, str]) -> int:
    """See that what comes back is a success, or a sentence in JSON that says nothing of a place."""
    status, kind, answer = server.ask(path, body, headers)
    assert status in ANSWERS, answer
    if status == 200 and kind == ARROW:
        pa.ipc.open_stream(answer).read_all()
        return status
    assert kind.startswith("application/json")
    told = json.loads(answer, parse_constant=pytest.fail)
    if status != 200:
        sentence = told["error"]
        assert 5 < len(sentence) <= 1000
        for place in (str(server.store), server.store.name, "bundles", ".py", "Traceback"):
            assert place not in sentence
    return status


MANY = settings(
    max_examples=8_000 if THOROUGH else 400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def test_no_body_breaks_a_server(server):
    seen: dict[int, int] = {}
    memory: list[float] = []

    @MANY
    @given(REQUESTS)
    def ask(request) -> None:
        (path, body), headers = request
        status = check(server, path, body, headers)
        seen[status] = seen.get(status, 0) + 1
        if sum(seen.values()) % 1000 == 0:
            memory.append(server.memory_mib())

    for path, tree in VALID:
        assert check(server, path, json.dumps(tree).encode(), {}) == 200
    ask()
    # That they are refused by what stands in them, and not all at the door.
    assert {200, 400, 422} <= seen.keys()
    if THOROUGH:
        print(f"{sum(seen.values()):,} bodies: {seen}; MiB: {[round(each) for each in memory]}")
        assert memory[-1] - memory[0] < RISE_MIB


@settings(MANY, max_examples=2_000 if THOROUGH else 100)
@given(path=OTHER_PATHS, body=BODILY, headers=HEADERS)
def test_no_path_breaks_a_server(server, path, body, headers):
    check(server, path, body, headers)


def test_a_body_that_ends_early_or_never_ends_does_not_hold_others_up(server):
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANGS_S) as slow:
        slow.sendall(head)
        path, tree = VALID[0]
        assert check(server, path, json.dumps(tree).encode(), {}) == 200


CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
"""That every question of the right form is answered is none: it may ask for another key."""


def test_answers_are_what_the_document_says(server, tmp_path):
    code = "from schemathesis.cli import schemathesis; schemathesis()"
    url = f"http://127.0.0.1:{server.port}/openapi.json"
    options = [f"--checks={','.join(CHECKS)}", "--request-timeout=20", "--seed=7"]
    options += ["--phases=examples,coverage,fuzzing", f"--max-examples={400 if THOROUGH else 20}"]
    ended = subprocess.run(
        [sys.executable, "-c", code, "run", url, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
