"""The documents of a run, and the names of its files."""

import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import NewerFormatError, RunFormatError, RunIdError
from partwise.outcomes import RunStatus
from partwise.runs.documents import (
    GenerationDocument,
    RunDocument,
    SummaryDocument,
    check_run_id,
    execution_token,
    generation_file,
    generation_number,
    generation_of,
    run_path,
    segment_file,
    to_json,
)
from partwise.store.signing import seal
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = RunDocument(
    run_id="nightly",
    kind="infer",
    keys=(KeyColumn(name="store", key_class=KeyClass.STRING),),
    n_shards=64,
    hash_version=1,
    models=("run://trained",),
    created_at=NOW,
    writer="w",
)
GENERATION = GenerationDocument(
    generation=2,
    on_existing_artifacts="resume",
    source_fingerprint="s",
    inputs_fingerprint=None,
    code_fingerprint=None,
    compatible=(1,),
    call={"flow": "train_models", "arguments": {"seed": 0}},
    call_obstacle=None,
    environment={"python": "3.11"},
    started_at=NOW,
    owner="host:1",
)
SUMMARY = SummaryDocument(
    generation=2,
    status=RunStatus.SUCCESS,
    message="fine",
    counts={"DONE": 3},
    kept=1,
    rows=30,
    dropped_rows=0,
    ledger_sha256="0" * 64,
    started_at=NOW,
    finished_at=NOW,
    stages={"load": 0.5},
)
DOCUMENTS = [RUN, GENERATION, SUMMARY]
_VERSION = re.compile(rb'"format_version": \d')


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_a_document_is_read_as_it_was_written(document) -> None:
    assert type(document).from_bytes(document.to_bytes(), "x") == document


@pytest.mark.parametrize("used", ["trained", None])
def test_a_document_of_before_names_the_models_of_one_run(used) -> None:
    values = json.loads(RUN.model_dump_json(exclude={"models"}))
    values |= {"format_version": 3, "training_run_id": used}
    content = seal(json.dumps(values, indent=2).encode() + b"\n", "")
    document = RunDocument.from_bytes(content, "x")
    assert document.models == (() if used is None else ("run://trained",))
    assert document.training_run_id == used


def test_one_run_among_several_sets_of_models_is_not_its_training_run() -> None:
    both = RUN.model_copy(update={"models": ("catalog://sales@7", "run://region")})
    assert (RUN.training_run_id, both.training_run_id) == ("trained", None)


def test_a_run_document_knows_its_keys() -> None:
    assert RUN.partition_by == ["store"]
    assert [column.key_class for column in RUN.keys] == [KeyClass.STRING]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is not a JSON document"),
        (lambda content: content[: len(content) // 2], "is not a JSON document"),
        (lambda content: b"\xff" + content, "is not a JSON document"),
        (lambda content: b"[1]", "is not a JSON document"),
        (lambda content: b"null", "is not a JSON document"),
        (lambda content: b"[" * 100_000, "is not a JSON document"),
        (lambda content: b"{}", "has format version None, and this release reads up to VERSION"),
        (
            lambda content: _VERSION.sub(b'"format_version": 9', content),
            "has format version 9, and this release reads up to VERSION; install a newer partwise",
        ),
        (
            lambda content: _VERSION.sub(b'"format_version": "1"', content),
            "has format version '1'",
        ),
        (
            lambda content: _VERSION.sub(b'"format_version": true', content),
            "has format version True",
        ),
        (
            lambda content: _VERSION.sub(b'"format_version": 0', content),
            "has format version 0",
        ),
        (
            lambda content: json.dumps({**json.loads(content), "colour": "red"}).encode(),
            "is damaged: it differs from the checksum at its end",
        ),
        (
            lambda content: content.replace(b"2026-03-01T12:00:00Z", b"yesterday"),
            "is damaged: it differs from the checksum at its end",
        ),
    ],
)
def test_a_damaged_document_is_refused_by_name_in_one_line(document, damage, message) -> None:
    message = message.replace("VERSION", str(document.format_version))
    with pytest.raises(RunFormatError, match=rf"^nightly/x\.json {message}") as refused:
        type(document).from_bytes(damage(document.to_bytes()), "nightly/x.json")
    assert isinstance(refused.value, NewerFormatError) == ("version 9" in message)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "run_id", ["a", "Sales-2026_11", "0", "x" * 64, "v1.0", "a.b-c.d", "a" + ".b" * 31]
)
def test_a_safe_run_id_is_taken(run_id) -> None:
    assert check_run_id(run_id) == run_id


def test_a_catalog_in_place_of_a_run_is_told_where_its_runs_are() -> None:
    with pytest.raises(RunIdError, match=r"is a catalog, .* catalog show lists"):
        check_run_id("catalog://sales")


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "../x",
        "a/b",
        "..",
        ".hidden",
        "-x",
        "_x",
        "a b",
        "a\n",
        "ä",
        "x" * 65,
        "a\0",
        "a.",
        "a..b",
        "a...",
        "v1.\n",
    ],
)
def test_an_unsafe_run_id_is_refused(run_id) -> None:
    with pytest.raises(RunIdError, match="is not a safe name; use 1 to 64 letters") as refused:
        check_run_id(run_id)
    assert "\n" not in str(refused.value)


@given(
    st.integers(0, 4095),
    st.integers(1, 20_000),
    st.integers(1, 2_000),
    st.binary(min_size=4, max_size=4),
)
def test_the_name_of_a_segment_tells_its_generation(shard, generation, segment, chance) -> None:
    name = segment_file(shard, execution_token(generation, chance.hex()), segment, "parquet")
    assert generation_of(run_path("run", "ledger", name)) == generation
    assert generation_of(name.replace(".parquet", ".1.parquet")) == generation
    assert name.startswith(f"{shard:05d}-")


@pytest.mark.parametrize(
    "name", ["notes.txt", ".DS_Store", "00001-x-001.parquet", "a-g0001deadbeef-001.zip", ""]
)
def test_a_file_that_is_no_segment_has_no_generation(name) -> None:
    assert generation_of(f"runs/run/ledger/{name}") == 0


def test_generations_are_numbered_by_their_files() -> None:
    assert generation_file(12) == "generations/0012.json"
    assert [generation_number(name) for name in ("0012.json", "12345.json")] == [12, 12345]
    assert [generation_number(name) for name in ("0012 copy.json", "x.json", "0012")] == [0, 0, 0]


def test_json_is_what_json_can_hold() -> None:
    assert to_json({"a": (1, 2.5, None)}) == {"a": [1, 2.5, None]}
    for value in ({1, 2}, float("nan"), object()):
        with pytest.raises((TypeError, ValueError)):
            to_json(value)
