"""Tables as Arrow IPC streams, read as something that a stranger has sent."""

import struct
from collections.abc import Callable

import pyarrow as pa

from partwise.errors import InputError
from partwise.tables.column_names import check_unique_names

_BODY_COMPRESSION = 3
"""The place of `compression` among the fields of a record batch, in Arrow's format."""
_HEADER = 2
"""The place of `header` among those of a message."""
_TAKEN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
)
"""Those whose values take no more memory than the body does: of a dictionary, one long text can
stand in every row."""


def from_stream(body: bytes) -> pa.Table:
    """Return the table of an Arrow IPC stream, whose buffers are looked through.

    Raises:
        InputError: It is none, is compressed (a small body could fill the memory), or has columns
            of dictionaries, nested types or views.
        ColumnError: A name stands there twice.
    """
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(body)):
            if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
                raise InputError("The Arrow stream is compressed: send it without compression.")
        with pa.ipc.open_stream(pa.BufferReader(body)) as stream:
            _check_columns(stream.schema)
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
        raise InputError("The body is not an Arrow IPC stream that can be read.") from error
    return table


def _check_columns(schema: pa.Schema) -> None:
    check_unique_names(schema.names, "The Arrow stream has")
    for field in schema:
        if not any(is_it(field.type) for is_it in _TAKEN):
            raise InputError(
                f"Column {field.name!r} of the Arrow stream is of type {field.type}: send plain "
                "numbers, text, bytes, dates or times."
            )


def _is_compressed(message: bytes) -> bool:
    """Tell whether the buffers of a message are, by the field that says so."""
    batch = _field(message, struct.unpack_from("<I", message)[0], _HEADER)
    return batch is not None and _field(message, batch, _BODY_COMPRESSION) is not None


def _field(message: bytes, table: int, place: int) -> int | None:
    """Return where a table of a FlatBuffers message has what a field of its points to."""
    names = table - struct.unpack_from("<i", message, table)[0]
    size = struct.unpack_from("<H", message, names)[0]
    at = 4 + 2 * place
    offset = struct.unpack_from("<H", message, names + at)[0] if at < size else 0
    if not offset:
        return None
    there: int = table + offset + struct.unpack_from("<I", message, table + offset)[0]
    return there
