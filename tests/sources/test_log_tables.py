"""Tables whose truth is a log: which rows of their files count."""

import base64
import json
import os
import pickle
import shutil
import string
import struct
import subprocess
import sys
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties
from pyroaring import BitMap

from partwise.errors import ColumnError, InputError, SourceError
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.sorted_shards import sort_shard
from partwise.sources.fetching import fetched_ahead
from partwise.sources.files.file_set import Files
from partwise.sources.files.remote_files import Access
from partwise.sources.opening import data_of_recipe, open_source
from partwise.sources.table_formats.roots import TableFinder
from partwise.tables.keys.partition_keys import key_columns
from tests.lazily import Lazily
from tests.sources.log_tables import KEYS, folder_of, new_iceberg, some_rows, write_delta

FILTERS = [
    [("n", ">=", 3)],
    [("n", "=", 100)],
    [("key", "=", "b/ü =%")],
    [("key", "!=", "a")],
    [("key", "in", ["a", "x:y"]), ("n", "<", 8)],
    [[("key", "not in", ["a"])], [("n", "=", 0)]],
    [("day", "<", "2024-01-03")],
    [("at", ">", "2024-01-06T12:00:00.123455Z")],
    [("at", ">=", "2024-01-06T12:00:00.123457Z")],
    [("x", "!=", 4.0)],
    [("x", "=", 0.0)],
    [("x", ">", 1.0), ("text", ">", "t" * 40 + "3")],
    [("text", "=", "t" * 40 + "5")],
]
NONE = [[("n", "=", 100)], [("at", ">=", "2024-01-06T12:00:00.123457Z")]]


def sorted_rows(data, **options) -> list[str]:
    """Rows as text, of which NaN is equal to NaN, and -0.0 is not equal to 0.0."""
    return expected(pa.Table.from_batches(open_source(data, **options).batches()))


def expected(*tables: pa.Table) -> list[str]:
    return sorted(str(row) for table in tables for row in table.to_pylist())


def delta(folder, partition_by=None):
    """A table of 11 rows, whose files also hold rows that were overwritten or deleted."""
    root = folder / "made"
    write_delta(root, some_rows(100), partition_by=partition_by)
    write_delta(root, some_rows(0), mode="overwrite")
    write_delta(root, some_rows(6))
    DeltaTable(str(root)).delete("n = 8")
    (folder / "lake").mkdir()
    return root.rename(folder / "lake" / "a table%20 [1]")


def iceberg(folder, partition_by=None):
    table = new_iceberg(folder, some_rows(100))
    if partition_by:
        with table.update_spec() as spec:
            for name in partition_by:
                spec.add_identity(name)
    table.overwrite(some_rows(0))
    table.append(some_rows(6))
    table.delete("n = 8")
    return folder_of(table)


def what_is_left() -> list[pa.Table]:
    rows = some_rows(6)
    return [some_rows(0), rows.filter(pc.not_equal(rows.column("n"), 8))]


@pytest.mark.parametrize("make", [delta, iceberg])
@pytest.mark.parametrize("partition_by", [None, ["key"], ["key", "day"]])
def test_removed_and_rewritten_rows_do_not_come_back(make, partition_by, tmp_path):
    root = make(tmp_path, partition_by)
    source = open_source(str(root))
    assert source.schema.names == some_rows().column_names
    assert source.description().rows == 11
    assert sorted_rows(str(root)) == expected(*what_is_left())
    for fragment in source.fragments(["key"]):
        again = pickle.loads(pickle.dumps(fragment))
        assert sum(batch.num_rows for batch in again.batches()) == again.rows
        if partition_by:
            assert set(fragment.known) == {"key"}


