"""Tables as Arrow IPC streams, as they travel and lie in files; they are read by pyarrow alone."""

import pyarrow as pa


def table_buffer(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> pa.Buffer:
    """Return a table as an Arrow IPC stream; `options` None: without compression."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as the bytes of an Arrow IPC stream without compression."""
    content: bytes = table_buffer(table).to_pybytes()
    return content
