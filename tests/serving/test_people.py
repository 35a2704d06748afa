"""What the server has for people, over HTTP: its page, the keys in it, the routes as OpenAPI."""

import base64
import hashlib
import json
import re
import shlex
import subprocess
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import openapi_spec_validator
import pyarrow as pa
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.serving.champions import MOST_KEYS, Champions
from partwise.serving.served import PredictorOptions, open_served
from partwise.store.store import Store
from tests.run_maker import RunMaker
from tests.serving.catalogs import API_KEY, promote_scales, serving

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "q\"'`${x}",
    "🦜\u202e",
    "a,b\nc",
    "x" * 300,
)
KEYS = {**dict.fromkeys(HOSTILE, 2.0), **{f"store-{i:03d}": float(i) for i in range(100)}}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    store = Store.of(tmp_path_factory.mktemp("store"))
    promote_scales(store, "night-1", KEYS)
    promote_scales(store, "night-2", {"store-001": 10.0, HOSTILE[0]: 3.0})
    catalog = Catalog.open("sales", store).pin(["store-001"])
    catalog.retire(["store-002"])
    return store


@pytest.fixture(scope="module")
def url(store):
    with serving(store) as url:
        yield url


def asked(url: str, path: str, status: int = 200) -> Any:
    answer = httpx.get(f"{url}{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def one(url: str, key: str) -> Any:
    return asked(url, f"/keys/one?key={quote(key, safe='')}")


def test_keys_are_found_by_a_part_of_them_and_few_are_listed(url):
    all_keys = asked(url, "/keys")
    assert all_keys["reference"] == "catalog://sales@4"
    assert all_keys["key_columns"] == [{"name": "key", "class": "string"}]
    assert (all_keys["n_keys"], all_keys["n_found"]) == (len(KEYS), len(KEYS))
    assert len(all_keys["keys"]) == MOST_KEYS
    found = asked(url, "/keys?like=RE-01")
    assert [key["text"] for key in found["keys"]] == [f"store-01{i}" for i in range(10)]
    assert asked(url, "/keys?like=no%20such")["keys"] == []
    for pattern in ("(", "\\", "%", "."):
        assert asked(url, f"/keys?like={quote(pattern)}")["n_found"] == sum(
            pattern in key for key in KEYS
        )


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_of_any_characters_is_found_and_predicts(url, key):
    [listed] = asked(url, f"/keys?like={quote(key, safe='')}")["keys"]
    found = one(url, listed["id"])
    assert {name: found[name] for name in listed} == listed
    assert found == one(url, key)
    assert json.loads(found["json"]) == key
    body = f'{{"rows": [{{"price": 2}}], "key": {found["json"]}}}'
    answer = httpx.post(f"{url}/predict/sales", content=body)
    assert answer.json()["outputs"]["prediction"] == [6.0 if key == HOSTILE[0] else 4.0]


def test_a_champion_is_told_with_its_grounds_and_its_history(url):
    found = one(url, "store-001")
    assert asked(url, "/v2/models/sales?key=%22store-001%22")["inputs"][0]["name"] == "price"
    champion = found["champion"]
    assert (champion["run_id"], champion["generation"], champion["since_version"]) == (
        ("night-2", 1, 2)
    )
    assert (champion["pinned"], champion["retired"]) == (True, False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", champion["promoted_at"])
    assert found["metrics"] == {"value": 10.0}
    history = asked(url, "/keys/history?key=store-001")
    assert [each["version"] for each in history["versions"]] == [3, 2, 1]
    assert [each["run_id"] for each in history["versions"]] == ["night-2", "night-2", "night-1"]
    retired = one(url, "store-002")["champion"]
    assert (retired["run_id"], retired["retired"]) == (None, True)


def test_no_answer_to_a_key_that_is_not_there_names_another_one(url):
    for path in ("/keys/one", "/keys/history"):
        error = asked(url, f"{path}?key=store-0011", 404)["error"]
        assert error == "There is no key 'store-0011'."
        asked(url, path, 422)
        asked(url, f"{path}?key={'x' * 401}", 422)


@pytest.mark.parametrize(
    ("keys", "values", "texts"),
    [
        (pa.schema([("n", pa.int64())]), {2**60 + 1: 1.0, 7: 2.0}, [str(2**60 + 1), "7"]),
        (pa.schema([("x", pa.float64())]), {float("nan"): 1.0, 0.5: 2.0}, ["0.5", "nan"]),
        (pa.schema([("b", pa.bool_())]), {True: 1.0, False: 2.0}, ["false", "true"]),
        (pa.schema([("a", pa.string()), ("b", pa.int32())]), {("x,", 1): 2.0}, ['"x,",1']),
    ],
)
def test_keys_of_any_class_are_sent_as_they_were_listed(tmp_path, keys, values, texts):
    store = Store.of(tmp_path)
    promote_scales(store, "night-1", values, keys)
    with serving(store) as url:
        listed = asked(url, "/keys")["keys"]
        assert sorted(key["text"] for key in listed) == texts
        # Texts that a person would type find them too.
        assert asked(url, f"/keys?like={quote(texts[0].split(',')[-1])}")["n_found"] >= 1
        for key in listed:
            assert one(url, key["id"])["text"] == key["text"]
            body = f'{{"rows": [{{"price": 1}}], "key": {key["json"]}}}'
            answer = httpx.post(f"{url}/predict/sales", content=body).json()
            assert answer["status"] == ["ok"], answer


def test_a_run_has_keys_and_no_history(store):
    with serving(store, "run://night-2") as url:
        assert asked(url, "/keys")["reference"] == "run://night-2"
        assert one(url, "store-001")["champion"]["run_id"] == "night-2"
        assert asked(url, "/keys/history?key=store-001") == {"n_versions": 0, "versions": []}
        assert asked(url, "/openapi.json")["info"]["title"].startswith("night-2")


def test_of_a_run_that_is_served_as_onnx_the_run_of_its_exports_is_shown(tmp_path):
    store = Store.of(tmp_path)
    made = (("b", "DONE", 2.0), ("a", "DONE", 1.0))
    for run_id, kind, serde, done in [
        ("night", "train", "", made),
        ("as-onnx", "export", "onnx", made[1:]),
    ]:
        maker = RunMaker(store, run_id, kind, serde)
        maker.identity = replace(maker.identity, models=("run://night",) * (kind == "export"))
        for _ in done:
            maker.begin(on_existing="overwrite")
            maker.commit(*done)
            maker.end(len(done))
    served = open_served("run://night", store, PredictorOptions())
    shown = Champions("night", served.source)
    keys = shown.like()
    assert keys["reference"] == served.reference == "run://as-onnx"
    assert [key["text"] for key in keys["keys"]] == ["a"]
    champion = shown.one("a")["champion"]
    assert (champion["run_id"], champion["generation"]) == ("as-onnx", served.version)


def test_a_run_that_is_overwritten_is_shown_as_it_is_served(tmp_path):
    store = Store.of(tmp_path)
    promote_scales(store, "night-1", {"a": 2.0})
    with serving(store, "run://night-1") as url:
        promote_scales(store, "night-1", {"a": 3.0, "b": 4.0})
        assert one(url, "a")["metrics"] == {"value": 2.0}
        assert one(url, "a")["champion"]["generation"] == 1
        assert [key["text"] for key in asked(url, "/keys")["keys"]] == ["a"]


def test_the_page_goes_to_anybody_and_what_it_shows_only_to_those_with_the_key(store):
    with serving(store, api_key=API_KEY) as url:
        page = httpx.get(url)
        assert page.status_code == 200
        assert "sales" not in page.text
        for path in ("/keys", "/keys/one?key=a", "/keys/history?key=a", "/docs", "/openapi.json"):
            asked(url, path, 401)
            shown = httpx.get(f"{url}{path}", headers={"authorization": f"Bearer {API_KEY}"})
            assert shown.status_code in (200, 404)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_browser_may_run_and_load_nothing_but_what_the_page_has(url, path):
    page = httpx.get(f"{url}{path}")
    policy = dict(
        part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        hashes = [
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        ]
        assert policy[name] == (hashes[0] if hashes else "'none'")
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:|//)|\sstyle=|\son\w+=""", page.text)


@pytest.mark.parametrize("api_key", ["", API_KEY])
def test_the_document_is_openapi_and_has_every_route(store, api_key):
    headers = {"x-api-key": api_key} if api_key else {}
    with serving(store, api_key=api_key) as url:
        document = httpx.get(f"{url}/openapi.json", headers=headers).json()
        openapi_spec_validator.validate(document)
        for path, routes in document["paths"].items():
            there = path.replace("{name}", "sales").replace("{version}", "4")
            for method, route in routes.items():
                body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
                query = "?key=store-001" if there.startswith("/keys/") else ""
                answer = httpx.request(
                    method, f"{url}{there}{query}", headers=headers, json=body.get("example")
                )
                assert answer.status_code == 200, (path, answer.text)
                assert method == "post" or httpx.post(f"{url}{there}", headers=headers).is_error
                kinds = route["responses"]["200"]["content"]
                assert answer.headers["content-type"].split(";")[0] in kinds
                if api_key:
                    is_open = httpx.request(method, f"{url}{there}").status_code == 200
                    assert is_open is (route["security"] == [])


def test_commands_of_the_page_do_what_they_say(url):
    import html

    page = httpx.get(f"{url}/docs").text
    commands = [html.unescape(text) for text in re.findall(r"<pre>(curl .*?)</pre>", page)]
    predicting = [each for each in commands if "/predict/" in each or each.endswith("/infer")]
    assert len(predicting) == 3
    for command in commands:
        words = shlex.split(command.replace("=...", "=store-001"))
        words = [word.replace("$SERVER", url) for word in words]
        done = subprocess.run([*words, "-sS", "--fail-with-body"], capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