@pytest.mark.parametrize("make", [delta, iceberg])
@pytest.mark.parametrize("partition_by", [None, ["key"], ["day", "key"], ["at"], ["n"]])
def test_filters_leave_the_rows_that_they_leave_of_a_table_in_memory(make, partition_by, tmp_path):
    root = str(make(tmp_path, partition_by))
    whole = pa.concat_tables(what_is_left())
    for filter_ in FILTERS:
        if filter_ in NONE:
            with pytest.raises(SourceError, match="leaves none"):
                sorted_rows(root, filter=filter_)
            continue
        wanted = sorted_rows(whole, filter=filter_, columns=["n", "key"])
        assert sorted_rows(root, filter=filter_, columns=["n", "key"]) == wanted, filter_


@pytest.mark.parametrize("make", [delta, iceberg])
def test_a_filter_on_a_partition_reads_no_other_files(make, tmp_path):
    root = make(tmp_path, ["key"])
    source = open_source(str(root), filter=[("key", "=", "a"), ("n", "<", 3)])
    [fragment] = source.fragments()
    assert fragment.rows == 1


@pytest.mark.parametrize("make", [delta, iceberg])
def test_a_version_is_a_fingerprint_and_can_be_named(make, tmp_path):
    root = make(tmp_path)
    root = str(root.rename(tmp_path / "t") if make is delta else root)
    before = open_source(root).description()
    assert open_source(root).description() == before
    assert before.recurs
    recipe = json.loads(json.dumps(before.recipe))
    chosen = {name: recipe.pop(name) for name in ("columns", "filter")}
    if make is delta:
        write_delta(root, some_rows(50))
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db")
        catalog.load_table("n.t").append(some_rows(50))
        catalog.close()
    now = open_source(root).description()
    assert now.fingerprint != before.fingerprint
    assert now.rows == 17
    # What was read is read again, by what a run wrote down of it.
    again = open_source(data_of_recipe(recipe), **chosen).description()
    assert (again.fingerprint, again.rows) == (before.fingerprint, 11)
    with pytest.raises(SourceError, match="77"):
        open_source(Files(root, version=77))


def test_iceberg_goes_by_the_ids_of_columns(tmp_path):
    table = new_iceberg(tmp_path, some_rows(0))
    with table.update_schema() as change:
        change.rename_column("n", "number")
        change.delete_column("x")
        change.add_column("new", Lazily("pyiceberg.types").IntegerType())
    with table.update_schema() as change:
        change.rename_column("text", "x")
    rows = some_rows(6).drop_columns(["x"]).rename_columns(["key", "day", "at", "number", "x"])
    table.append(rows.append_column("new", pa.array(range(6), pa.int32())))
    for place in (folder_of(table), table.metadata_location.removeprefix("file://")):
        read = pa.Table.from_batches(open_source(place).batches()).sort_by("number")
        assert read.column("number").to_pylist() == list(range(12))
        assert read.column("new").to_pylist() == [*[None] * 6, *range(6)]
        assert read.column("x").to_pylist() == some_rows().column("text").to_pylist() * 2
        chosen = sorted_rows(place, filter=[("number", "in", [1, 7])], columns=["number"])
        assert chosen == expected(pa.table({"number": [1, 7]}))
    old = open_source(Files(folder_of(table), version=table.snapshots()[0].snapshot_id))
    assert old.schema.names == some_rows().column_names


def test_iceberg_refuses_what_it_would_read_wrong(tmp_path):
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    rows = pa.table({"k": [1], "s": pa.array([{"a": 1, "b": 2}], kind)})
    table = new_iceberg(tmp_path, rows)
    assert sorted_rows(folder_of(table)) == expected(rows)
    with table.update_schema() as change:
        change.rename_column(("s", "a"), "c")
    with pytest.raises(SourceError, match="renamed a field within column 's'"):
        sorted_rows(folder_of(table))
    metadata = table.metadata_location.removeprefix("file://")
    shutil.copy(metadata, metadata.replace("00002-", "00002-0"))
    with pytest.raises(SourceError, match="2 files of metadata with the newest number"):
        open_source(folder_of(table))


