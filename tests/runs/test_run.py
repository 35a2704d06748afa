"""What a run shows: complete or not, seen from elsewhere, with damaged and missing objects."""

import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.errors import (
    ArtifactNotFoundError,
    IntegrityError,
    KeyClassError,
    ModelNotFoundError,
    NewerFormatError,
    PartitionNotFoundError,
    PartwiseError,
    RunFormatError,
    RunIdError,
    RunNotFoundError,
    StoreError,
)
from partwise.outcomes import CANCELLED, RunStatus
from partwise.runs.claim import Claim
from partwise.runs.completion import complete_run
from partwise.runs.contents import list_runs, read_committed
from partwise.runs.ledger import read_table, write_table
from partwise.runs.run import Run
from partwise.store.store import Store
from tests import run_maker
from tests.run_maker import ending

DONE = [("a", "DONE", 1.0), ("b", "DONE", 2.0), ("c", "FAILED", 3.0)]


@pytest.fixture
def run(make_run) -> Run:
    """A complete run with two partitions done and one failed."""
    make_run.begin()
    make_run.commit(*DONE[:2])
    make_run.commit(DONE[2])
    return make_run.end(3)


def statuses(run: Run) -> dict[str, str]:
    rows = run.partitions.select(["key", "status"]).to_pydict()
    return dict(zip(rows["key"], rows["status"], strict=True))


def folder(run: Run) -> Path:
    return Path(run.path)


def test_a_complete_run_tells_what_became_of_it(run) -> None:
    run = run.refresh()
    assert run.status is RunStatus.PARTIAL_FAILURE
    assert (run.kind, run.generation, run.executed, run.kept) == ("map", 1, 3, 0)
    assert statuses(run) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    assert run.partitions["value"].to_pylist() == [1.0, 2.0, 3.0]
    assert run.artifact("a", "note.txt") == "a 1.0"
    assert run.artifact("b", "note.txt", lambda path: Path(path).read_text()) == "b 2.0"
    assert run.artifacts("c") == []
    assert run.logs("a") == ""
    assert run.predictions(["value"])["value"].to_pylist() == [1.0, 2.0]
    [failure] = run.failures().to_pylist()
    assert (failure["error_type"], failure["error_message"]) == ("ValueError", "bad c")
    assert failure["count"] == 1
    assert "PARTIAL_FAILURE" in repr(run)


def test_a_link_to_a_run_keeps_nobody_from_the_others(run) -> None:
    Path(run.store.url, "runs", "latest").symlink_to(run.path)
    assert list_runs(run.store) == ["latest", "run"]
    with pytest.raises(RunNotFoundError, match=r"no run 'lates' in .+latest"):
        Run.open("lates", run.store)
    with pytest.raises(StoreError, match="symbolic link"):
        Run.open("latest", run.store)


def test_rows_that_lack_the_columns_asked_for_have_nulls(make_run, monkeypatch) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))

    def with_text(rows: pa.Table) -> bytes:
        return write_table(rows.append_column("text", pa.array(["x"] * rows.num_rows)))

    monkeypatch.setattr(run_maker, "write_table", with_text)
    make_run.commit(("b", "DONE", 2.0), ("c", "DONE", 3.0))
    make_run.commit(("c", "DONE", 4.0))  # half of a file
    found = make_run.open().predictions(["text"])["text"].to_pylist()
    assert sorted(found, key=str) == [None, "x", "x"]
    assert make_run.end(3).predictions(["text", "value"]).num_rows == 3


def test_another_process_sees_the_same(run, run_python) -> None:
    script = (
        "import json, sys; from partwise.runs.run import Run; run = Run.open('run', sys.argv[1]);"
        "print(json.dumps([run.status, run.counts, run.artifact('a', 'note.txt')]))"
    )
    assert run_python(script, run.store.url) == ["PARTIAL_FAILURE", run.counts, "a 1.0"]


