"""Dask DataFrames are described without computing, and computed where their partitions are."""

import datetime as dt
from decimal import Decimal

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client, wait
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError
from partwise.sources.opening import open_source
from partwise.testing import SourceContract
from tests.lazily import Lazily

dd = Lazily("dask.dataframe")


class TestDask(SourceContract):
    cluster = True

    def data(self, table, folder):
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        return dd.from_pandas(frame, npartitions=4)


def made(number: int) -> pd.DataFrame:
    """A partition that tells which worker computed it."""
    from distributed import get_worker

    return pd.DataFrame(
        {"number": np.arange(3) + 3 * number, "worker": [get_worker().address] * 3}
    ).astype({"worker": "string[pyarrow]"})


META = pd.DataFrame({"number": np.array([], "int64"), "worker": pd.array([], "string[pyarrow]")})


def count_tasks(client: Client) -> int:
    return sum(client.run(lambda dask_worker: dask_worker.state.executed_count).values())


def test_the_workers_compute_partitions_and_the_client_none(dask_client):
    frame = dd.from_map(made, range(6), meta=META)
    before, held = count_tasks(dask_client), set(dask_client.futures)
    source = open_source(frame, columns=["number"], filter=[("number", ">=", 4)])
    fragments = source.fragments()
    assert (source.schema.names, source.schema.types) == (["number"], [pa.int64()])
    assert [fragment.place for fragment in fragments] == ["cluster"] * 6
    assert count_tasks(dask_client) == before, "to describe it computes nothing"

    selection = source.selection

    def read(part):
        from distributed import get_worker

        rows = [row for batch in selection.batches(part) for row in batch.to_pylist()]
        return get_worker().address, rows

    futures = dask_client.compute([dask.delayed(read)(fragment.task) for fragment in fragments])
    wait(futures)
    assert not [key for key in set(dask_client.futures) - held if "part" in str(key)], (
        "no partition is held here"
    )
    found = dask_client.gather(futures)
    assert len({worker for worker, _ in found}) == 2
    assert [row["number"] for _, rows in found for row in rows] == list(range(4, 18))


@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")
def test_columns_and_filters_reach_the_files_that_are_read(tmp_path):
    table = pd.DataFrame({"key": range(100), "wide": ["x" * 50] * 100, "other": 0.5})
    dd.from_pandas(table, npartitions=2).to_parquet(tmp_path / "x")
    source = open_source(
        dd.read_parquet(tmp_path / "x"), columns=["other"], filter=[("key", "<", 10)]
    )
    for fragment in source.fragments():
        (part,) = dask.compute(fragment.task, scheduler="synchronous")
        computed = part.stream.args[0]
        assert set(computed.columns) == {"key", "other"}
        assert len(computed) in (0, 10), "other rows were left out before they got here"
    assert sum(batch.num_rows for batch in source.batches()) == 10


def test_a_named_index_is_kept():
    frame = pd.DataFrame({"x": [1, 2, 3]}, index=pd.Index([7, 8, 9], name="key"))
    source = open_source(dd.from_pandas(frame, npartitions=2))
    found = pa.Table.from_batches(list(source.batches()), source.schema)
    assert found.to_pydict() == {"x": [1, 2, 3], "key": [7, 8, 9]}
    only = open_source(dd.from_pandas(frame, npartitions=2), columns=["key"])
    assert [row for batch in only.batches() for row in batch.to_pydict()["key"]] == [7, 8, 9]


def test_types_are_those_of_the_frame():
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    frame = pd.DataFrame(
        {
            "text": ["a", None, "c"],
            "time": pd.to_datetime([day, day, None], utc=True).astype("datetime64[us, UTC]"),
            "int": pd.array([1, None, 3], "Int32"),
            "category": pd.Categorical(["x", "y", None], ["y", "x", "z"], ordered=True),
            "price": pd.array([Decimal("1.50")] * 3, pd.ArrowDtype(pa.decimal128(6, 2))),
            "flag": [True, False, True],
        }
    )
    source = open_source(dd.from_pandas(frame, npartitions=3))
    types = dict(zip(source.schema.names, source.schema.types, strict=True))
    assert pa.types.is_string(types["text"]) or pa.types.is_large_string(types["text"])
    assert types["time"] == pa.timestamp("us", "UTC")
    assert types["int"] == pa.int32()
    assert types["category"].value_type in (pa.string(), pa.large_string())
    assert types["category"].ordered
    assert (types["price"], types["flag"]) == (pa.decimal128(6, 2), pa.bool_())
    rows = [row for batch in source.batches() for row in batch.to_pylist()]
    assert [row["text"] for row in rows] == ["a", None, "c"]
    assert [row["time"] for row in rows] == [day, day, None]
    assert [row["int"] for row in rows] == [1, None, 3]
    assert [row["category"] for row in rows] == ["x", "y", None]


