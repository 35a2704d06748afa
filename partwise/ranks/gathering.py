"""Tables that every rank of a gang gets from every other."""

import pyarrow as pa

from partwise.ranks.protocols import Exchange


def gather_tables(exchange: Exchange, table: pa.Table) -> list[pa.Table]:
    """Return what every rank has given, in the order of ranks; each has to call it.

    `table` is small: rank 0 holds those of all.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    gathered = exchange.all_gather(sink.getvalue().to_pybytes())
    return [pa.ipc.open_stream(content).read_all() for content in gathered]
