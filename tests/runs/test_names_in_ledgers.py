"""Names in a ledger: whoever may write to a store may write any, and none leads elsewhere."""

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import PartwiseError, RunFormatError
from partwise.runs.bundle import (
    BundleWriter,
    StoredArtifact,
    content_file,
    is_name_below,
    local_content,
    write_new_file,
)
from partwise.runs.documents import ledger_file
from partwise.runs.ledger import read_table, write_table
from partwise.runs.run import Run
from partwise.runs.stored_names import strange_ids
from tests.security.forgery import reseal

ELSEWHERE = ("/tmp/x", "../x", "a/../../x", "..", ".", "", "a//b", "a/", "x\0y", "n" * 300)
NAMES = st.text(st.sampled_from(["a", ".", "/", "\\", "é", "\0", "~"]), max_size=12)


def with_row(run: Run, **changes: object) -> Run:
    """Write the run's ledger with other values in its first row, and its summary to suit."""
    root = Path(run.store.url, "runs", run.run_id)
    table = read_table((root / ledger_file(1)).read_bytes(), "it")
    rows = table.to_pylist()
    rows[0] |= {name: value for name, value in changes.items() if name in rows[0]}
    own = {name: value for name, value in changes.items() if name not in rows[0]}
    rows[0]["artifacts"] = [artifact | own for artifact in rows[0]["artifacts"]]
    content = write_table(pa.Table.from_pylist(rows, table.schema))
    (root / ledger_file(1)).write_bytes(content)
    reseal(root)
    return Run.open(run.run_id, run.store)


@pytest.fixture
def run(make_run) -> Run:
    make_run.serde = "plain"
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    return make_run.end(1)


@given(NAMES)
def test_a_name_below_a_folder_is_one_that_the_file_system_finds_there(name) -> None:
    joined = os.path.normpath(os.path.join("/folder", name)) if "\0" not in name else ""
    if is_name_below(name):
        assert joined == f"/folder/{name}"
    else:
        assert joined != f"/folder/{name}" or name in ("", ".")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_file_that_a_ledger_names_elsewhere_is_never_written(run, name, tmp_path) -> None:
    victim = tmp_path / "home" / ".bashrc"
    victim.parent.mkdir()
    victim.write_text("mine")
    for given_name in (name, str(victim), f"../{victim}"):
        changed = with_row(run, filename=given_name)
        refused = partial(pytest.raises, RunFormatError, match="partwise never writes")
        with refused():
            changed.model("a")
        with refused():
            changed.artifact("a", given_name, read=str)
        with refused():
            changed.stored_artifacts(run.partition_id("a"))
    assert victim.read_text() == "mine"
    assert os.listdir(victim.parent) == [".bashrc"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bundle", "../other/bundles/x.zip"),
        ("bundle", "run.json"),
        ("rows_file", "../../datasets/x/parts/y.parquet"),
        ("rows_file", "/etc/passwd"),
        ("partition_id", "../x"),
        ("partition_id", None),
        ("compression", "lzma"),
        ("offset", -1),
        ("stored_bytes", None),
    ],
)
def test_other_fields_are_refused_too(run, field, value) -> None:
    changed = with_row(run, **{field: value})
    with pytest.raises(RunFormatError, match="partwise never writes"):
        changed.model("a")


def test_a_file_that_is_there_is_not_written_through(tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(victim)
    for path in (victim, link, link / "below"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            write_new_file(path, b"theirs")
    assert victim.read_text() == "mine"
    with pytest.raises(RunFormatError), content_file(b"x", "../victim"):
        pass


def test_a_bundle_that_is_a_link_is_not_read(tmp_path, run) -> None:
    writer = BundleWriter("bundles/x.zip")
    artifact = writer.add("a", "model.txt", b"text", "lightgbm")
    bundle = tmp_path / "x.zip"
    bundle.write_bytes(writer.close())
    assert local_content(str(bundle), artifact.offset, artifact) == b"text"
    link = tmp_path / "link.zip"
    link.symlink_to(bundle)
    with pytest.raises(OSError, match="symbolic link"):
        local_content(str(link), artifact.offset, artifact)
    # Inference asks the store where bundles lie.
    [stored] = run.stored_artifacts(run.partition_id("a"))
    path = Path(run.store.url, "runs", run.run_id, stored.bundle)
    path.rename(tmp_path / "moved.zip")
    path.symlink_to(tmp_path / "moved.zip")
    with pytest.raises(PartwiseError, match="symbolic link"):
        run.store.local_path(f"runs/{run.run_id}/{stored.bundle}")


def test_what_partwise_writes_is_taken() -> None:
    artifact = BundleWriter("bundles/00000-g0001deadbeef-001.zip").add("a", "m.txt", b"", "")
    for name in ("model.txt", "..model", "folder/шум.bin", "a b", ".hidden"):
        assert isinstance(replace(artifact, filename=name), StoredArtifact)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_an_artifact_are_checked_where_it_is_made(name) -> None:
    artifact = BundleWriter("bundles/00000-g0001deadbeef-001.zip").add("a", "m.txt", b"", "")
    for changed in ({"filename": name}, {"bundle": name}):
        with pytest.raises(RunFormatError, match="partwise never writes"):
            replace(artifact, **changed)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rows_count", 2**40), ("rows_count", -1), ("rows_count", None), ("rows_offset", 2**63 - 1)],
)
def test_rows_that_are_in_no_file_are_not_looked_for(run, field, value) -> None:
    with pytest.raises(RunFormatError, match="rows that are in no file"):
        with_row(run, **{field: value}).predictions()


IDS = st.text(st.sampled_from("az09_-./\n\0A é"), max_size=6)


@given(st.lists(st.none() | IDS | IDS.map(lambda name: name * 20)))
def test_arrow_knows_the_names_of_partitions_as_python_does(names) -> None:
    ours = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,79}")
    strange = [name for name in names if name is None or not ours.fullmatch(name)]
    assert strange_ids(pa.chunked_array([names], pa.string())) == strange
