"""Documents of a store have one meaning, and a size that can be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import RunFormatError
from partwise.runs.documents import RunDocument
from partwise.runs.layout import check_target
from partwise.store import store as store_module
from partwise.store.lease import Lease, read_word
from partwise.store.store import Store
from partwise.store.strict_json import LARGEST_DOCUMENT_BYTES, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(VALUES)
def test_what_json_writes_is_read(value) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value).encode()) == value


@given(st.text(), VALUES, VALUES, st.lists(st.text(), max_size=3))
def test_a_name_that_stands_twice_is_refused_at_any_depth(name, first, second, path) -> None:
    text = f"{{{json.dumps(name)}: {json.dumps(first)}, {json.dumps(name)}: {json.dumps(second)}}}"
    for outer in path:
        text = f"[{{{json.dumps(outer)}: {text}}}]"
    with pytest.raises(ValueError, match="twice in one object"):
        parse_json(text)


def test_depth_and_size_have_a_limit() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 200_000)
    with pytest.raises(ValueError, match="a document has at most"):
        parse_json(b" " * (LARGEST_DOCUMENT_BYTES + 1))


def test_a_document_of_the_store_is_refused_with_a_sentence(tmp_path, monkeypatch) -> None:
    with pytest.raises(RunFormatError, match=r"run.json .* 'run_id' twice"):
        RunDocument.from_bytes(b'{"run_id": "a", "run_id": "b"}', "run.json")
    monkeypatch.setattr(store_module, "LARGEST_DOCUMENT_BYTES", 99)
    store = Store.parse(tmp_path)
    (tmp_path / "run.json").write_bytes(bytes(99))
    assert store.read_document("run.json") == bytes(99)
    (tmp_path / "run.json").write_bytes(bytes(100))
    with pytest.raises(RunFormatError, match=r"run.json .* is not a document: it has more than"):
        store.read_document("run.json")
    (tmp_path / "empty.json").write_bytes(b"")
    assert store.read_document("empty.json") == b""
    with pytest.raises(FileNotFoundError):
        store.read_document("none.json")


def test_a_deep_heartbeat_or_index_is_none_that_counts(tmp_path) -> None:
    store = Store.parse(tmp_path)
    with Lease.acquire(store, "runs/run"):
        store.write("runs/run/lease/0001.heartbeat", b"[" * 200_000)
        assert read_word(store, "runs/run") is None
    store.write("index.json", b"[" * 200_000)
    with pytest.raises(RunFormatError, match=r"index.json .* is not one of ours"):
        check_target(store)
