"""Datasets as the data of flows, and `partwise data` on the command line."""

import json
import pickle
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.blocks import RemoteCluster, StoreBlock
from partwise.datasets.dataset import Dataset, list_datasets
from partwise.datasets.registration import register_dataset
from partwise.errors import ColumnError, DatasetNotFoundError, InputError
from partwise.flows import map_partitions, train_models
from partwise.runs.run import Run
from partwise.store.credentials import set_credentials
from partwise.trainers import LightGBMTrainer
from tests.command_line import partwise

pytestmark = pytest.mark.usefixtures("single_shard")

STORES, DAYS = 4, 30


def sales(stores: int = STORES, shift: float = 0.0) -> pa.Table:
    random = np.random.default_rng(0)
    n = stores * DAYS
    return pa.table(
        {
            "store": [f"s{i // DAYS}" for i in range(n)],
            "x": random.normal(size=n),
            "y": random.normal(size=n) + shift,
            "leak": random.normal(size=n),
        }
    )


def columns(data, context):
    return pa.table({"names": [",".join(data.column_names)], "rows": [len(data)]})


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "sales.parquet"
    pq.write_table(sales(), path)
    return path


@pytest.mark.slow
def test_register_train_resume_and_see_who_read_what(store, rows, cluster: RemoteCluster) -> None:
    words = ["data", "register", "sales", rows, "--exclude", "leak", "--label", "y"]
    ended = partwise(*words, "--description", "Of a test.", "--store", store)
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(r"dataset://sales@1  120 rows, 4 columns, [\d.]+ KB in 1 part\n", ended.out)
    ended = partwise(*words, "--store", store)
    assert ended.out == "dataset://sales@1 has these very rows: no new version.\n"

    address = ["--address", cluster.address, "--shares-filesystem", "--store", store]
    train = ["train", "dataset://sales", "-p", "store", "--trainer", "lightgbm", "--rounds", "3"]
    ended = partwise(*train, "--run-id", "one", *address)
    assert ended.code == 0, ended
    run = Run.open("one", store)
    document = run.read_generation_document()
    assert document.call is not None
    assert document.call["data"]["paths"] == ["dataset://sales@1"]
    booster = run.model("s1")
    assert booster.feature_name() == ["x"], "neither the label nor what is excluded"

    register_dataset("sales", sales(shift=1.0), store=store, exclude=["leak"], label="y")
    ended = partwise("runs", "resume", "one", *address)
    assert ended.code == 0, ended
    again = run.refresh()
    assert (again.generation, again.executed) == (2, 0), "the run goes on with its own version"
    moved = Dataset.open("sales", 1, store).source().description()
    assert again.read_generation_document().source_fingerprint == moved.fingerprint

    register_dataset("sales", sales(), store=store, exclude=["leak"], label="x")
    remarked = train_models(
        "dataset://sales",
        "store",
        LightGBMTrainer(rounds=3),
        run_id="one",
        store=store,
        on_existing_artifacts="resume",
        cluster=cluster,
    )
    assert remarked.executed == STORES, "another label is another model of the same rows"
    assert remarked.model("s1").feature_name() == ["y"]

    shown = partwise("data", "show", "sales@3", "--runs", "--store", store)
    assert shown.code == 0
    assert re.search(r"^  runs +one$", shown.out, re.MULTILINE)
    assert re.search(r"^x +double +label +0 ", shown.out, re.MULTILINE)
    record = json.loads(
        partwise("data", "show", "sales@2", "--runs", "--json", "--store", store).out
    )
    assert (record["version"], record["runs"], record["excluded"]) == (2, [], ["leak"])
    assert record["columns"][0] | {"memory_bytes": 0} == {
        "name": "store",
        "type": "string",
        "memory_bytes": 0,
        "nulls": 0,
        "nans": 0,
        "min": "s0",
        "max": "s3",
        "mean": None,
        "distinct": 4,
    }


def test_a_flow_takes_a_dataset_and_columns_by_name(store, cluster) -> None:
    dataset = register_dataset("sales", sales(), store=store, exclude=["leak"], label=["y"])
    arguments = {"store": StoreBlock(url=store), "cluster": cluster}
    for data, chosen, names in (
        ("dataset://sales@1", (), "store,x,y"),
        (dataset, ("store", "leak"), "store,leak"),
    ):
        run = map_partitions(data, "store", columns, columns=chosen, **arguments)
        assert run.predictions()["names"].to_pylist() == [names] * STORES
    with pytest.raises(DatasetNotFoundError, match=r"has no version 3; it has 1\."):
        map_partitions("dataset://sales@3", "store", columns, **arguments)
    elsewhere = register_dataset("sales", sales(), store=f"{store}-other")
    with pytest.raises(InputError, match=r"lies in .*-other, and the run in .*: register"):
        map_partitions(elsewhere, "store", columns, **arguments)
    register_dataset("plain", sales(), store=store)
    with pytest.raises(ColumnError, match="was given no label, and the rows mark none"):
        train_models("dataset://plain", "store", LightGBMTrainer(), **arguments)
    register_dataset("two", sales(), store=store, label=["y", "x"])
    with pytest.raises(ColumnError, match="several columns are marked: 'x', 'y'"):
        train_models("dataset://two", "store", LightGBMTrainer(), **arguments)