def test_what_is_asked_for_and_not_there_is_named(run) -> None:
    with pytest.raises(PartitionNotFoundError, match=r"^The run 'run' has no partition 'x'\.$"):
        run.artifacts("x")
    with pytest.raises(KeyClassError, match=r"1"):
        run.artifacts(1)
    with pytest.raises(ArtifactNotFoundError, match=r"no artifact 'x.txt'; it has note.txt\."):
        run.artifact("a", "x.txt")
    with pytest.raises(ModelNotFoundError, match=r"'c' of the run 'run' is FAILED.*bad c"):
        run.model("c")
    with pytest.raises(RunNotFoundError, match=r"no run 'rum' in .* \(some of those there: run\)"):
        Run.open("rum", run.store)
    for unsafe in ("../run", "run/", ""):
        with pytest.raises(RunIdError, match=r"not a safe name"):
            Run.open(unsafe, run.store)
    assert list_runs(run.store) == ["run"]


def test_an_unfinished_run_shows_what_is_committed(make_run) -> None:
    make_run.begin()
    run = make_run.open()
    assert (run.status, run.counts, run.partitions.num_rows) == (RunStatus.IN_PROGRESS, {}, 0)
    assert run.predictions().num_rows == 0
    make_run.commit(*DONE)
    assert run.counts == {}, "a handle remembers what it has read"
    run = run.refresh()
    assert (run.status, run.executed, run.summary) == (RunStatus.IN_PROGRESS, 3, None)
    assert statuses(run) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    assert run.artifact("b", "note.txt") == "b 2.0"
    assert run.predictions()["value"].to_pylist() == [1.0, 2.0]
    with pytest.raises(PartitionNotFoundError, match=r"no partition 'x' yet\."):
        run.artifacts("x")
    make_run.leave()


def test_a_run_that_was_only_claimed_is_empty_and_can_be_begun(make_run) -> None:
    make_run.begin()
    make_run.leave()
    run = make_run.open()
    (folder(run) / "generations/0001.json").unlink()
    run = run.refresh()
    assert (run.generation, run.status, run.counts) == (0, RunStatus.IN_PROGRESS, {})
    make_run.begin()
    make_run.commit(*DONE)
    assert make_run.end(3).generation == 1


def test_what_lacks_its_ledger_is_not_committed(make_run) -> None:
    make_run.begin()
    make_run.commit(DONE[0])
    lost = make_run.commit(*DONE[1:])
    run = make_run.open()
    # As after a crash before the last step: bundle and output file are there.
    (folder(run) / f"ledger/00000-{lost}-001.parquet").unlink()
    run = run.refresh()
    assert statuses(run) == {"a": "DONE"}
    assert run.predictions()["key"].to_pylist() == ["a"]
    make_run.commit(*DONE[1:])
    run = make_run.end(3)
    assert statuses(run) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    # Its output rows would be there twice for anybody who reads the folder.
    assert not (folder(run) / f"outputs/00000-{lost}-001.parquet").exists()


def test_strange_files_do_no_harm(run, make_run) -> None:
    root = folder(run)
    for name in ("generations/0001 copy.json", "generations/x", "ledger/notes.txt", "x.json"):
        (root / name).write_text("?")
    (root.parent / "a.txt").touch()
    (root.parent / "empty").mkdir()
    (root / "bundles/00000-g0009deadbeef-001.zip").write_bytes(b"?")
    assert statuses(run.refresh()) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    assert list_runs(run.store) == ["run"]
    make_run.begin()
    (root / "ledger/.tmp-1").touch()
    make_run.commit(*DONE)
    assert statuses(make_run.open()) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    assert make_run.end(3).generation == 2


def test_of_two_executions_each_partition_counts_once(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "FAILED", 0.0), ("b", "DONE", 2.0))
    make_run.commit(("a", "DONE", 1.0), ("b", "FAILED", 0.0), ("c", "FAILED", 3.0))
    make_run.commit(("b", "DONE", 5.0))
    assert statuses(make_run.open()) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    run = make_run.end(3)
    assert run.counts == {"DONE": 2, "FAILED": 1}
    assert run.artifact("b", "note.txt") == "b 5.0"
    assert run.predictions().sort_by("key")["value"].to_pylist() == [1.0, 5.0]


