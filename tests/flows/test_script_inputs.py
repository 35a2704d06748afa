"""Inputs of scripts from everywhere, on workers that do not see this machine's files."""

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.blocks import RemoteCluster
from partwise.datasets.registration import register_dataset
from partwise.errors import InputError, IntegrityError, RunFailedError
from partwise.flows import run_script
from partwise.flows.running.script_inputs import open_inputs
from partwise.runs.run import Run
from partwise.scripts.inputs import (
    SharedPath,
    find_input,
    find_path,
    send_input,
    upload_input,
)
from partwise.store.store import Store
from tests.lazily import Lazily
from tests.run_maker import RunMaker

boto3 = Lazily("boto3")

SCRIPT = """
import json, os, pathlib

def content(path):
    if path.is_dir():
        return {str(each.relative_to(path)): each.read_text() for each in path.rglob("*.*")}
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq
        return pq.read_table(path).to_pylist()
    return path.read_text()

names = [name for name in os.environ if name.startswith("PARTWISE_INPUT_")]
seen = {name[15:].lower(): content(pathlib.Path(os.environ[name])) for name in names}
pathlib.Path("outputs", "seen.json").write_text(json.dumps(seen))
pathlib.Path("outputs", "note.txt").write_text("a note")
"""


class WebServer(http.server.ThreadingHTTPServer):
    """Files by name; each request is counted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        """How often a file is still there; not named: always."""
        self.cut: set[str] = set()
        """Those of which half comes."""
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        name = self.path.removeprefix("/").partition("?")[0]
        left = server.times.get(name, 1)
        if name not in server.files or left < 1:
            self.send_error(404)
            return
        if name in server.times:
            server.times[name] -= 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.files[name])))
        self.end_headers()
        content = server.files[name]
        self.wfile.write(content[: len(content) // 2] if name in server.cut else content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        yield server
        server.shutdown()


@pytest.fixture
def bucket(s3_store_url: str, s3_endpoint_url: str, dask_client) -> Iterator[str]:
    """A bucket with an object and a folder, and workers that know where its server is."""
    client = boto3.client("s3")
    name = s3_store_url.removeprefix("s3://")
    for key in ("one.txt", "many/a.txt", "many/below/b.txt"):
        client.put_object(Bucket=name, Key=key, Body=f"of {key}".encode())
    client.close()

    # Functions, as os.environ itself would travel as a copy.
    def tell() -> None:
        os.environ["AWS_ENDPOINT_URL_S3"] = s3_endpoint_url

    def forget() -> None:
        del os.environ["AWS_ENDPOINT_URL_S3"]

    dask_client.run(tell)
    yield s3_store_url
    dask_client.run(forget)


@pytest.fixture
def run(cluster, tmp_path) -> Callable[..., Run]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text(SCRIPT)

    def call(run_id: str, inputs: dict[str, Any], **more: Any) -> Run:
        return run_script(
            "main.py",
            source_directory=str(tmp_path / "code"),
            inputs=inputs,
            run_id=run_id,
            store=tmp_path / "store",
            cluster=RemoteCluster(address=cluster.address),
            **more,
        )

    return call


def seen(run: Run, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = run.artifact(rank, "outputs/seen.json")
    return found


@pytest.mark.slow  # two runs, and seven inputs on two nodes
def test_inputs_come_from_everywhere_to_nodes_that_see_no_files(
    run, web: WebServer, bucket: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "below" / "b.txt").write_text("b")
    web.files["data/web.txt"] = b"of the web"
    rows = pa.table({"x": [1, 2], "y": ["p", "q"]})
    register_dataset("sales", rows, store=str(tmp_path / "store"))
    inputs = {
        "file": folder / "a.txt",
        "folder": str(folder),
        "web": f"{web.url}/data/web.txt?key=1",
        "object": f"{bucket}/one.txt",
        "objects": f"{bucket}/many",
        "dataset": "dataset://sales",
        "table": rows.slice(1),
    }
    made = run("from-everywhere", inputs, nodes=2)
    expected = {
        "file": "a",
        "folder": {"a.txt": "a", "below/b.txt": "b"},
        "web": "of the web",
        "object": "of one.txt",
        "objects": {"a.txt": "of many/a.txt", "below/b.txt": "of many/below/b.txt"},
        "dataset": rows.to_pylist(),
        "table": [{"x": 2, "y": "q"}],
    }
    assert (seen(made, 0), seen(made, 1)) == (expected, expected)
    assert made.store.list("runs/from-everywhere/scratch/") == []
    # What one run has kept is the input of another: a file, and all of a partition.
    inputs = {
        "note": "run://from-everywhere/1/outputs/note.txt",
        "all": "run://from-everywhere/0",
    }
    used = seen(run("of-a-run", inputs), 0)
    assert used["note"] == "a note"
    assert json.loads(used["all"]["outputs/seen.json"]) == expected


def test_an_input_that_vanishes_before_the_start_fails_the_run_by_its_name(
    run, web: WebServer
) -> None:
    web.files["rows.csv"] = b"a,b"
    # There when it is asked for, and gone when the node brings it.
    web.times["rows.csv"] = 1
    with pytest.raises(
        RunFailedError, match=r"The input 'rows', http.*/rows.csv, is not there .*404"
    ):
        run("vanished", {"rows": f"{web.url}/rows.csv"})
    with pytest.raises(InputError, match=r"The input 'rows', http.*/rows.csv, is not there .*404"):
        run("never-there", {"rows": f"{web.url}/rows.csv"})


def test_a_changed_file_of_the_web_is_another_input(run, web: WebServer, tmp_path: Path) -> None:
    web.files["x.txt"] = b"first"
    call = {"inputs": {"x": f"{web.url}/x.txt"}, "on_existing_artifacts": "resume"}
    first = run("of-the-web", **call)
    assert (first.executed, run("of-the-web", **call).executed) == (1, 0)
    web.files["x.txt"] = b"second one"
    again = run("of-the-web", **call)
    assert again.executed == 1
    assert seen(again, 0) == {"x": "second one"}


# Without a run: what a node finds when it brings an input.


def described(kind: str, root: Path, store: Store, web: WebServer, bucket: str) -> str:
    """Return what a caller gives, after it was sent where that is how it travels."""
    path = root / "x.txt"
    path.write_text("content")
    web.files["x.txt"] = b"content"
    match kind:
        case "path":
            return str(path)
        case "web":
            return f"{web.url}/x.txt"
        case "object":
            return f"{bucket}/one.txt"
        case _:
            found = find_path(str(path))
            assert found is not None
            return send_input(found, store, "run")


def remove(kind: str, root: Path, store: Store, web: WebServer, bucket: str) -> None:
    match kind:
        case "path":
            (root / "x.txt").unlink()
        case "web":
            web.files.clear()
        case "object":
            Store.parse(bucket).delete("one.txt")
        case _:
            store.delete_folder("runs/run/sent")


@pytest.mark.parametrize("kind", ["path", "web", "object", "sent"])
def test_whatever_vanishes_is_told_by_the_name_of_the_input(
    web: WebServer, bucket: str, tmp_path: Path, kind: str
) -> None:
    store = Store.parse(tmp_path / "store")
    text = described(kind, tmp_path, store, web, bucket)
    found = find_input("rows", text, store)
    brought = found.bring("rows", tmp_path / "first", store)
    assert brought.read_text() == ("of one.txt" if kind == "object" else "content")
    remove(kind, tmp_path, store, web, bucket)
    with pytest.raises(InputError, match=r"The input 'rows', .*, is not there"):
        found.bring("rows", tmp_path / "second", store)
    with pytest.raises(InputError, match=r"The input 'rows', .*, is not there"):
        find_input("rows", text, store)


def test_half_a_file_of_the_web_is_no_file(web: WebServer, tmp_path: Path) -> None:
    web.files["x.txt"] = b"content"
    found = find_input("x", f"{web.url}/x.txt", Store.parse(tmp_path))
    web.cut.add("x.txt")
    with pytest.raises(InputError, match=r"The input 'x', .* \(it ended after 3 of 7 bytes\)"):
        found.bring("x", tmp_path / "node", Store.parse(tmp_path))


@pytest.mark.parametrize("where", ["one.txt", "many"])
def test_an_object_that_was_written_again_is_another_input(
    bucket: str, where: str, tmp_path: Path
) -> None:
    store, text = Store.parse(bucket), f"{bucket}/{where}"
    found = find_input("x", text, store)
    before = found.identity
    assert find_input("x", text, store).identity == before
    changed = "one.txt" if where == "one.txt" else "many/below/b.txt"
    first = store.modified(changed)
    while store.modified(changed) == first:  # buckets tell whole seconds
        store.write(changed, b"again")
    assert find_input("x", text, store).identity != before
    with pytest.raises(InputError, match=r"\.txt, has changed since the run began"):
        found.bring("x", tmp_path, store)


@pytest.mark.parametrize("travels", ["staged", "sent"])
def test_what_was_uploaded_is_checked_by_its_checksum(tmp_path: Path, travels: str) -> None:
    store = Store.parse(tmp_path / "store")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("content")
    shared = find_path(str(tmp_path / "folder"))
    assert isinstance(shared, SharedPath)
    if travels == "sent":
        found = find_input("rows", send_input(shared, store, "run"), store)
    else:
        found = upload_input(shared, store, "runs/run/scratch/token/input-0")
    (part,) = [path for path in store.list("runs/run/") if not path.endswith(".json")]
    store.write(part, b"changed")
    with pytest.raises(IntegrityError, match=r"a part of the input 'rows', .*, differs from its"):
        found.bring("rows", tmp_path / "node", store)


@pytest.mark.parametrize(
    ("chosen", "rows"),
    [
        ({"columns": ["b"]}, [{"b": 2}, {"b": 3}]),
        ({"filter": [["a", ">", 1]]}, [{"a": 2, "b": 3}]),
        ({"columns": ["a"], "filter": [["b", "<", 3]]}, [{"a": 1}]),
    ],
)
def test_rows_in_a_mapping_may_have_columns_or_a_filter(chosen, rows, tmp_path, local_store):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": [2, 3]}), path)
    found, written = open_inputs({"x": {"paths": [str(path)], **chosen}}, local_store)
    assert pa.Table.from_batches(found["x"].batches()).to_pylist() == rows
    again, _ = open_inputs(written, local_store)
    assert again["x"].description() == found["x"].description()


@pytest.mark.parametrize(
    ("named", "value"), [('"a,b",c', "1.0"), ('a,"b,c"', "2.0"), ("d,null", "3.0")]
)
def test_artifacts_are_those_of_the_one_key_that_is_named(
    local_store: Store, tmp_path: Path, named: str, value: str
) -> None:
    maker = RunMaker(local_store, keys=pa.schema([("x", pa.string()), ("y", pa.string())]))
    maker.begin()
    keys = {("a,b", "c"): 1.0, ("a", "b,c"): 2.0, ("d", "null"): 3.0, ("d", None): 4.0}
    maker.commit(*((key, "DONE", of_key) for key, of_key in keys.items()))
    maker.end(len(keys))
    found = find_input("note", f"run://run/{named}/note.txt", local_store)
    assert found.bring("note", tmp_path, local_store).read_text().endswith(value)


def test_a_file_of_no_key_is_that_of_the_only_partition_that_has_one(
    local_store: Store, tmp_path: Path
) -> None:
    maker = RunMaker(local_store)
    maker.begin()
    maker.commit(("a", "DONE", 1.0))
    maker.end(1)
    found = find_input("note", "run://run//note.txt", local_store)
    assert found.bring("note", tmp_path, local_store).read_text().endswith("1.0")
    maker.begin("overwrite")
    maker.commit(("a", "DONE", 1.0), ("b", "DONE", 2.0))
    maker.end(2)
    sentence = r"^The input 'note', run://run//note\.txt: 2 partitions .* write run://run/KEY/note"
    with pytest.raises(InputError, match=sentence):
        find_input("note", "run://run//note.txt", local_store)
