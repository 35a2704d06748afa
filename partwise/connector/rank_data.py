"""The rows of one rank as a connector, with categories whose codes mean the same on every rank."""

from collections.abc import Callable

import pyarrow as pa

from partwise.connector.categories import with_categories_once
from partwise.connector.data_connector import DataConnector
from partwise.connector.rank_context import Share
from partwise.connector.spooling import map_spooled, spool
from partwise.shuffle.shared_folder import table_bytes
from partwise.tables.categories import (
    categories_of_rows,
    with_categories_of,
    with_own_categories,
)


def rank_data(share: Share, all_gather: Callable[[bytes], list[bytes]]) -> DataConnector:
    """Return the rows of a rank, which lie in a temporary file that is mapped into memory.

    Args:
        share: The rank's.
        all_gather: How ranks tell each other their categories; not called where there are none.
    """
    spooled = spool(share.batches(), share.schema)
    table = with_categories_once(map_spooled(spooled.file.path))
    if any(pa.types.is_dictionary(field.type) for field in table.schema):
        table = with_own_categories(table)
        table = with_categories_of(table, _common_categories(table, all_gather))
    return DataConnector(table)


def _common_categories(table: pa.Table, all_gather: Callable[[bytes], list[bytes]]) -> pa.Table:
    """Return the categories of the rows of all ranks, as `with_categories_of` takes them."""
    own = categories_of_rows(table, ())
    gathered = all_gather(b"" if own is None else table_bytes(own))
    # A rank without rows has none.
    ranks = [pa.ipc.open_stream(part).read_all() for part in gathered if part]
    common = {}
    for field in table.schema:
        if pa.types.is_dictionary(field.type) and ranks:
            values = [rank.column(field.name).chunk(0).flatten() for rank in ranks]
            codes = [pa.array(range(len(each)), pa.int32()) for each in values]
            chunks = [
                pa.DictionaryArray.from_arrays(*pair, ordered=field.type.ordered)
                for pair in zip(codes, values, strict=True)
            ]
            rows = with_own_categories(pa.table({field.name: pa.chunked_array(chunks)}))
            if (found := categories_of_rows(rows, ())) is not None:
                common[field.name] = found.column(0)
    return pa.table(common)
