"""What the driver or Dask alone can read is written once, and every rank reads it."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from partwise.errors import IntegrityError, SourceError
from partwise.ranks.staging import rank_source
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.opening import open_source
from partwise.store.store import Store
from tests.lazily import Lazily
from tests.own_cluster import cut_off_others, wait_for
from tests.ranks.rank_threads import run_rank_threads

dd = Lazily("dask.dataframe")


@pytest.fixture(scope="module")
def client():
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as made:
        yield made


@pytest.fixture(params=[True, False], ids=["disk", "store"])
def shared_folder(request, tmp_path):
    directory = tmp_path / "driver"
    directory.mkdir()
    store = Store.parse(str(tmp_path / "store"))
    made = SharedFolder(directory, store, "run", "token", shared=request.param)
    yield made
    made.close()
    assert not directory.exists()
    if not request.param:
        assert not list((tmp_path / "store").rglob("rows-*"))


def frame() -> pd.DataFrame:
    colors = pd.Categorical(["red", "green", None, "red", "blue"] * 8, ["red", "green", "blue"])
    return pd.DataFrame({"row": range(40), "color": colors, "x": [0.5] * 40})


def sources(folder):
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    path = folder / "rows.parquet"
    pq.write_table(table, path, row_group_size=7)
    csv = folder / "rows.csv"
    frame().to_csv(csv, index=False)
    dask = dd.from_pandas(frame(), npartitions=3)
    dask.index.name = None
    return {
        "parquet": str(path),
        "csv": str(csv),
        "table": table,
        "stream": pa.RecordBatchReader.from_batches(table.schema, table.to_batches(13)),
        "dask": dask,
        "several": [str(path), table],
    }


@pytest.mark.parametrize("kind", ["parquet", "csv", "table", "stream", "dask", "several"])
def test_ranks_read_every_kind_of_source(client, shared_folder, tmp_path, kind):
    data = sources(tmp_path)[kind]
    source = open_source(data, columns=["row", "color"], filter=[("row", "<", 33), ("x", ">", 0)])
    described = pickle.loads(pickle.dumps(rank_source(source, shared_folder, client)))

    def read(context):
        share = context.share()
        return pa.Table.from_batches(list(share.batches()), share.schema)

    found = pa.concat_tables(run_rank_threads(3, read, {"train": described}, tmp_path))
    expected = frame()[:33]
    if kind == "several":
        expected = pd.concat([expected, expected])
    assert found.column("row").to_pylist() == expected["row"].tolist()
    colors = [None if pd.isna(color) else color for color in expected["color"]]
    assert [color or None for color in found.column("color").to_pylist()] == colors


def test_rows_that_were_changed_in_the_store_are_refused(client, tmp_path):
    store = Store.parse(tmp_path / "store")
    (tmp_path / "driver").mkdir()
    folder = SharedFolder(tmp_path / "driver", store, "run", "token", shared=False)
    described = rank_source(open_source(frame()), folder, client)
    (part,) = described.parts
    other = rank_source(open_source(frame()[::-1]), folder, client).parts[0]
    store.write(part.path, store.read(other.path))
    with pytest.raises(IntegrityError, match="is not what was written for this run's ranks"):
        list(part.batches())


def test_a_filter_that_leaves_nothing_is_said_by_every_rank(client, shared_folder, tmp_path):
    path = sources(tmp_path)["parquet"]
    source = open_source(path, filter=[("row", ">", 39.5)])
    described = rank_source(source, shared_folder, client, name="eval")
    with pytest.raises(SourceError, match=r"The rows 'eval' are none: the filter .*39\.5"):
        run_rank_threads(2, lambda c: c.share("eval"), {"eval": described}, tmp_path)


def test_a_source_in_memory_larger_than_a_file_becomes_several(
    client, shared_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("partwise.ranks.staging._FILE_BYTES", 100)
    table = pa.table({"row": range(100)})
    batches = table.to_batches(max_chunksize=10)
    source = open_source(pa.RecordBatchReader.from_batches(table.schema, batches))
    described = rank_source(source, shared_folder, client)
    assert [part.rows for part in described.parts] == [20] * 5


def test_a_dask_frame_is_written_though_the_scheduler_is_lost_and_found_again(
    dask_client, tmp_path
):
    def part(number: int) -> pd.DataFrame:
        begun = tmp_path / f"begun-{number}"
        begun.touch()
        while number and not (tmp_path / "go").exists():
            time.sleep(0.02)
        return pd.DataFrame({"row": [number]})

    store = Store.parse(tmp_path / "store")
    (tmp_path / "driver").mkdir()
    folder = SharedFolder(tmp_path / "driver", store, "run", "token", shared=True)
    frame = dd.from_map(part, range(3), meta=pd.DataFrame({"row": [0]}))
    with (
        Client(dask_client.scheduler.address, set_as_default=False) as client,
        ThreadPoolExecutor(1) as executor,
    ):
        staging = executor.submit(rank_source, open_source(frame), folder, client)
        wait_for((tmp_path / "begun-1").exists, "nothing is read")
        cut_off_others(dask_client)
        (tmp_path / "go").touch()
        described = staging.result()
    rows = [row for each in described.parts for batch in each.batches() for row in batch["row"]]
    assert [row.as_py() for row in rows] == [0, 1, 2]
