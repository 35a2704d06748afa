"""The rows of a run as a version of a dataset: once, however often it is published."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from partwise.datasets.dataset import Dataset, list_versions
from partwise.datasets.garbage import collect_dataset_garbage
from partwise.datasets.parts import DatasetWriter
from partwise.errors import InputError, IntegrityError
from partwise.publishing.dataset_output import register_output
from partwise.publishing.sql_output import Table, publish
from partwise.runs.ledger import write_table
from partwise.runs.outputs import read_schemas
from partwise.store.store import Store


class Crash(BaseException):
    """The death of the process."""


def finished(make_run, values: dict[str, float], on_existing: str = "resume"):
    make_run.begin(on_existing)
    items = [(key, "DONE", value) for key, value in values.items()]
    make_run.commit(*items[:2])
    make_run.commit(*items[2:])
    return make_run.end(len(items))


def rows(dataset: Dataset) -> dict[str, float]:
    source = dataset.source()
    table = pa.Table.from_batches(list(source.batches()), schema=source.schema)
    assert table.num_rows == len(set(table["key"].to_pylist())), "a partition stands there twice"
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_publishing_twice_makes_one_version_and_another_outcome_another(make_run) -> None:
    first = {"a": 1.0, "b": 2.0, "c": 3.0}
    run = finished(make_run, first)
    done = register_output("forecasts", run)
    assert (done.is_new, done.dataset.version, rows(done.dataset)) == (True, 1, first)
    assert done.dataset.manifest.source == {"run_id": "run", "generation": 1}
    again = register_output("forecasts", run)
    assert (again.is_new, again.dataset) == (False, done.dataset)

    second = first | {"b": 20.0}
    changed = register_output("forecasts", finished(make_run, second, "overwrite"))
    assert (changed.is_new, changed.dataset.version, rows(changed.dataset)) == (True, 2, second)
    # The run as it was is gone; its version stays.
    assert rows(Dataset.open("forecasts", 1, run.store)) == first


def test_each_run_has_a_version_of_its_own_though_its_rows_are_equal(make_run) -> None:
    values = {"a": 1.0, "b": 2.0, "c": 3.0}
    makers = [make_run, type(make_run)(make_run.store, "tuesday")]
    runs = [finished(maker, values) for maker in makers]
    versions = [register_output("forecasts", run).dataset.version for run in runs * 2]
    assert versions == [1, 2, 1, 2]


def test_lost_output_is_named(make_run) -> None:
    run = finished(make_run, {"a": 1.0, "b": 2.0, "c": 3.0})
    path = run.store.list("runs/run/outputs/")[0]
    run.store.delete(path)
    with pytest.raises(IntegrityError, match=r"outputs/.*parquet of the run 'run' is gone"):
        register_output("forecasts", run)
    assert run.store.list("datasets/") == []


def test_a_publication_that_crashed_is_repeated_without_a_second_version(
    make_run, monkeypatch
) -> None:
    values = {"a": 1.0, "b": 2.0, "c": 3.0}
    run = finished(make_run, values)
    create = Store.create

    for dies_at, after in (("/parts/", False), ("/manifests/", False), ("/manifests/", True)):

        def die(self, path, content, dies_at=dies_at, after=after):
            if after or dies_at not in path or "/lease/" in path:
                create(self, path, content)
            if dies_at in path and "/lease/" not in path:
                raise Crash

        monkeypatch.setattr(Store, "create", die)
        with pytest.raises(Crash):
            register_output("forecasts", run)
        monkeypatch.setattr(Store, "create", create)
    done = register_output("forecasts", run)
    assert (done.is_new, done.dataset.version, rows(done.dataset)) == (False, 1, values)
    collect_dataset_garbage(run.store, "forecasts", dry_run=False)
    assert rows(Dataset.open("forecasts", store=run.store)) == values


def test_publishing_from_several_processes_at_once_makes_one_version(make_run, monkeypatch) -> None:
    values = {"a": 1.0, "b": 2.0, "c": 3.0}
    run = finished(make_run, values)
    together = threading.Barrier(4)
    finish = DatasetWriter.finish

    def finish_together(self):
        found = finish(self)
        together.wait(20)
        return found

    monkeypatch.setattr(DatasetWriter, "finish", finish_together)
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda _: register_output("forecasts", run), range(4)))
    assert sorted(one.is_new for one in done) == [False, False, False, True]
    assert {one.dataset.version for one in done} == {1}
    assert list_versions(run.store, "forecasts") == [1]
    assert collect_dataset_garbage(run.store, "forecasts", dry_run=False) == []


def test_types_of_several_files_widen_to_one(make_run) -> None:
    make_run.begin("resume")
    make_run.commit(("a", "DONE", 1.0))
    make_run.commit(("b", "DONE", 2))
    done = register_output("forecasts", make_run.end(2))
    assert done.dataset.schema.field("value").type == pa.float64()
    assert rows(done.dataset) == {"a": 1.0, "b": 2.0}


def test_views_that_an_earlier_release_wrote_are_read_as_plain_text(
    make_run, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr("tests.run_maker.write_table", lambda rows: write_table(_as_views(rows)))
    values = {"a": 1.0, "b": 2.0, "c": 3.0}
    run = finished(make_run, values)
    monkeypatch.undo()

    found = run.predictions()
    assert found.schema.types == [pa.string(), pa.list_(pa.string())]
    assert found.take([0]).num_rows == 1
    assert register_output("forecasts", run).dataset.schema.types == found.schema.types


def _as_views(rows: pa.Table) -> pa.Table:
    texts = [[text] for text in rows["value"].cast(pa.string()).to_pylist()]
    keys = rows["key"].cast(pa.string_view())
    return pa.table({"key": keys, "value": pa.array(texts, pa.list_(pa.string_view()))})


def test_a_run_at_work_or_without_rows_is_refused(make_run) -> None:
    make_run.begin("resume")
    make_run.commit(("a", "DONE", 1.0))
    with pytest.raises(InputError, match=r"run 'run' has not ended \(IN_PROGRESS\)"):
        register_output("forecasts", make_run.open())
    make_run.end(1)


def test_a_run_whose_partitions_all_failed_has_nothing_to_register(make_run) -> None:
    make_run.begin("resume")
    make_run.commit(("a", "FAILED", None))
    with pytest.raises(InputError, match=r"run 'run' \(map\) has no rows to register"):
        register_output("forecasts", make_run.end(1))


def test_of_a_new_table_each_file_is_read_once(make_run, monkeypatch, tmp_path) -> None:
    run = finished(make_run, {"a": 1.0, "b": 2.0, "c": 3.0})
    read, names = Store.read, []

    def counted(self, path):
        names.append(path)
        return read(self, path)

    monkeypatch.setattr(Store, "read", counted)
    assert publish(run, Table("forecasts", str(tmp_path / "out.db"))).rows == 3
    assert sorted(path for path in names if "/outputs/" in path) == run.store.list(
        "runs/run/outputs/"
    )


def test_the_end_of_a_file_is_read_however_long_it_is(make_run, monkeypatch) -> None:
    run = finished(make_run, {"a": 1.0, "b": 2.0, "c": 3.0})
    paths = sorted(run.ledger["rows_file"].unique().to_pylist())
    monkeypatch.setattr("partwise.runs.outputs._END_BYTES", 16)
    ((schema, name),) = read_schemas(run, paths[:1])
    assert (schema.names, name) == (["key", "value"], f"file {paths[0]!r}")
    path = run.store.list("runs/run/outputs/")[0]
    content = run.store.read(path)
    run.store.delete(path)
    run.store.create(path, content[:-1])
    with pytest.raises(IntegrityError, match=r"parquet of the run 'run' is gone or damaged"):
        register_output("forecasts", run)
