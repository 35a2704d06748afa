"""Data that was opened once is the same source wherever it is passed on."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.datasets.dataset import resolve_references
from partwise.datasets.registration import register
from partwise.errors import SourceError
from partwise.sources.files.file_set import Files
from partwise.sources.opening import OpenedData, open_source
from partwise.store.store import Store


@pytest.mark.parametrize("kind", ["paths", "files", "dataset"])
def test_opened_data_is_the_source_that_its_name_is(tmp_path, kind) -> None:
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"k": [1, 2, 3], "x": [0.5, 1.5, 2.5], "id": [7, 8, 9]}), path)
    store = Store.parse(tmp_path / "store")
    register(
        "rows", [path], store=store, exclude=["id"], columns=None, filter=None, label=[],
        description="",
    )  # fmt: skip
    name = {"paths": [path], "files": Files([path]), "dataset": ["dataset://rows"]}[kind]
    data = resolve_references(name, lambda: store)
    opened = OpenedData.of(name, data)
    assert opened.name == name
    for chosen in ({}, {"columns": ["x"]}, {"filter": [("x", ">", 1)]}):
        expected, source = open_source(data, **chosen), open_source(opened, **chosen)
        assert source.description() == expected.description()
        assert list(source.batches()) == list(expected.batches())
    assert ("id" in open_source(opened).schema.names) == (kind != "dataset")


def test_a_file_that_changed_since_it_was_opened_is_refused(tmp_path) -> None:
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"k": [1, 2]}), path)
    opened = OpenedData.of([path], [path])
    pq.write_table(pa.table({"k": list(range(1000))}), path)
    with pytest.raises(SourceError, match="changed"):
        list(open_source(opened).batches())
