"""Bundles: any zip tool opens them, and each artifact is one range of bytes."""

import io
import pickle
import random
import tempfile
import tracemalloc
import zipfile
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import IntegrityError
from partwise.models.serdes import PickleSerde
from partwise.runs.bundle import (
    BundleWriter,
    StoredArtifact,
    content_file,
    decode,
    local_content,
    read_model,
)
from partwise.store.store import Store

CONTENTS = st.one_of(
    st.binary(max_size=2000),
    st.binary(min_size=1, max_size=5).map(lambda part: part * 1000),
)


@given(st.lists(CONTENTS, max_size=8), st.text("aä€ .-_+'", min_size=1, max_size=40))
@settings(max_examples=50)
def test_each_artifact_is_where_the_ledger_says(contents, name) -> None:
    name = f"{name}.bin"
    writer = BundleWriter("bundles/x.zip")
    artifacts = [
        writer.add(f"partition-{i}", name, content, "own") for i, content in enumerate(contents)
    ]
    assert writer.is_empty is (not contents)
    data = writer.close()
    for artifact, content in zip(artifacts, contents, strict=True):
        stored = data[artifact.offset : artifact.offset + artifact.stored_bytes]
        assert decode(stored, artifact, "it") == content
    if contents:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            assert opened.testzip() is None
            found = {name: opened.read(name) for name in opened.namelist()}
        assert found == {f"partition-{i}/{name}": c for i, c in enumerate(contents)}


def test_a_bundle_may_have_more_artifacts_than_an_old_zip() -> None:
    writer = BundleWriter("bundles/x.zip")
    for number in range(70_000):
        last = writer.add(f"{number}", "m", b"%d" % number, "")
    data = writer.close()
    assert data[last.offset : last.offset + last.stored_bytes] == b"69999"
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        assert len(opened.namelist()) == 70_000
        assert opened.read("69999/m") == b"69999"


def test_a_model_is_read_in_memory_where_its_serde_reads_an_open_file(monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryDirectory", None)
    assert read_model(PickleSerde(), pickle.dumps({"mean": 1.5}), "model.pkl") == {"mean": 1.5}


def test_text_is_deflated_and_noise_is_not() -> None:
    writer = BundleWriter("bundles/x.zip")
    text = writer.add("a", "model.txt", b"tree " * 1000, "lightgbm")
    noise = writer.add("a", "model.bin", random.Random(0).randbytes(5000), "own")
    assert (text.compression, noise.compression) == ("deflate", "stored")
    assert text.stored_bytes < 200 < noise.stored_bytes == 5000
    assert writer.size_bytes > 5000


def test_equal_content_makes_equal_bundles() -> None:
    def make() -> bytes:
        writer = BundleWriter("bundles/x.zip")
        writer.add("a", "model.txt", b"tree " * 1000, "")
        return writer.close()

    assert make() == make()


@pytest.mark.parametrize("content", [b"tree " * 1000, bytes(range(250))])
def test_damaged_bytes_are_never_returned(content) -> None:
    writer = BundleWriter("bundles/x.zip")
    artifact = writer.add("a", "model.txt", content, "")
    data = writer.close()
    stored = data[artifact.offset : artifact.offset + artifact.stored_bytes]
    for place in range(len(stored)):
        damaged = stored[:place] + bytes([stored[place] ^ 1]) + stored[place + 1 :]
        with pytest.raises(
            IntegrityError, match=r"'model.txt' of it differs .* bundles/x.zip.*resume the run"
        ):
            decode(damaged, artifact, "it")
    for cut in (stored[:-1], b""):
        with pytest.raises(IntegrityError, match="differs"):
            decode(cut, artifact, "it")


def test_an_artifact_is_read_where_it_stands_in_a_local_file(tmp_path) -> None:
    writer = BundleWriter("bundles/x.zip")
    writer.add("a", "first.txt", b"first", "")
    artifact = writer.add("a", "second.txt", b"second " * 100, "")
    path = tmp_path / "x.zip"
    path.write_bytes(writer.close())
    assert local_content(str(path), artifact.offset, artifact) == b"second " * 100
    path.write_bytes(path.read_bytes()[: artifact.offset + 3])
    with pytest.raises(IntegrityError, match="differs"):
        local_content(str(path), artifact.offset, artifact)


def test_a_content_file_goes_when_it_was_read_with_what_stood_beside_it() -> None:
    with content_file(b"x", "model.onnx", {"folder/model.onnx.data": b"weights"}) as name:
        assert name.endswith("/model.onnx")
        assert Path(f"{name}.data").read_bytes() == b"weights"
    assert not Path(name).parent.exists()


@cache
def deflated_zeros(size: int) -> bytes:
    deflater = zlib.compressobj(9, wbits=-15)
    part = bytes(1 << 20)
    return b"".join([*(deflater.compress(part) for _ in range(size >> 20)), deflater.flush()])


def bomb(size: int, claimed: int) -> tuple[bytes, StoredArtifact]:
    """Return deflated zeros, and an artifact that claims to be of so many bytes."""
    stored = deflated_zeros(size)
    about = {"filename": "model.bin", "bundle": "bundles/x.zip", "serde": "", "sha256": "0" * 64}
    sizes = {"offset": 0, "size_bytes": claimed, "stored_bytes": len(stored)}
    return stored, StoredArtifact(**about, **sizes, compression="deflate")


@pytest.mark.parametrize("claimed", [0, 1000, 1 << 40])
def test_no_more_is_inflated_than_the_ledger_says(claimed) -> None:
    stored, artifact = bomb(64 << 20, claimed)
    assert len(stored) < 1 << 17
    tracemalloc.start()
    with pytest.raises(IntegrityError, match=r"'model\.bin' of it differs"):
        decode(stored, artifact, "it")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(("size", "offset"), [(1 << 40, 0), (1 << 40, 1 << 40), (1, 100)])
def test_a_range_beyond_its_object_is_refused_before_it_is_read(tmp_path, size, offset) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(bytes(100))
    _, artifact = bomb(1 << 20, 100)
    artifact = replace(artifact, stored_bytes=size, compression="stored")
    with pytest.raises(IntegrityError, match="differs"):
        local_content(str(path), offset, artifact)
    with pytest.raises(IntegrityError, match="ends before"):
        Store.parse(tmp_path).read_range("x.zip", offset, size)