def test_delta_with_a_checkpoint_and_without_its_old_files(tmp_path):
    root = delta(tmp_path, ["key"]).rename(tmp_path / "t")
    table = DeltaTable(str(root))
    table.create_checkpoint()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    for version in range(3):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    assert sorted_rows(root) == expected(*what_is_left())
    with pytest.raises(SourceError, match="cannot be read at version 0"):
        open_source(Files(root, version=0))


def test_columns_that_came_later_are_null_before(tmp_path):
    root = tmp_path / "t"
    write_delta(root, pa.table({"k": [1, 2]}))
    write_delta(root, pa.table({"k": [3], "late": ["x"]}), schema_mode="merge")
    assert sorted_rows(root, columns=["late"]) == expected(pa.table({"late": [None, None, "x"]}))
    assert sorted_rows(root, filter=[("late", "=", "x")]) == expected(
        pa.table({"k": [3], "late": ["x"]})
    )


def with_protocol(root, features, configuration=None):
    """Rewrite the first commit of a table to ask for features of its readers."""
    [log] = (root / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        if "metaData" in line:
            line["metaData"]["configuration"] = configuration or {}
    log.write_text("\n".join(map(json.dumps, lines)))
    return lines, log


@pytest.mark.parametrize("feature", ["columnMapping", "typeWidening", "fromTheFuture"])
def test_delta_refuses_features_that_it_would_read_wrong(feature, tmp_path):
    root = tmp_path / "t"
    write_delta(root, pa.table({"k": [1, 2]}))
    mapped = {"delta.columnMapping.mode": "name"} if feature == "columnMapping" else {}
    with_protocol(root, [feature], mapped)
    with pytest.raises(SourceError, match=r"Delta table .*t'.*"):
        open_source(root)


def deletion_vector(rows):
    """Rows as Delta's protocol writes them into its log."""
    bits = BitMap(rows).serialize()
    content = struct.pack("<iqi", 1_681_511_377, 1, 0) + bits
    padded = content + b"\0" * (-len(content) % 4)
    ours = (
        string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
    )
    z85 = (
        string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    )
    return {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(padded).decode().translate(str.maketrans(ours, z85)),
        "sizeInBytes": len(content),
        "cardinality": len(rows),
    }


def test_delta_refuses_deleted_rows_that_stay_in_their_files(tmp_path):
    root = tmp_path / "t"
    write_delta(root, pa.table({"k": [1, 2]}))
    lines, log = with_protocol(root, ["deletionVectors"])
    assert len(sorted_rows(root)) == 2
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] = deletion_vector([0])
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(SourceError, match=r"uses deletionVectors.*REORG"):
        open_source(root)


def hudi(folder):
    root = folder / "h"
    (root / ".hoodie").mkdir(parents=True)
    (root / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=h")
    pq.write_table(some_rows(), root / "x.parquet")
    return root


@pytest.mark.parametrize("make", [delta, iceberg, hudi])
def test_a_part_of_a_table_is_refused(make, tmp_path):
    root = os.fspath(make(tmp_path, *([["day"]] if make is not hudi else [])))
    files = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(".parquet") and "_delta_log" not in folder
    ]
    link = tmp_path / "link.parquet"
    link.symlink_to(files[0])
    parts = [
        files[0],
        [files[0], files[1]] if len(files) > 1 else files,
        os.path.dirname(files[0]),
        os.path.dirname(os.path.dirname(root)) if make is iceberg else os.path.dirname(root),
        f"{tmp_path}/**/*.parquet",
        link,
        Files(files[0], format="parquet"),
    ]
    for part in parts:
        if make is hudi or part != root:
            with pytest.raises(SourceError, match=r"log says which|is a Hudi table"):
                open_source(part)
    if make is hudi:
        with pytest.raises(SourceError, match="Hudi table, which is not read"):
            open_source(root)