def test_an_ending_that_does_not_add_up_is_no_ending(make_run) -> None:
    make_run.begin()
    make_run.commit(*DONE)
    with pytest.raises(IntegrityError, match=r"'run' has 3 partitions, and its shards have 4; .*"):
        make_run.end(4)
    make_run.leave()
    assert make_run.open().status is RunStatus.IN_PROGRESS


def test_a_complete_generation_is_seen_until_the_next_one_is_complete(run, make_run) -> None:
    before = run.refresh()
    make_run.begin("overwrite", partitions=3)
    make_run.commit(("a", "DONE", 9.0))
    shown = make_run.open()
    assert shown.status is RunStatus.IN_PROGRESS
    assert statuses(shown) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    assert shown.artifact("a", "note.txt") == "a 1.0"
    assert shown.predictions()["value"].to_pylist() == [1.0, 2.0]
    assert shown.shown is not None
    assert shown.shown.generation == 1
    assert re.fullmatch(r"generation 2 at work since .* UTC, 1 of 3", str(shown.at_work))
    assert statuses(shown.newest) == {"a": "DONE"}
    assert statuses(Run.open("run", run.store, generation=2)) == {"a": "DONE"}
    run = make_run.end(1)
    assert (run.counts, run.generation) == ({"DONE": 1}, 2)
    assert make_run.open().at_work is None
    assert make_run.open().predictions()["value"].to_pylist() == [9.0]
    # Handles and rows of the first generation outlive it, and it can be asked for.
    for older in (before, shown, Run.open("run", run.store, generation=1)):
        assert older.artifact("a", "note.txt") == "a 1.0"
        assert older.predictions()["value"].to_pylist() == [1.0, 2.0]
    with pytest.raises(RunNotFoundError, match=r"'run' has no generation 3; its newest is 2\."):
        Run.open("run", run.store, generation=3)


def test_an_ending_that_comes_too_late_changes_nothing(make_run, monkeypatch) -> None:
    """A process was given up, and wakes up between its check and its writes."""
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    late = make_run.claim
    make_run.leave()
    make_run.begin("overwrite")
    make_run.commit(("a", "DONE", 2.0))
    make_run.end(1)
    monkeypatch.setattr(Claim, "check", lambda self: None)
    complete_run(late, ending(1))
    run = make_run.open()
    assert run.shown is not None
    assert run.shown.generation == 2
    assert run.artifact("a", "note.txt") == "a 2.0"
    assert pq.read_table(folder(run) / "outputs")["value"].to_pylist() == [2.0]


def test_a_generation_that_was_stopped_replaces_nothing(run, make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 9.0), ("b", "FAILED", 9.0), ("c", "CANCELLED", 0.0))
    stopped = make_run.end(3, CANCELLED)
    assert statuses(stopped) == {"a": "DONE", "b": "FAILED", "c": "CANCELLED"}
    shown = make_run.open()
    assert shown.status is RunStatus.CANCELLED
    assert statuses(shown) == {"a": "DONE", "b": "DONE", "c": "FAILED"}
    assert shown.predictions()["value"].to_pylist() == [1.0, 2.0]
    assert shown.counts == {"DONE": 2, "FAILED": 1}
    # Why it was stopped is asked of the newest.
    assert shown.failures()["error_message"].to_pylist() == ["bad b"]


def test_a_run_that_never_was_complete_shows_what_one_code_made_of_one_input(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0), ("b", "FAILED", 1.0))
    make_run.leave()
    make_run.begin()
    assert statuses(make_run.open()) == {"a": "DONE", "b": "FAILED"}
    make_run.commit(("b", "DONE", 2.0))
    make_run.leave()
    assert statuses(make_run.open()) == {"a": "DONE", "b": "DONE"}
    # Other code, or another input: nothing is mixed, and nothing gets less.
    for code, inputs in (("d", "i"), ("d", "j")):
        make_run.begin(code=code, inputs=inputs)
        make_run.commit(("a", "DONE", 3.0))
        make_run.leave()
        assert make_run.open().artifact("a", "note.txt") == "a 1.0"
    make_run.begin(code="d", inputs="j")
    make_run.commit(("c", "DONE", 4.0))
    run = make_run.open()
    assert statuses(run) == {"a": "DONE", "c": "DONE"}
    assert run.artifact("a", "note.txt") == "a 3.0"
    make_run.leave()


