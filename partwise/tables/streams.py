"""Tables as Arrow IPC streams."""

import pyarrow as pa


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream without compression."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content