def test_tables_stand_in_lists_with_files(tmp_path):
    root = delta(tmp_path)
    pq.write_table(some_rows(20), tmp_path / "more.parquet")
    read = sorted_rows([root, tmp_path / "more.parquet"])
    assert read == expected(*what_is_left(), some_rows(20))
    with pytest.raises(SourceError, match="named twice"):
        open_source([root, root])


def test_options_that_no_table_has_are_refused(tmp_path):
    root = delta(tmp_path)
    with pytest.raises(InputError, match="says the types"):
        open_source(Files(root, types={"n": "string"}))
    with pytest.raises(InputError, match="is not a version"):
        Files(root, version="latest")
    pq.write_table(some_rows(), tmp_path / "plain.parquet")
    with pytest.raises(InputError, match="is none"):
        open_source(Files(tmp_path / "plain.parquet", version=3))
    named = open_source(Files(root, file_column="file"), columns=["file"])
    assert all(
        name.endswith(".parquet")
        for name in pa.Table.from_batches(named.batches())["file"].to_pylist()
    )
    with pytest.raises(ColumnError, match="of its own"):
        open_source(Files(root, file_column="n"))


def test_folders_that_only_look_like_logs_are_files_as_before(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "notes.json").write_text("{}")
    (tmp_path / ".hoodie").mkdir()
    pq.write_table(some_rows(), tmp_path / "x.parquet")
    assert len(sorted_rows(tmp_path)) == len(KEYS)
    assert len(sorted_rows(tmp_path / "x.parquet")) == len(KEYS)


