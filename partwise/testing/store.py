"""What partwise relies on in every artifact store. Inherit it to check your object store.

A server that speaks S3 is not S3: some take a second object under a name that was to be created
only once, and some list what is there a moment later. A run in such a store would lose results.

Example:
    class TestMinio(StoreContract):
        @pytest.fixture
        def store(self):
            return Store.parse(f"s3://tests/{uuid4()}", endpoint_url="https://minio:9000")
"""

import base64
import contextlib
import dataclasses
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from partwise.errors import IntegrityError
from partwise.store.store import Store

# It looks at the store before it says that it is ready: to connect may take longer than all
# claims, and these are to be made at the same time.
_CLAIM = """
import base64, json, pickle, sys
store = pickle.loads(base64.b64decode(sys.argv[1]))
store.exists("connect")
print("ready", flush=True)
sys.stdin.readline()
won = []
for number in range(20):
    try:
        store.create(f"claims/{number}", sys.argv[2].encode())
        won.append(f"claims/{number}")
    except FileExistsError:
        pass
print(json.dumps(won), flush=True)
"""


@contextlib.contextmanager
def _claiming(store: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that creates objects once it is asked to."""
    with subprocess.Popen(
        [sys.executable, "-c", _CLAIM, store, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


class StoreContract:
    """Define a fixture `store`, which gives each test an empty store."""

    def test_returns_what_was_written_last(self, store: Store) -> None:
        store.write("a/b.txt", b"first")
        store.write("a/b.txt", b"second, longer")
        assert store.read("a/b.txt") == b"second, longer"
        assert store.size("a/b.txt") == 14
        assert store.exists("a/b.txt")

    def test_keeps_empty_objects(self, store: Store) -> None:
        store.create("empty", b"")
        assert (store.read("empty"), store.size("empty"), store.exists("empty")) == (b"", 0, True)
        with pytest.raises(FileExistsError, match="already has an object"):
            store.create("empty", b"not empty")

    @pytest.mark.parametrize("call", ["read", "size"])
    def test_missing_objects_and_folders_are_no_files(self, store: Store, call: str) -> None:
        store.write("folder/object", b"x")
        for path in ("nothing", "folder", "folder/nothing", "folder/object/below"):
            with pytest.raises(FileNotFoundError, match="has no object"):
                getattr(store, call)(path)
            assert not store.exists(path)

    def test_reads_ranges(self, store: Store) -> None:
        store.write("object", bytes(range(100)))
        assert store.read_range("object", 10, 3) == bytes([10, 11, 12])
        assert store.read_range("object", 90, 10) == bytes(range(90, 100))
        assert store.read_range("object", 50, 0) == b""

    @pytest.mark.parametrize(("offset", "size"), [(0, 101), (95, 10), (100, 1), (5000, 2)])
    def test_range_past_the_end_is_an_integrity_error(
        self, store: Store, offset: int, size: int
    ) -> None:
        store.write("object", bytes(100))
        with pytest.raises(IntegrityError, match=f"ends before byte {offset + size}"):
            store.read_range("object", offset, size)

    def test_creates_only_once(self, store: Store) -> None:
        store.create("claim", b"mine")
        with pytest.raises(FileExistsError, match="already has an object"):
            store.create("claim", b"hers")
        assert store.read("claim") == b"mine"

    def test_creating_the_same_bytes_again_is_the_retry_of_a_lost_answer(
        self, store: Store
    ) -> None:
        store.create("claim", b"mine")
        store.create("claim", b"mine")
        assert store.read("claim") == b"mine"

    def test_one_of_many_threads_creates(self, store: Store) -> None:
        barrier = threading.Barrier(16)

        def claim(number: int) -> bytes | None:
            barrier.wait()
            try:
                store.create("run/claim", b"thread %d" % number)
            except FileExistsError:
                return None
            return b"thread %d" % number

        with ThreadPoolExecutor(16) as pool:
            winners = [winner for winner in pool.map(claim, range(16)) if winner]
        assert winners == [store.read("run/claim")]

    def test_one_of_two_processes_creates(self, store: Store) -> None:
        sent = base64.b64encode(pickle.dumps(store)).decode()
        with contextlib.ExitStack() as stack:
            processes = {name: stack.enter_context(_claiming(sent, name)) for name in "ab"}
            for process in processes.values():
                assert _line(process) == "ready\n"
            for process in processes.values():
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            won = {name: set(json.loads(_line(process))) for name, process in processes.items()}
        claims = {path: store.read(path).decode() for path in store.list("claims/")}
        assert len(claims) == 20
        assert sum(map(len, won.values())) == 20
        assert all(path in won[name] for path, name in claims.items())

    def test_lists_by_prefix(self, store: Store) -> None:
        paths = ["runs/a/1", "runs/a/2/deep", "runs/ab", "runs/b", "z"]
        # Not in the order that the list is to have.
        for path in reversed(paths):
            store.write(path, b"x")
        assert store.list("") == paths
        assert store.list("runs/a") == ["runs/a/1", "runs/a/2/deep", "runs/ab"]
        assert store.list("runs/a/") == ["runs/a/1", "runs/a/2/deep"]
        assert store.list("runs/b") == ["runs/b"]
        assert store.list("nothing/") == store.list("runs/b/") == []

    def test_lists_folders(self, store: Store) -> None:
        for path in ("runs/a/1", "runs/a/2", "runs/b", "z"):
            store.write(path, b"x")
        assert store.list_folder("") == ["runs", "z"]
        assert store.list_folder("runs") == ["a", "b"]
        assert store.list_folder("nothing") == store.list_folder("z") == []

    def test_lists_what_another_process_wrote(self, store: Store) -> None:
        other = dataclasses.replace(store, region="eu-central-1")  # a client of its own
        other.write("runs/old", b"x")
        assert store.list("runs/") == ["runs/old"]
        assert store.list_folder("runs") == ["old"]
        assert not store.exists("runs/new")
        other.write("runs/new", b"x")
        assert store.list("runs/") == ["runs/new", "runs/old"]
        assert store.list_folder("runs") == ["new", "old"]
        assert store.size("runs/new") == 1
        other.write("runs/new", b"longer")
        assert (store.size("runs/new"), store.read("runs/new")) == (6, b"longer")
        other.delete("runs/new")
        assert not store.exists("runs/new")

    def test_a_folder_is_there_while_something_is_in_it(self, store: Store) -> None:
        store.write("runs/a/1", b"x")
        store.write("runs/b/1", b"x")
        store.delete("runs/a/1")
        store.delete("runs/a/1")
        assert store.list_folder("runs") == ["b"]
        store.delete_folder("runs/b")
        store.delete_folder("runs/b")
        assert store.list_folder("") == []

    def test_moves_an_object_and_can_do_so_twice(self, store: Store) -> None:
        store.write("old/object", b"content")
        store.write("old/other", b"stays")
        for _ in range(2):
            store.move("old/object", "new/object")
            assert store.list("") == ["new/object", "old/other"]
            assert store.read("new/object") == b"content"
        # As after a process that died between its two steps.
        store.write("old/object", b"content")
        store.move("old/object", "new/object")
        assert store.list("") == ["new/object", "old/other"]

    def test_deletes_one_folder_only(self, store: Store) -> None:
        for path in ("runs/a/1", "runs/a/2/3", "runs/ab", "runs/b/1"):
            store.write(path, b"x")
        store.delete_folder("runs/a")
        assert store.list("") == ["runs/ab", "runs/b/1"]

    def test_check_writable_leaves_nothing_behind(self, store: Store) -> None:
        store.check_writable()
        assert store.list("") == []

    @pytest.mark.parametrize("path", ["a b", "ä/ö", "x=1/%2F", "..a", "a..b", "~", "x" * 255])
    def test_takes_unusual_names(self, store: Store, path: str) -> None:
        store.create(path, b"x")
        store.write(path, b"y")
        assert store.list("") == [path]
        assert store.read(path) == b"y"
        store.delete(path)
        assert store.list("") == []

    def test_is_a_plain_value(self, store: Store) -> None:
        copy = pickle.loads(pickle.dumps(store))
        assert copy == store
        assert hash(copy) == hash(store)
        assert Store.parse(store.url, endpoint_url=store.endpoint_url) == store
