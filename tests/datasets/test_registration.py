"""Registering rows, and reading them again by name and version."""

import hashlib
import json
import os
import pickle
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.datasets import parts
from partwise.datasets.comparison import compare_columns, compare_partitions
from partwise.datasets.dataset import Dataset, list_datasets
from partwise.datasets.garbage import collect_dataset_garbage
from partwise.datasets.manifest import encode_schema
from partwise.datasets.registration import register, register_dataset
from partwise.errors import (
    ColumnError,
    DatasetNotFoundError,
    InputError,
    IntegrityError,
    RunFormatError,
    SourceError,
    StoreError,
)
from partwise.sources.files.rows import FileFragment
from partwise.sources.opening import open_source
from partwise.store.signing import seal
from partwise.store.store import Store

TABLE = pa.table(
    {
        "store": ["b", "a", None, "b"],
        "price": [1.5, None, 3.0, -1.0],
        "sales": [1, 2, 3, 4],
        "secret": ["w", "x", "y", "z"],
    }
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.parse(tmp_path / "store")


def rows_of(dataset: Dataset, **chosen) -> pa.Table:
    source = dataset.source(**chosen)
    return pa.Table.from_batches(list(source.batches()), schema=source.schema)


def folder_of(store: Store, name: str = "sales") -> Path:
    return Path(store.url) / "datasets" / name


@pytest.mark.parametrize("values", [["a", None, "b"], [1, None, 2], [b"a", None, b"b"]])
def test_a_null_among_the_values_of_a_dictionary_is_a_null_of_the_column(store, values) -> None:
    codes = pa.array([0, 1, None, 2], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(values))
    made = register_dataset("sales", pa.table({"x": column}), store=store)
    assert rows_of(made)["x"].to_pylist() == column.to_pylist()
    assert made.statistics["x"].nulls == 2
    # The same rows, encoded otherwise.
    plain = pa.array(column.to_pylist()).dictionary_encode().cast(column.type)
    assert register_dataset("sales", pa.table({"x": plain}), store=store).version == 1


def test_rows_come_back_in_their_order_with_marks_and_statistics(store) -> None:
    made = register_dataset("sales", TABLE, store=store, exclude=["secret"], label="sales")
    assert (made.version, made.rows) == (1, 4)
    found = Dataset.open("sales", store=store.url)
    assert found == made == pickle.loads(pickle.dumps(made))
    assert rows_of(found) == TABLE.drop_columns(["secret"])
    assert rows_of(found, columns=["secret", "store"]) == TABLE.select(["secret", "store"])
    kept = rows_of(found, filter=[("secret", ">", "x")])
    assert kept["sales"].to_pylist() == [3, 4], "a filter may ask for an excluded column"
    assert found.schema.field("sales").metadata == {b"partwise.role": b"label"}
    assert found.source().schema.field("sales").metadata == {b"partwise.role": b"label"}
    price = found.statistics["price"]
    assert (price.nulls, price.min, price.max, price.distinct) == (1, -1.0, 3.0, 3)
    assert price.mean == pytest.approx(3.5 / 3)
    about = found.source().description()
    assert about.rows == 4
    assert about.size_bytes > 0
    assert about.recipe == {
        "paths": ["dataset://sales@1"],
        "columns": ["store", "price", "sales"],
        "filter": None,
    }
    # Any reader of Parquet can do without us.
    assert pq.read_table(folder_of(store) / "parts" / next_token(store)) == TABLE


def next_token(store: Store) -> str:
    (token,) = [path.name for path in (folder_of(store) / "parts").iterdir()]
    return token


def test_equal_rows_make_no_version_and_other_rows_or_marks_do(store, tmp_path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet", row_group_size=3)
    assert register_dataset("sales", TABLE, store=store).version == 1
    assert register_dataset("sales", TABLE, store=store).version == 1
    again = register_dataset("sales", tmp_path / "rows.parquet", store=store)
    assert again.version == 1, "the same rows from elsewhere"
    assert len(list((folder_of(store) / "parts").iterdir())) == 1
    assert register_dataset("sales", TABLE, store=store, label=["sales"]).version == 2
    assert register_dataset("sales", TABLE.slice(1), store=store).version == 3
    assert register_dataset("sales", TABLE, store=store).version == 4, "the newest counts"
    assert [Dataset.open("sales", n, store).rows for n in (1, 2, 3, 4)] == [4, 4, 3, 4]
    assert [dataset.reference for dataset in list_datasets(store)] == ["dataset://sales@4"]


def test_an_unchanged_file_is_not_even_read_again(store, tmp_path, monkeypatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    first = register_dataset("rows", path, store=store, columns=["b"])
    assert first.schema.names == ["b"]
    assert first.manifest.source["paths"] == [str(path)]
    with monkeypatch.context() as patch:
        patch.setattr(FileFragment, "batches", lambda self: pytest.fail(f"{self} is read"))
        assert register_dataset("rows", path, store=store, columns=["b"]) == first
    times = path.stat()
    path.write_text("a,b\n1,x\n2,w\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert register_dataset("rows", path, store=store, columns=["b"]).version == 2


def test_parts_are_bounded_and_make_no_difference(store, tmp_path, monkeypatch) -> None:
    table = pa.table(
        {"i": range(5000), "text": pa.array([f"t{i % 7}" for i in range(5000)]).dictionary_encode()}
    )
    whole = register_dataset("whole", table, store=store)
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    monkeypatch.setattr(parts, "_ROW_GROUP_ROWS", 700)
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=100))
    cut = register_dataset("cut", batches, store=store)
    assert [part.rows for part in cut.manifest.parts] == [700] * 7 + [100]
    assert cut.fingerprint == whole.fingerprint
    assert cut.statistics == {
        name: column.model_copy(update={"memory_bytes": cut.statistics[name].memory_bytes})
        for name, column in whole.statistics.items()
    }
    assert rows_of(cut).equals(rows_of(whole))
    about, other = cut.source().description(), whole.source().description()
    assert about.fingerprint == other.fingerprint, "equal rows at another place are unchanged"
    assert cut.source(columns=["i"]).description().fingerprint != about.fingerprint


def test_categories_and_their_values_are_different_rows(store) -> None:
    plain = pa.table({"size": pa.array(["l", "m", "l"])})
    coded = plain.column("size").combine_chunks().dictionary_encode()
    ordered = pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary, ordered=True)
    found = [
        register_dataset("sizes", table, store=store)
        for table in (plain, pa.table({"size": coded}), pa.table({"size": ordered}))
    ]
    assert [dataset.version for dataset in found] == [1, 2, 3]
    about = [dataset.source().description().fingerprint for dataset in found]
    assert len(set(about)) == 3
    # Of runs that are stored: the fingerprint without categories stays what it was.
    digest = hashlib.sha256(json.dumps([found[0].fingerprint, []]).encode())
    digest.update(json.dumps({"columns": None, "filter": None}).encode())
    assert about[0] == digest.hexdigest()


def test_parts_are_read_one_by_one_and_only_those_that_a_filter_may_want(store, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    monkeypatch.setattr(parts, "_ROW_GROUP_ROWS", 100)
    table = pa.table({"i": range(500), "key": [i // 100 for i in range(500)]})
    dataset = register_dataset(
        "rows", pa.Table.from_batches(table.to_batches(max_chunksize=100)), store=store
    )
    fragments = pickle.loads(pickle.dumps(dataset.source().fragments(["key"])))
    assert [fragment.rows for fragment in fragments] == [100] * 5
    assert [fragment.known["key"].as_py() for fragment in fragments] == [0, 1, 2, 3, 4]
    (third,) = dataset.source(filter=[("i", ">=", 210), ("i", "<", 300)]).fragments()
    assert pa.Table.from_batches(list(third.batches())) == table.slice(200, 100)
    kept = rows_of(dataset, filter=[("i", ">=", 210), ("i", "<", 300)])
    assert kept["i"].to_pylist() == list(range(210, 300))


def test_types_arrive_as_they_were(store) -> None:
    table = pa.table(
        {
            "codes": pa.array([1, None, 7]).dictionary_encode(),
            "days": pa.array([1, 2, None], pa.timestamp("us")).dictionary_encode(),
            "large": pa.array(["a", None, "b"], pa.large_string()).dictionary_encode(),
            "small": pa.array(["a", None, "b"])
            .dictionary_encode()
            .cast(pa.dictionary(pa.int8(), pa.string())),
            "seconds": pa.array([1, None, 3], pa.timestamp("s", "Europe/Amsterdam")),
            "time": pa.array([1, None, 3], pa.time32("s")),
            "date64": pa.array([0, 86_400_000, None], pa.date64()),
            "money": pa.array([Decimal("1.10"), None, Decimal("2")], pa.decimal256(50, 2)),
            "half": pa.array([1.0, None, 2.0], pa.float16()),
            "span": pa.array([1, None, 2], pa.duration("ns")),
            "nested": pa.array([[{"a": 1}], None, []]),
            "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "null": pa.nulls(3),
        }
    )
    found = rows_of(register_dataset("types", table, store=store))
    assert found.schema == table.schema
    assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.date32(), 2_932_897, "10000-01-01"),
        (pa.date32(), -719_163, "0000-12-31"),
        (pa.date32(), 2**31 - 1, "<value out of range: 2147483647>"),
        (pa.timestamp("s"), 253_402_300_800, "10000-01-01 00:00:00"),
        (pa.timestamp("s", "Europe/Berlin"), 253_402_300_800, "10000-01-01 00:00:00Z"),
        (pa.timestamp("us", "Europe/Berlin"), 2**61, "<value out of range: 2305843009213693952>Z"),
        (pa.duration("s"), 2**62, "4611686018427387904 s"),
    ],
)
def test_years_that_python_does_not_have_are_registered_and_come_back(
    store, kind, value, shown
) -> None:
    counts = pa.int32() if kind == pa.date32() else pa.int64()
    table = pa.table({"at": pa.array([value, None, value], counts).cast(kind)})
    made = register_dataset("sales", table, store=store)
    (column,) = made.manifest.columns
    assert (column.min, column.max) == (shown, shown)
    assert rows_of(made) == table


def test_a_dataset_is_a_source_of_another(store, tmp_path) -> None:
    register_dataset("sales", TABLE, store=store, exclude=["secret"], label="sales")
    made = register_dataset("copy", "dataset://sales", store=store, filter=[("sales", ">", 1)])
    assert made.manifest.source["paths"] == ["dataset://sales@1"]
    assert made.manifest.label == ()
    assert rows_of(made) == TABLE.drop_columns(["secret"]).slice(1)
    elsewhere = Store.parse(tmp_path / "other")
    moved = register_dataset("sales", Dataset.open("sales", 1, store), store=elsewhere)
    assert rows_of(moved) == TABLE.drop_columns(["secret"])
    with pytest.raises(SourceError, match=r"names a dataset, but not its store: give Dataset.open"):
        open_source("dataset://sales@1")
    with pytest.raises(SourceError, match=r"^'dataset://sales' names a dataset"):
        open_source(["a.parquet", "dataset://sales"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "../x"}, InputError, r"dataset name '../x' is not a safe name"),
        ({"name": "a" * 65}, InputError, "is not a safe name"),
        ({"name": ["a"]}, InputError, r"dataset name \['a'\] is not a safe name"),
        ({"exclude": ["nope"]}, ColumnError, "exclude names column 'nope'"),
        ({"label": "nope"}, ColumnError, "label names column 'nope'"),
        ({"label": ["sales", "sales"]}, ColumnError, "names column 'sales' twice"),
        ({"label": "sales", "exclude": ["sales"]}, ColumnError, "excluded and label at once"),
        ({"exclude": TABLE.column_names}, ColumnError, "Every column is excluded"),
        ({"source": TABLE.slice(0, 0)}, SourceError, "no rows"),
        ({"filter": [("sales", ">", 99)]}, SourceError, "leaves none"),
        ({"source": "dataset://missing"}, DatasetNotFoundError, "no dataset 'missing'"),
        ({"source": "dataset://a@0"}, InputError, "names no dataset: write dataset://NAME@VERSION"),
        (
            {"source": pa.table({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})},
            ColumnError,
            "Column 'x' of type month_day_nano_interval has no place in a Parquet file",
        ),
    ],
)
def test_what_cannot_be_registered_leaves_nothing(store, arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        register_dataset(**{"name": "sales", "source": TABLE, "store": store} | arguments)
    assert store.list("") == []


def test_what_is_not_there_is_said_with_what_is(store) -> None:
    for rows in range(1, 4):
        register_dataset("sales", TABLE.slice(0, rows), store=store)
    with pytest.raises(DatasetNotFoundError, match=r"has no version 7; it has 1, 2, 3\."):
        Dataset.open("sales", 7, store)
    with pytest.raises(DatasetNotFoundError, match=r"no dataset 'sale' .*those there: sales\)"):
        Dataset.of("dataset://sale", store)
    manifest = folder_of(store) / "manifests" / "0003.json"
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(document | {"format_version": 9}))
    with pytest.raises(RunFormatError, match="format version 9, and this release reads up to 2"):
        Dataset.open("sales", store=store)
    manifest.write_text(json.dumps(document))
    with pytest.raises(RunFormatError, match="differs from the checksum at its end"):
        Dataset.open("sales", store=store)
    del document["sha256"], document["signature"]
    manifest.write_bytes(seal(json.dumps(document | {"name": "other"}, indent=2).encode() + b"\n"))
    with pytest.raises(RunFormatError, match=r"is that of dataset://other@3"):
        Dataset.open("sales", store=store)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", r"Part 2 of 3 of dataset://sales@1 in .* is gone"),
        (
            "truncated",
            r"Part 2 of 3 of dataset://sales@1 .* has [\d,]+ bytes, and had [\d,]+",
        ),
        ("other", r"Part 2 of 3 of dataset://sales@1 in .* was changed after it was registered"),
        ("flipped", r"Part 2 of 3 of dataset://sales@1 in .* was changed after it was registered"),
    ],
)
def test_a_damaged_part_is_named(store, monkeypatch, damage, message) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    monkeypatch.setattr(parts, "_ROW_GROUP_ROWS", 1000)
    table = pa.table({"x": range(3000), "y": [str(i) for i in range(3000)]})
    dataset = register_dataset(
        "sales", pa.Table.from_batches(table.to_batches(max_chunksize=1000)), store=store
    )
    assert len(dataset.manifest.parts) == 3
    path = folder_of(store) / dataset.manifest.parts[1].path
    content = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(content[:-100])
        case "other":
            changed = bytearray(content)
            changed[-30] ^= 1
            path.write_bytes(changed)
        case "flipped":
            changed = bytearray(content)
            changed[200] ^= 1
            path.write_bytes(changed)
    with pytest.raises(IntegrityError, match=message):
        rows_of(dataset)