def test_list_diff_and_gc(store, tmp_path) -> None:
    assert partwise("data", "list", "--store", store).out == f"There are no datasets in {store}.\n"
    first = sales().append_column("old", pa.array(range(STORES * DAYS)))
    register_dataset("sales", first, store=store)
    kept = sales().slice(DAYS)
    added = kept.slice(0, DAYS).set_column(0, "store", pa.array(["s4"] * DAYS))
    second = pa.concat_tables([kept, added]).combine_chunks()
    changed = [99.0, *second["y"].to_pylist()[1:]]
    second = second.set_column(2, "y", pa.array(changed))
    second = second.set_column(3, "leak", second["leak"].cast(pa.float32()))
    second = second.append_column("new", pa.nulls(len(second)))
    register_dataset("sales", second, store=store, description="Later.", label="y")
    listed = partwise("data", "list", "--store", store)
    assert re.search(r"^sales +2 +120 +5 .* Later\.$", listed.out, re.MULTILINE)
    assert json.loads(partwise("data", "list", "--json", "--store", store).out)["version"] == 2

    words = ["data", "diff", "sales@1", "sales@2", "-p", "store", "--store", store]
    told = partwise(*words)
    assert (told.code, told.err) == (0, "")
    for line in (
        r"dataset://sales@1 -> dataset://sales@2",
        r"  rows        120 -> 120",
        r"  partitions  2 unchanged",
        r"              1 added: s4",
        r"              1 removed: s0",
        r"              1 changed: s1",
        r"new +added +null",
        r"old +removed +int64",
        r"leak +type +double +float",
        r"y +mark +none +label",
        r"y +max +[\d.]+ +99",
        r"store +max +s3 +s4",
    ):
        assert re.search(f"^{line}$", told.out, re.MULTILINE), (line, told.out)
    record = json.loads(partwise(*words, "--json").out)
    assert (record["added"], record["removed"], record["same_rows"]) == (["new"], ["old"], False)
    assert record["columns"]["leak"]["type"] == ["double", "float"]
    assert record["partitions"] == {
        "unchanged": 2,
        "added": 1,
        "removed": 1,
        "changed": 1,
        "examples": {"added": ["s4"], "removed": ["s0"], "changed": ["s1"]},
    }
    same = json.loads(partwise("data", "diff", "sales@2", "sales", "--json", "--store", store).out)
    assert same["same_rows"] is True
    assert same["columns"] == {}

    lost = Path(store) / "datasets" / "sales" / "parts" / "dead" / "00000.parquet"
    lost.parent.mkdir()
    lost.write_bytes(b"12345")
    told = partwise("data", "gc", "sales", "--dry-run", "--store", store)
    assert told.out.endswith("1 file of sales would be deleted, 5 B\n")
    told = partwise("data", "gc", "sales", "--json", "--store", store)
    assert json.loads(told.out)["deleted"] is True
    assert not lost.parent.exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["show", "nope"], "There is no dataset 'nope' in "),
        (["show", "a@b"], "'a@b' names no dataset: write dataset://NAME@VERSION"),
        (["register", "a/b", "x.csv"], "The dataset name 'a/b' is not a safe name"),
        (["register", "a", "none.csv"], "There is no file or directory"),
        (["register", "a"], "SOURCE"),
        (["diff", "a@1", "a@2"], "There is no dataset 'a' in "),
        (["gc", "a"], "There is no dataset 'a' in "),
    ],
)
def test_wrong_usage_ends_with_2_and_one_line(store, words, error) -> None:
    ended = partwise("data", *words, *(["--store", store] if words != ["register", "a"] else []))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert error in ended.err
    assert ended.err.count("\n") == 1


def test_a_round_trip_through_a_bucket(s3_store_url, s3_endpoint_url) -> None:
    url = f"{s3_store_url}/models"
    made = register_dataset("sales", sales(), store=url, exclude=["leak"])
    assert register_dataset("sales", sales(), store=url, exclude=["leak"]) == made
    (found,) = list_datasets(url)
    assert found == made
    source = found.source(filter=[("store", "=", "s2")])
    table = pa.Table.from_batches(list(source.batches()), schema=source.schema)
    assert table == sales().slice(2 * DAYS, DAYS).drop_columns(["leak"])
    secret = "the-secret-half-of-a-key"
    set_credentials(url, {"key": "an-id", "secret": secret})
    sent = pickle.dumps(found.source().fragments())
    assert secret.encode() not in sent
    read = [batch for fragment in pickle.loads(sent) for batch in fragment.batches()]
    assert pa.Table.from_batches(read) == sales().drop_columns(["leak"])
    assert register_dataset("sales", sales(2), store=url).version == 2
    assert found.store.list("datasets/sales/manifests/") == [
        "datasets/sales/manifests/0001.json",
        "datasets/sales/manifests/0002.json",
    ]
    assert all("/lease/" not in path for path in found.store.list(""))


def test_gc_looks_after_a_whole_store(tmp_path) -> None:
    (tmp_path / "datasets" / "sales" / "parts" / "dead").mkdir(parents=True)
    (tmp_path / "datasets" / "sales" / "parts" / "dead" / "00000.parquet").write_bytes(b"12345")
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    for time in ("20200101T000000Z", f"{an_hour_ago:%Y%m%dT%H%M%SZ}"):
        part = tmp_path / "shards" / time / f"{time}-token" / "00000-a.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"123")
    said = partwise("data", "gc", "--store", tmp_path, "--dry-run").out
    assert f"2 files of {tmp_path} would be deleted, 8 B" in said
    assert partwise("data", "gc", "--store", tmp_path).code == 0
    told = partwise("data", "gc", "--store", tmp_path, "--older-than-days", 0)
    assert (told.code, "1 file of" in told.out) == (0, True)
    assert not list(tmp_path.rglob("*.part"))
