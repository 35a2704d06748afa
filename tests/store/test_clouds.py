"""Stores in Azure, on the server that Microsoft has for tests; and Google's, whose has no package.

The promises of a store were tried on Google's own test server (googleapis/storage-testbench), which
wants line ends that gcsfs does not write: here is what a store in Google asks of one that answers
as it does.
"""

import http.server
import json
import threading
import uuid
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from partwise.errors import IntegrityError, StoreError
from partwise.store.store import Store
from partwise.testing.store import StoreContract
from tests.azure_server import ACCOUNT, CONTAINER


@pytest.fixture
def azure_environment(azure: str, monkeypatch) -> None:
    """The keys as adlfs finds them in the environment."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure)


@pytest.mark.usefixtures("azure_environment")
class TestAzure(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return Store.parse(f"abfs://{CONTAINER}/{uuid.uuid4().hex}/x")


@pytest.mark.usefixtures("azure_environment")
def test_a_url_of_azure_may_name_the_account() -> None:
    folder = uuid.uuid4().hex
    store = Store.parse(f"abfs://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{folder}")
    store.write("runs/a/1", b"x")
    assert (store.read("runs/a/1"), store.list(""), store.list_folder("runs")) == (
        b"x",
        ["runs/a/1"],
        ["a"],
    )
    assert Store.parse(f"abfs://{CONTAINER}/{folder}").list("") == ["runs/a/1"]


@pytest.mark.usefixtures("azure_environment")
@pytest.mark.parametrize("call", ["read", "exists", "list", "list_folder", "write", "create"])
def test_a_missing_container_is_no_empty_store(call: str) -> None:
    store = Store.parse("abfs://no-such-container/x")
    arguments = (b"x",) if call in ("write", "create") else ()
    with pytest.raises(StoreError, match=r"(bucket|container) does not exist; check") as caught:
        getattr(store, call)("a", *arguments)
    assert "RequestId" not in str(caught.value)


class _Google(http.server.BaseHTTPRequestHandler):
    """A bucket "there" with one object "a" of no bytes; there is no other bucket."""

    asked: list[str]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        self.asked.append(asked.path)
        prefix = parse_qs(asked.query).get("prefix", [""])[0]
        named = {"kind": "storage#object", "name": "x/a", "bucket": "there", "size": "0"}
        if "/b/there/o" not in asked.path:
            self._answer(404, b"")
        elif asked.path.endswith("/o"):
            items = {"items": [named]} if "x/a".startswith(prefix) else {}
            self._answer(200, json.dumps(items).encode())
        elif self.headers.get("Range"):
            self._answer(416, b"")
        elif asked.path.startswith("/download/"):
            self._answer(200, b"")
        else:
            self._answer(200, json.dumps(named).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def google(monkeypatch) -> Iterator[list[str]]:
    """What a server of Google's protocol was asked."""
    _Google.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Google) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        yield _Google.asked
        server.shutdown()


def test_google_is_asked_for_nothing_but_objects(google: list[str], caplog) -> None:
    store = Store.parse("gs://there/x")
    assert store.list("") == ["a"]
    assert store.read("a") == b""
    with pytest.raises(IntegrityError, match="ends before byte 7"):
        store.read_range("a", 5, 2)
    assert store.list("none/") == []
    assert all("/b/there/o" in path for path in google)
    # As by the client that also looks how the bucket keeps its folders, in vain without keys.
    assert not caplog.records


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("call", ["list", "list_folder"])
def test_a_missing_bucket_of_google_is_no_empty_store(call: str) -> None:
    with pytest.raises(StoreError, match="the bucket does not exist; check"):
        getattr(Store.parse("gs://not-there/x"), call)("a")