def test_kept_rows_say_which_generation_ran_them(run, make_run) -> None:
    earlier = run.ledger.filter(pc.equal(run.ledger["status"], "DONE"))
    make_run.begin()
    make_run.commit(("c", "DONE", 3.0), carried=earlier)
    run = make_run.end(3)
    assert (run.executed, run.kept) == (1, 2)
    assert run.partitions["generation"].to_pylist() == [1, 1, 2]
    assert run.predictions().sort_by("key")["value"].to_pylist() == [1.0, 2.0, 3.0]


def edit(run: Run, name: str, change) -> None:
    path = folder(run) / name
    path.write_bytes(change(path.read_bytes()))


def flip(content: bytes) -> bytes:
    place = len(content) // 4
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def newer(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "format_version": 7}).encode()


@pytest.mark.parametrize("name", ["run.json", "generations/0001.summary.json"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (half, "is not a JSON document"),
        (newer, r"has format version 7, and this release reads up to \d; install a newer"),
    ],
)
def test_a_document_that_cannot_be_read_is_named(run, name, change, message) -> None:
    edit(run, name, change)
    with pytest.raises(RunFormatError, match=f"^run/{name} {message}"):
        _ = Run.open("run", run.store).status


def test_a_generation_that_cannot_be_read_is_named(run) -> None:
    edit(run, "generations/0001.json", newer)
    with pytest.raises(RunFormatError, match=r"^run/generations/0001.json has format version 7"):
        run.read_generation_document()
    (folder(run) / "generations/0001.json").unlink()
    with pytest.raises(RunFormatError, match=r"'run' lacks its generations/0001.json"):
        run.refresh().read_generation_document(1)


@pytest.mark.parametrize("change", [flip, half])
def test_a_ledger_that_was_changed_is_named(run, change) -> None:
    edit(run, "generations/0001.ledger.parquet", change)
    with pytest.raises(
        IntegrityError,
        match=r"^generations/0001.ledger.parquet of the run 'run' differs .* resume the run",
    ):
        _ = run.refresh().partitions


def test_a_ledger_that_is_gone_is_named(run) -> None:
    (folder(run) / "generations/0001.ledger.parquet").unlink()
    with pytest.raises(
        IntegrityError, match=r"^generations/0001.ledger.parquet of the run 'run' is gone; resume"
    ):
        _ = run.refresh().partitions


def test_a_ledger_segment_that_was_changed_is_named_and_the_rest_is_shown(make_run, caplog) -> None:
    make_run.begin()
    token = make_run.commit(DONE[0])
    make_run.commit(*DONE[1:])
    edit(make_run.open(), f"ledger/00000-{token}-001.parquet", half)
    assert statuses(make_run.open()) == {"b": "DONE", "c": "FAILED"}
    assert f"runs/run/ledger/00000-{token}-001.parquet is not a readable Parquet" in caplog.text
    assert "Its partitions are left out, and the next resume runs them again." in caplog.text
    with pytest.raises(IntegrityError, match=rf"has 2 partitions, .* have 3; .*{token}"):
        make_run.end(3)
    make_run.leave()
    # Who works on the run next sets it aside, so that it is met once only.
    found = read_committed(make_run.store, "run", 0, 2, (1,))
    (sentence,) = found.damaged
    assert f"set aside as runs/run/damaged/00000-{token}-001.parquet" in sentence
    assert found.earlier["key.key"].to_pylist() == ["b", "c"]
    assert read_committed(make_run.store, "run", 0, 2, (1,)).damaged == ()
    caplog.clear()
    assert statuses(make_run.open()) == {"b": "DONE", "c": "FAILED"}
    assert caplog.text == ""


