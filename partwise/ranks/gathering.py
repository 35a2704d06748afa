"""Tables that every rank of a gang gets from every other."""

import pyarrow as pa

from partwise.ranks.protocols import Exchange
from partwise.tables.ipc_streams import table_bytes


def gather_tables(exchange: Exchange, table: pa.Table) -> list[pa.Table]:
    """Return what every rank has given, in the order of ranks; each has to call it.

    `table` is small: rank 0 holds those of all.
    """
    gathered = exchange.all_gather(table_bytes(table))
    return [pa.ipc.open_stream(content).read_all() for content in gathered]
