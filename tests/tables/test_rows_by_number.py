"""Taking rows of chunked columns, each of which is given up as it is copied."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from partwise.tables.rows_by_number import take_columns

ROWS = st.lists(st.tuples(st.integers(0, 9) | st.none(), st.text(max_size=3) | st.none()))


@given(chunks=st.lists(ROWS), data=st.data())
def test_they_are_the_rows_that_a_table_gives(chunks, data):
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    batches = [
        pa.table([[row[0] for row in rows], [row[1] for row in rows]], schema=schema)
        for rows in chunks
    ]
    table = pa.concat_tables([schema.empty_table(), *batches])
    places = st.integers(0, max(0, table.num_rows - 1))
    rows = pa.array(data.draw(st.lists(places)) if table.num_rows else [], pa.int64())
    columns = table.columns
    assert pa.table(take_columns(columns, rows), schema=schema).equals(table.take(rows))
    assert columns == []


def test_columns_that_nobody_else_has_are_given_up_one_by_one():
    size, count = 1_000_000, 20

    def column(number: int) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(np.full(size // 8 // 4, number)) for _ in range(4)])

    def arrows() -> int:
        return pa.total_allocated_bytes() + pa.system_memory_pool().bytes_allocated()

    held: list[int] = []

    class Watched(list):
        def pop(self, place: int) -> pa.ChunkedArray:
            held.append(arrows() - before)
            return super().pop(place)

    before = arrows()
    # numpy's memory is not Arrow's: copies are.
    columns = Watched(pa.chunked_array([pa.concat_arrays(column(n).chunks)]) for n in range(count))
    take_columns(columns, pa.array(np.arange(size // 8)))
    assert held[0] >= size * count
    assert max(held) < held[0] + 3 * size