def test_a_segment_of_a_newer_release_is_left_where_it_is(make_run) -> None:
    make_run.begin()
    token = make_run.commit(*DONE)
    make_run.leave()
    path = f"runs/run/ledger/00000-{token}-001.parquet"
    table = read_table(make_run.store.read(path), "x").replace_schema_metadata(
        {"partwise.format_version": "7"}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    make_run.store.write(path, sink.getvalue())
    with pytest.raises(NewerFormatError, match=r"has format version 7, and this release reads"):
        read_committed(make_run.store, "run", 0, 2, (1,))
    assert make_run.store.exists(path)


def test_a_bundle_that_was_changed_is_named(run) -> None:
    run = run.refresh()
    [artifact] = run.stored_artifacts(run.partition_id("a"))

    def hurt(content: bytes) -> bytes:
        return content.replace(b"a 1.0", b"a 1.1")

    edit(run, artifact.bundle, hurt)
    with pytest.raises(
        IntegrityError, match=rf"'note.txt' of .*'a' of the run 'run' .* {artifact.bundle}"
    ):
        run.artifact("a", "note.txt")
    assert run.artifact("b", "note.txt") == "b 2.0"
    edit(run, artifact.bundle, lambda content: content[: artifact.offset + 2])
    with pytest.raises(IntegrityError, match=rf"runs/run/{artifact.bundle} .* ends before"):
        run.artifact("a", "note.txt")
    (folder(run) / artifact.bundle).unlink()
    with pytest.raises(IntegrityError, match=r"'run' is gone with 'note.txt'; resume the run"):
        run.artifact("a", "note.txt")


def test_output_rows_that_were_changed_are_named(run) -> None:
    [path] = (folder(run) / "outputs").iterdir()
    content = path.read_bytes()
    path.write_bytes(half(content))
    with pytest.raises(
        IntegrityError, match=rf"^run/outputs/{path.name} differs from its checksum"
    ):
        run.predictions()
    path.unlink()
    with pytest.raises(
        IntegrityError, match=rf"^outputs/{path.name} of the run 'run' is gone; resume the run"
    ):
        run.predictions()


def test_a_folder_that_was_renamed_or_copied_is_not_the_run(run) -> None:
    folder(run).rename(folder(run).with_name("other"))
    with pytest.raises(RunFormatError, match=r"other/run.json is that of the run 'run'; .*renamed"):
        Run.open("other", run.store)
    with pytest.raises(RunNotFoundError):
        Run.open("run", run.store)


def show_all(run: Run) -> None:
    run = run.refresh()
    _ = run.partitions
    run.read_generation_document()


def test_every_error_is_one_line(run) -> None:
    ending = ("generations/0001.summary.json", "generations/0001.ledger.parquet")
    for name in ("run.json", *ending, "generations/0001.json"):
        saved = (folder(run) / name).read_bytes()
        for change in (half, lambda content: b"", lambda content: b"\0" * 100):
            (folder(run) / name).write_bytes(change(saved))
            with pytest.raises(PartwiseError) as refused:
                show_all(run)
            assert "\n" not in str(refused.value)
            assert len(str(refused.value)) < 400
        (folder(run) / name).write_bytes(saved)


def test_an_artifact_is_read_as_a_row_of_an_earlier_generation_describes_it(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    earlier = make_run.end(1)
    (row,) = earlier.ledger.to_pylist()
    make_run.begin()
    make_run.commit(("a", "DONE", 2.0))
    run = make_run.open()
    assert run.read_artifact_of(row, "note.txt") == b"a 1.0"
    assert run.newest.artifact("a", "note.txt") == "a 2.0", "what the handle shows is as it was"
    with pytest.raises(ArtifactNotFoundError, match=r"has no artifact 'x'; it has note\.txt"):
        run.read_artifact_of(row, "x")
    make_run.leave()


def test_a_run_that_has_no_document_yet_is_not_named_as_another_one(tmp_path):
    store = Store.parse(tmp_path)
    store.write("runs/early/snapshots/1.tar.gz", b"")
    with pytest.raises(RunNotFoundError, match=r"'early' in .* has no run\.json: its rows could"):
        Run.open("early", store)


def test_a_run_of_many_models_has_no_rounds(make_run) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    assert make_run.end(1).eval_results.to_pydict() == {"round": []}