def test_columns_whose_type_only_computing_tells_are_refused():
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(pd.DataFrame({"x": [[1], [2]], "y": [1, 2]}), npartitions=1)
    with pytest.raises(ColumnError, match=r"'x' of the Dask frame is of dtype object.*astype"):
        open_source(frame)
    frame = dd.from_pandas(pd.DataFrame({"x": ["a", "b"]}), npartitions=2)
    unknown = frame.astype({"x": "category"})
    with pytest.raises(ColumnError, match=r"'x' of the Dask frame has categories.*as_known"):
        open_source(unknown)
    known = unknown.assign(x=unknown["x"].cat.as_known())
    found = [row for batch in open_source(known).batches() for row in batch.to_pylist()]
    assert found == [{"x": "a"}, {"x": "b"}]


def test_its_identity_never_recurs():
    frame = dd.from_pandas(pd.DataFrame({"x": [1]}), npartitions=1)
    first, second = (open_source(frame).description() for _ in range(2))
    assert first.fingerprint != second.fingerprint
    assert (first.rows, first.recipe) == (None, None)


def test_a_partition_of_another_type_than_promised_is_refused():
    meta = pd.DataFrame({"x": np.array([], "int64")})
    frame = dd.from_map(lambda _: pd.DataFrame({"x": ["a"]}), [0], meta=meta)
    with pytest.raises(ColumnError, match=r"Column 'x' of the Dask frame is of type .*string"):
        list(open_source(frame).batches())


EDGES = st.builds(
    lambda edge, more: edge + more,
    st.sampled_from([0, 2**24, 2**53, 2**63, -(2**53), -(2**63)]),
    st.integers(-2, 2),
)
LIMITS = {
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint64(): (0, 2**64 - 1),
    pa.float32(): (None, None),
    pa.float64(): (None, None),
}


@st.composite
def numbers_and_conditions(draw):
    kind = draw(st.sampled_from(list(LIMITS)))
    least, most = LIMITS[kind]
    cells = EDGES if least is None else EDGES.filter(lambda value: least <= value <= most)
    values = draw(st.lists(cells, min_size=1, max_size=6))
    compared = st.one_of(EDGES, EDGES.map(float), st.sampled_from([0.1, 2.5]))
    operator = draw(st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="]))
    numbers = np.array(values, kind.to_pandas_dtype())
    return pa.table({"x": numbers}), ("x", operator, draw(compared)), draw(st.booleans())


@settings(max_examples=15)
@given(numbers_and_conditions())
@example((pa.table({"x": [2**53 + 1]}), ("x", ">", 2.0**53), False))
@example((pa.table({"x": [2.0**53]}), ("x", "<", 2**53 + 1), False))
@example((pa.table({"x": pa.array([0.1], pa.float32())}), ("x", "=", 0.1), True))
@example((pa.table({"x": [1.0]}), ("x", "<", 2**63 + 1), True))
def test_a_filter_of_numbers_keeps_the_rows_that_it_keeps_of_a_table(case):
    """Beside a double pandas made doubles of whole numbers, and so left out rows that pass."""
    table, condition, is_arrow = case
    frame = table.to_pandas(types_mapper=pd.ArrowDtype if is_arrow else None)
    found = []
    for data in (table, dd.from_pandas(frame, npartitions=1)):
        source = open_source(data, filter=[condition])
        with dask.config.set(scheduler="synchronous"):
            batches = [b for f in source.fragments() for b in source.selection.batches(f)]
        found.append([value for batch in batches for value in batch["x"].to_pylist()])
    assert found[1] == found[0]
