"""A real table, sharded, is what a pandas groupby of it is."""

import itertools

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.sorted_shards import ShardReader, sort_shard
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import key_columns, key_values


def missing_as_none(key):
    if isinstance(key, tuple):
        return tuple(None if pd.isna(value) else value for value in key)
    return None if pd.isna(key) else key


def fingerprints(table: pa.Table, n_shards: int, folder) -> dict:
    """The rows and fingerprints of each route."""
    columns = key_columns(table.schema, ["start_station", "end_station"])
    found = {}
    for shard in shard_rows(open_source(table), columns, n_shards, folder / "sharded").shards:
        done = sort_shard(shard, columns, folder / "sorted")
        reader = ShardReader(done.path)
        bounds = itertools.pairwise(done.offsets.tolist())
        for key, (start, stop) in zip(key_values(done.keys), bounds, strict=True):
            codes = reader.codes_fingerprint(start, None)
            found[key] = reader.partition(start, stop), reader.fingerprint(start, stop), codes
    return found


def test_routes_of_other_stations_change_no_code(bike_trips, tmp_path):
    table = pq.read_table(bike_trips)
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(index, field.name, table.column(index).dictionary_encode())
    stations = table["start_station"].cast(pa.string())
    first_half = pc.is_in(stations, value_set=stations.unique().slice(0, 37))
    alone = fingerprints(table.filter(first_half), 3, tmp_path / "alone")
    together = fingerprints(table.take(pc.sort_indices(pc.invert(first_half))), 8, tmp_path / "all")
    assert (len(alone), len(together)) == (1243, 1863)
    later = fingerprints(table, 8, tmp_path / "later")
    for key, (rows, *found) in alone.items():
        for others in (together, later):
            again, *again_found = others[key]
            assert again_found == found
            assert again.combine_chunks() == rows.combine_chunks()


@pytest.mark.parametrize(
    ("partition_by", "partitions"),
    [
        (["start_station"], 74),
        (["bike_id"], 687),
        (["start_station", "end_station"], 1863),
        (["subscription_type", "zip_code"], None),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_partitions_are_the_groups_of_pandas(bike_trips, tmp_path, partition_by, partitions):
    source = open_source(bike_trips)
    columns = key_columns(source.schema, partition_by)
    sharded = shard_rows(source, columns, 16, tmp_path / "sharded", null_keys="keep")
    frame = pd.read_parquet(bike_trips)
    by = partition_by if len(partition_by) > 1 else partition_by[0]
    groups = {
        missing_as_none(key): group
        for key, group in frame.groupby(by, sort=False, dropna=False, observed=True)
    }
    assert sharded.partitions == len(groups)
    assert partitions in (None, len(groups))
    assert sharded.rows == len(frame)
    seen = 0
    for shard in sharded.shards:
        done = sort_shard(shard, columns, tmp_path / "sorted")
        reader = ShardReader(done.path)
        for index, key in enumerate(key_values(done.keys)):
            rows = reader.partition(done.offsets[index], done.offsets[index + 1])
            if len(groups) < 1000 or index % 7 == 0:
                found = DataConnector(rows).to_pandas()
                pd.testing.assert_frame_equal(found, groups[key].reset_index(drop=True))
            assert rows.num_rows == len(groups[key])
            seen += rows.num_rows
    assert seen == len(frame)
