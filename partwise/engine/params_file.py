"""The file of one shard's per-partition parameters: each partition's, with their fingerprint.

A worker compares fingerprints without opening values, which only the child process unpickles. That
one imports this module, so it knows nothing of how parameters are given.
"""

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_SCHEMA = pa.schema(
    [("partition_id", pa.string()), ("fingerprint", pa.string()), ("values", pa.large_binary())]
)


def write_params(
    path: str, partition_ids: Sequence[str], fingerprints: Sequence[str], pickled: Sequence[bytes]
) -> None:
    """Write the parameters of a shard's partitions: of each its ID, fingerprint, pickled values."""
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(partition_ids, pa.string()),
            pa.array(fingerprints, pa.string()),
            pa.array(pickled, pa.large_binary()),
        ],
        schema=_SCHEMA,
    )
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_batch(batch)


def _read(path: str, column: str) -> tuple[list[str], list[Any]]:
    table = pa.ipc.open_file(pa.memory_map(path)).read_all()
    return table.column("partition_id").to_pylist(), table.column(column).to_pylist()


def read_params(path: str) -> dict[str, dict[str, Any]]:
    """Read the parameters of a shard: by partition ID, then by name.

    The values are unpickled: call this only where the user's function runs.
    """
    ids, pickled = _read(path, "values")
    return {name: pickle.loads(data) for name, data in zip(ids, pickled, strict=True)}  # noqa: S301


def params_fingerprints(path: str) -> dict[str, str]:
    """Read the fingerprints of a shard's parameters, by partition ID; nothing is unpickled.

    Values without canonical bytes, such as functions, have a fingerprint that never recurs.
    """
    return dict(zip(*_read(path, "fingerprint"), strict=True))