@pytest.mark.parametrize("make", [delta, iceberg])
def test_without_the_extra_a_table_is_refused_before_work(make, tmp_path):
    root = os.fspath(make(tmp_path))
    code = (
        "import sys; sys.modules.update(deltalake=None, pyiceberg=None)\n"
        "from partwise.sources.opening import open_source\n"
        "open_source(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True)
    assert f"partwise[{make.__name__}]" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("partition_by", [None, ["key"]])
def test_in_a_bucket_a_table_is_read_with_the_keys_of_its_source(
    partition_by, tmp_path, s3_bucket, s3_endpoint_url
):
    import s3fs

    remote = s3fs.S3FileSystem(endpoint_url=s3_endpoint_url, skip_instance_cache=True)
    root = f"s3://{s3_bucket}/{uuid.uuid4().hex}/sales"
    remote.put(str(delta(tmp_path, partition_by).rename(tmp_path / "t")), root, recursive=True)
    files = Files(root, endpoint_url=s3_endpoint_url)
    source = open_source(files)
    assert sorted_rows(files) == expected(*what_is_left())
    assert source.buckets() == {f"s3://{s3_bucket}"}
    # As those do who divide rows.
    ahead = [
        b for each in fetched_ahead(source.fragments()) for b in source.selection.batches(each)
    ]
    assert sum(batch.num_rows for batch in ahead) == len(expected(*what_is_left()))
    inside = remote.find(root)[-1]
    for part in (f"s3://{inside}", f"{root}/**/*.parquet", root.rpartition("/")[0]):
        with pytest.raises(SourceError, match="whose log says which"):
            open_source(Files(part, endpoint_url=s3_endpoint_url))


def test_a_table_of_iceberg_in_a_bucket(tmp_path, s3_bucket, s3_endpoint_url):
    from pyiceberg.catalog.sql import SqlCatalog

    place = f"s3://{s3_bucket}/{uuid.uuid4().hex}"
    catalog = SqlCatalog(
        "c",
        uri=f"sqlite:///{tmp_path}/c.db",
        warehouse=place,
        **{"s3.endpoint": s3_endpoint_url, "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
    )
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=some_rows().schema)
    table.append(some_rows(100))
    table.overwrite(some_rows(0))
    catalog.close()
    read = sorted_rows(Files(table.metadata.location, endpoint_url=s3_endpoint_url))
    assert read == expected(some_rows(0))


def test_a_table_in_a_bucket_names_no_files_of_this_machine(tmp_path, s3_bucket, s3_endpoint_url):
    import s3fs

    table = new_iceberg(tmp_path, some_rows())
    remote = s3fs.S3FileSystem(endpoint_url=s3_endpoint_url, skip_instance_cache=True)
    root = f"s3://{s3_bucket}/{uuid.uuid4().hex}/t"
    remote.put(folder_of(table), root, recursive=True)
    with pytest.raises(SourceError, match="on this machine"):
        open_source(Files(root, endpoint_url=s3_endpoint_url))


def test_a_big_file_is_read_in_parts_of_one_key(tmp_path):
    root = tmp_path / "t"
    rows = pa.table({"k": np.arange(4_000) // 1_000, "x": np.zeros(4_000)})
    sizes = WriterProperties(max_row_group_size=1_000, write_batch_size=1_000)
    write_delta(root, rows, writer_properties=sizes)
    fragments = open_source(root).fragments(["k"])
    assert [fragment.known["k"].as_py() for fragment in fragments] == [0, 1, 2, 3]
    assert sum(fragment.rows for fragment in fragments) == rows.num_rows


DOUBLES = [0.1, 0.5, -1e300, 0.3, 2.0]


@pytest.mark.parametrize("condition", [("=", 0.1), ("<", -1e299), ("in", [0.1, 0.3]), (">", 0.2)])
def test_a_table_of_iceberg_that_doubles_divide_has_its_rows(tmp_path, condition):
    # pyiceberg writes the doubles down as floats: by them no file is left out, and no key is known.
    made = new_iceberg(tmp_path, pa.table({"x": pa.array([], pa.float64())}))
    with made.update_spec() as update:
        update.add_identity("x")
    made.append(pa.table({"x": DOUBLES}))
    opened = open_source(folder_of(made), filter=[("x", *condition)])
    found = [value for batch in opened.batches() for value in batch["x"].to_pylist()]
    checks = {"=": lambda x, y: x == y, "<": lambda x, y: x < y, ">": lambda x, y: x > y}
    holds = checks.get(condition[0], lambda x, y: x in y)
    assert sorted(found) == sorted(value for value in DOUBLES if holds(value, condition[1]))
    assert ids_of(folder_of(made), tmp_path) == sorted(map(str, sorted(DOUBLES)))


def test_a_table_of_delta_that_nan_divides_has_its_key(tmp_path):
    write_delta(
        tmp_path / "t", pa.table({"x": [0.5, float("nan")], "y": [1, 2]}), partition_by=["x"]
    )
    assert ids_of(str(tmp_path / "t"), tmp_path) == ["0.5", "nan"]


def ids_of(path, folder):
    opened = open_source(path)
    columns = key_columns(opened.schema, ["x"])
    sharded = shard_rows(opened, columns, 1, folder / "sharded", null_keys="keep")
    done = sort_shard(sharded.shards[0], sharded.key_columns, folder / "sorted")
    return sorted(str(value) for value in done.keys["x"].to_pylist())


def test_a_table_of_delta_that_bytes_divide_is_refused(tmp_path):
    write_delta(tmp_path / "t", pa.table({"x": [b"\xbc"], "y": [1]}), partition_by=["x"])
    with pytest.raises(SourceError, match=r"is divided by its column 'x' of bytes"):
        open_source(str(tmp_path / "t"))


def test_files_below_the_root_are_not_of_a_table_that_one_stands_in(tmp_path, monkeypatch):
    write_delta(tmp_path / "table", pa.table({"n": [1]}))
    monkeypatch.chdir(tmp_path / "table")
    finder = TableFinder(Access())
    finder.check_matches(["/sales.parquet"])
    assert finder.table_at("/data*/sales.parquet") is None
    with pytest.raises(SourceError, match="belongs to the Delta table"):
        finder.check_matches([f"{tmp_path}/table/part.parquet"])
