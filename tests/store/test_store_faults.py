"""The store on S3 over a network that fails: a proxy before a real server spoils requests."""

import collections
import http.client
import http.server
import threading
import urllib.parse
import uuid
from collections.abc import Iterator

import pytest
import s3fs

from partwise.errors import StoreError
from partwise.store.store import Store

ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"


class FaultProxy(http.server.ThreadingHTTPServer):
    """Forwards requests, and spoils those that alter something, as the plan says.

    Plan entries, each for one request: "lose answer", "lose request", or a status with an error
    code as "503 SlowDown". When `strip` is set, conditions are removed from every request.
    """

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urllib.parse.urlsplit(upstream)
        self.plan: collections.deque[str] = collections.deque()
        self.strip = False
        self.seen: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FaultProxy
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(f"{self.command} {self.path}")
        alters = self.command in ("PUT", "POST", "DELETE")
        fault = self.server.plan.popleft() if alters and self.server.plan else ""
        if fault[:3].isdigit():
            status, code = fault.split()
            self.answer(int(status), {}, ERROR.format(code, "injected").encode())
            return
        if fault != "lose request":
            status, headers, content = self.ask(body)
        if fault:
            self.close_connection = True
            return
        self.answer(status, headers, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name != "Expect"}
        if self.server.strip:
            headers.pop("If-None-Match", None)
        connection = http.client.HTTPConnection(self.server.upstream.netloc, timeout=10)
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, dict(response.getheaders()), content

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def _proxy(s3_endpoint_url) -> Iterator[FaultProxy]:
    with FaultProxy(s3_endpoint_url) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()


@pytest.fixture
def proxy(_proxy) -> FaultProxy:
    _proxy.plan.clear()
    _proxy.seen.clear()
    _proxy.strip = False
    return _proxy


@pytest.fixture
def store(proxy, s3_bucket) -> Store:
    return Store.parse(f"s3://{s3_bucket}/{uuid.uuid4().hex}", endpoint_url=proxy.url)


@pytest.fixture
def direct(store, s3_endpoint_url) -> Store:
    """The same store, past the proxy."""
    return Store.parse(store.url, endpoint_url=s3_endpoint_url)


@pytest.mark.parametrize("fault", ["lose answer", "lose request", "500 InternalError"])
@pytest.mark.parametrize("verb", ["write", "create"])
def test_a_lost_request_or_answer_is_a_success(store, direct, proxy, verb, fault):
    proxy.plan.append(fault)
    getattr(store, verb)("claim", b"mine")
    assert not proxy.plan
    assert len([line for line in proxy.seen if line.startswith("PUT")]) == 2
    assert direct.read("claim") == b"mine"


def test_a_lost_answer_does_not_hide_that_another_was_first(store, direct, proxy):
    direct.create("claim", b"hers")
    proxy.plan.append("lose answer")
    with pytest.raises(FileExistsError, match="already has an object"):
        store.create("claim", b"mine")
    assert direct.read("claim") == b"hers"


def test_an_answer_lost_while_another_creates(store, direct, proxy):
    proxy.plan.append("lose request")
    direct.create("claim", b"hers")
    with pytest.raises(FileExistsError, match="already has an object"):
        store.create("claim", b"mine")


def test_slow_down_is_obeyed(store, direct, proxy):
    proxy.plan.extend(["503 SlowDown"] * 2)
    store.write("object", b"x")
    assert direct.read("object") == b"x"


def test_a_race_of_conditional_writes_is_asked_again(store, direct, proxy):
    proxy.plan.extend(["409 ConditionalRequestConflict"] * 2)
    store.create("claim", b"mine")
    assert direct.read("claim") == b"mine"


def test_a_race_that_another_won(store, direct, proxy):
    direct.create("claim", b"hers")
    proxy.plan.append("409 ConditionalRequestConflict")
    with pytest.raises(FileExistsError, match="already has an object"):
        store.create("claim", b"mine")


def test_a_refusal_that_does_not_name_its_condition(store, direct, proxy):
    direct.create("claim", b"hers")
    proxy.plan.append("412 PreconditionFailed")
    with pytest.raises(FileExistsError, match="already has an object"):
        store.create("claim", b"mine")


def test_a_service_without_conditional_writes_is_refused(store, direct, proxy):
    proxy.strip = True
    with pytest.raises(StoreError, match="so two runs could destroy each other"):
        store.check_writable()
    assert direct.list("") == []


def test_refused_access_is_one_sentence(store, proxy):
    proxy.plan.append("403 AccessDenied")
    with pytest.raises(StoreError, match=r"Cannot write a in the artifact store s3.*rights to it"):
        store.write("a", b"x")


def test_an_upload_in_parts_survives_the_loss_of_its_last_answer(store, direct, proxy, monkeypatch):
    part = 5 * 2**20  # of 50 MB otherwise
    monkeypatch.setattr(s3fs.S3FileSystem._pipe_file, "__defaults__", (part, None, "overwrite"))
    data = bytes(2 * part)
    for verb in ("create", "write"):
        # Once an upload is complete, its ID is unknown to whoever asks again.
        proxy.plan.extend(["", "", "", "lose answer", "404 NoSuchUpload"])
        getattr(store, verb)("bundle", data)
        assert not proxy.plan
        assert direct.size("bundle") == len(data)
    with pytest.raises(FileExistsError, match="already has an object"):
        store.create("bundle", data[1:])


def test_a_whole_object_is_one_request(store, proxy):
    store.write("object", b"content")
    proxy.seen.clear()
    assert store.read("object") == b"content"
    assert store.read_range("object", 2, 3) == b"nte"
    assert [line.split()[0] for line in proxy.seen] == ["GET", "GET"]