def test_several_at_once_get_a_number_each_and_equal_ones_share_one(store) -> None:
    barrier = threading.Barrier(6)
    made: list[Dataset] = []

    def register_rows(number: int) -> None:
        rows = TABLE.append_column("n", pa.array([number // 2] * 4))
        barrier.wait()
        made.append(register_dataset("sales", rows, store=store))

    threads = [threading.Thread(target=register_rows, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = {dataset.version for dataset in made}
    assert len(made) == 6
    # Two equal ones share a number, unless another came between them.
    assert 3 <= len(versions) <= 6
    assert versions == set(range(1, len(versions) + 1))
    for dataset in made:
        assert Dataset.open("sales", dataset.version, store) == dataset
        assert pc.unique(rows_of(dataset)["n"]).to_pylist() == [rows_of(dataset)["n"][0].as_py()]
    assert collect_dataset_garbage(store, "sales", dry_run=False) == []


def test_a_manifest_whose_answer_was_lost_is_a_version(store, monkeypatch) -> None:
    create = Store.create

    def lose_the_answer(self: Store, path: str, content: bytes) -> None:
        create(self, path, content)
        if "/manifests/" in path:
            # The client asks again, as it does after a lost response.
            create(self, path, content)

    monkeypatch.setattr(Store, "create", lose_the_answer)
    assert register_dataset("sales", TABLE, store=store).version == 1
    assert rows_of(Dataset.open("sales", store=store)) == TABLE


def test_an_error_of_the_last_write_takes_nothing_back(store, monkeypatch) -> None:
    create = Store.create

    def fail_afterwards(self: Store, path: str, content: bytes) -> None:
        create(self, path, content)
        if "/manifests/" in path:
            raise StoreError("the line was cut")

    monkeypatch.setattr(Store, "create", fail_afterwards)
    with pytest.raises(StoreError, match="the line was cut"):
        register_dataset("sales", TABLE, store=store)
    monkeypatch.undo()
    assert rows_of(Dataset.open("sales", store=store)) == TABLE
    assert register_dataset("sales", TABLE, store=store).version == 1


def test_an_error_in_the_midst_leaves_nothing(store) -> None:
    class Broken:
        schema = TABLE.schema

        def __arrow_c_stream__(self, requested_schema=None):
            def batches():
                yield from TABLE.to_batches()

            reader = pa.RecordBatchReader.from_batches(self.schema, batches())
            return reader.__arrow_c_stream__(requested_schema)

    assert register_dataset("whole", Broken(), store=store).rows == 4
    ragged = pa.table({"x": ["a"]})
    with pytest.raises(ColumnError, match="columns names column 'y'"):
        register_dataset("sales", ragged, store=store, columns=["y"])
    with pytest.raises(DatasetNotFoundError, match="no dataset 'sales'"):
        collect_dataset_garbage(store, "sales", dry_run=True)


def test_whether_there_is_a_new_version_is_told(store) -> None:
    arguments = {
        "store": store,
        "columns": None,
        "filter": None,
        "exclude": (),
        "label": (),
        "description": "",
    }
    assert [register("sales", TABLE, **arguments).is_new for _ in range(2)] == [True, False]


def test_the_orders_of_files_are_kept(store, tmp_path) -> None:
    """In one row group, Parquet put the values that only the second file has behind the others."""
    for number, order in enumerate((["low", "high"], ["low", "mid", "high"])):
        codes = pa.array(range(len(order)), pa.int8())
        level = pa.DictionaryArray.from_arrays(codes, pa.array(order), ordered=True)
        pq.write_table(pa.table({"level": level}), tmp_path / f"{number}.parquet")
    found = register_dataset("levels", str(tmp_path / "*.parquet"), store=store)
    column = DataConnector.from_sources(found).to_arrow().column("level").combine_chunks()
    assert column.type.ordered
    assert column.dictionary.to_pylist() == ["low", "mid", "high"]
    assert column.to_pylist() == ["low", "high", "low", "mid", "high"]


@pytest.mark.parametrize("values", [[3, 1, 2], [2.5, 1.0, 0.5]])
def test_an_order_that_parquet_does_not_keep_is_refused(store, monkeypatch, values) -> None:
    """Read again, the categories had the order in which the rows of a part have them."""
    codes = pa.array([2, 0, 1], pa.int8())
    level = pa.DictionaryArray.from_arrays(codes, pa.array(values), ordered=True)
    table = pa.table({"level": level})
    with pytest.raises(ColumnError, match=r"'level' has ordered categories of type .*ascending"):
        register_dataset("levels", table, store=store)
    assert list_datasets(store) == []
    # An earlier release has registered such a one.
    monkeypatch.setattr(parts, "loses_order", lambda kind: False)
    found = DataConnector.from_sources(register_dataset("levels", table, store=store))
    column = found.to_arrow().column("level")
    assert not column.type.ordered
    assert column.to_pylist() == table["level"].to_pylist()


def test_another_order_of_categories_makes_a_version(store) -> None:
    def levels(*orders: list[str], ordered: bool = True) -> pa.Table:
        """The same two rows for each order, with their categories in that."""
        chunks = [
            pa.DictionaryArray.from_arrays(
                pa.array([order.index("low"), order.index("high")], pa.int8()),
                pa.array(order),
                ordered=ordered,
            )
            for order in orders
        ]
        return pa.table({"level": pa.chunked_array(chunks)})

    up, down = ["low", "high"], ["high", "low"]
    versions = [
        register_dataset("levels", levels(*orders), store=store)
        for orders in ([up, up], [up, up], [down, down], [up, down], [down, up], [up, up])
    ]
    assert [one.version for one in versions] == [1, 1, 2, 3, 3, 4]
    assert len({one.fingerprint for one in versions}) == 1, "the rows are equal"
    found = {one.version: one.source().description().fingerprint for one in versions}
    assert found[1] == found[4]
    assert len(set(found.values())) == 3
    assert all(not one.source().schema.field("level").metadata for one in versions)
    assert [each.moved for each in compare_columns(versions[0], versions[2])] == [("order",)]
    assert compare_columns(versions[0], versions[5]) == []
    plain = [
        register_dataset("plain", levels(order, ordered=False), store=store).version
        for order in (up, down)
    ]
    assert plain == [1, 1], "without an order it makes no difference"


def test_a_version_of_an_earlier_release_that_says_no_order_is_made_again(store, tmp_path) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["a"]), ordered=True)
    table = pa.table({"level": codes, "n": [1]})
    made = register_dataset("levels", table, store=store)
    earlier = made.manifest.model_copy(update={"arrow_schema": encode_schema(table.schema, {})})
    assert earlier.orders == {}
    assert earlier.schema == made.manifest.schema == table.schema
    (folder_of(store, "levels") / "manifests/0001.json").write_bytes(
        earlier.to_bytes("datasets/levels/manifests/0001.json")
    )
    # Its dictionaries may be joined as that release did it.
    pq.write_table(table, tmp_path / "levels.parquet")
    again = [register_dataset("levels", tmp_path / "levels.parquet", store=store) for _ in "ab"]
    assert [one.version for one in again] == [2, 2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.array([1, 2, 3], pa.int32()), pa.array([1, 2, 3], pa.int64())),
        (pa.array([-0.0, 1.0, float("nan")]), pa.array([0.0, 1.0, float("nan")], pa.float32())),
        (pa.array(["a", "b", None]), pa.array(["a", "b", None]).dictionary_encode()),
    ],
)
def test_partitions_are_the_same_where_only_the_key_is_written_otherwise(
    store, before, after
) -> None:
    versions = [
        register_dataset("sales", pa.table({"key": keys, "value": values}), store=store)
        for keys, values in ((before, [1, 2, 3]), (after, [1, 2, 3]), (after, [1, 2, 4]))
    ]
    old, new, changed = versions
    same = compare_partitions(old, new, ["key"])
    assert (same.same, sum(same.counts.values())) == (3, 0)
    found = compare_partitions(old, changed, ["key"])
    assert (found.same, found.counts) == (2, {"added": 0, "removed": 0, "changed": 1})


def test_partitions_of_nothing_but_a_key_differ_by_their_rows(store) -> None:
    old, new = (
        register_dataset("sales", pa.table({"key": keys}), store=store)
        for keys in (["a", "b"], ["a", "b", "b"])
    )
    found = compare_partitions(old, new, ["key"])
    assert (found.same, found.examples["changed"]) == (1, ["b"])


def test_one_column_is_excluded_by_its_name(store) -> None:
    table = pa.table({"ab": [1], "a": [2], "b": [3]})
    assert register_dataset("sales", table, store=store, exclude="ab").default_columns == ["a", "b"]
