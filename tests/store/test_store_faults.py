"""The store on S3 over a network that fails: a proxy before a real server spoils requests."""

import gc
import http.client
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from partwise.errors import StoreError
from partwise.store.store import Store
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.lazily import Lazily

s3fs = Lazily("s3fs")


@pytest.fixture(scope="module")
def _proxy(s3_endpoint_url) -> Iterator[FaultProxy]:
    with fault_proxy(s3_endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def proxy(_proxy) -> FaultProxy:
    _proxy.forward_all()
    return _proxy


@pytest.fixture
def store(proxy, s3_bucket) -> Store:
    return Store.parse(f"s3://{s3_bucket}/{uuid.uuid4().hex}", endpoint_url=proxy.url)


@pytest.fixture
def direct(store, s3_endpoint_url) -> Store:
    """The same store, past the proxy."""
    return Store.parse(store.url, endpoint_url=s3_endpoint_url)


def connection_to(proxy: FaultProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(proxy.url.removeprefix("http://"))


def test_the_proxy_leaves_no_connection_to_a_later_test(monkeypatch):
    left: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda told: left.append(str(told.exc_value)))
    monkeypatch.setattr(FaultProxy, "handle_error", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}"
        with fault_proxy(url) as proxy, closing(connection_to(proxy)) as asked:
            asked.request("GET", "/a")
            with upstream.accept()[0] as accepted:
                accepted.sendall(b"no answer of HTTP\r\n\r\n")
                with pytest.raises(http.client.RemoteDisconnected):
                    asked.getresponse()
    gc.collect()
    assert left == []


@pytest.mark.parametrize("fault", ["lose answer", "lose request", "500 InternalError"])
@pytest.mark.parametrize("verb", ["write", "create"])
def test_a_lost_request_or_answer_is_a_success(store, direct, proxy, verb, fault):
    proxy.plan.append(fault)
    getattr(store, verb)("claim", b"mine")
    assert not proxy.plan
    assert len([line for line in proxy.seen if line.startswith("PUT")]) == 2
    assert direct.read("claim") == b"mine"


@pytest.mark.parametrize(("path", "there"), [("full", True), ("empty", True), ("a", False)])
def test_whether_an_object_is_there_is_one_request(store, direct, proxy, path, there):
    for name, content in (("full", b"x"), ("empty", b""), ("a/b", b"")):
        direct.create(name, content)
    proxy.seen.clear()
    assert store.exists(path) is there
    assert len(proxy.seen) == 1


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
