"""Values that another release has to find again: who changes one makes old runs unreadable."""

import datetime as dt
import hashlib
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.datasets.fingerprint import ContentFingerprint
from partwise.fingerprints.canonical import canonical_bytes
from partwise.fingerprints.functions import code_fingerprint
from partwise.tables.keys.partition_keys import (
    hash_keys,
    key_bytes,
    key_columns,
    normalize_keys,
    partition_id,
    partition_seed,
)
from partwise.tables.row_hash import hash_rows, hash_schema, lay_out_batch
from partwise.trainers import LightGBMTrainer

MOMENT = dt.datetime(2026, 11, 21, 3, 25, 0, 123456)  # noqa: DTZ001 (a key without a zone)
COLUMNS: dict[str, pa.Array] = {
    "integer": pa.array([0, 1, -1, 2**62, None], pa.int64()),
    "small integer": pa.array([0, 1, -1, 127, None], pa.int8()),
    "unsigned": pa.array([0, 1, 2**64 - 1, None], pa.uint64()),
    "text": pa.array(["", "a", "store 7", "Zürich", "\U0001f469\u200d\U0001f680", "x" * 600, None]),
    "category": pa.array(["b", "a", None, "b"]).dictionary_encode(),
    "float": pa.array([0.0, -0.0, 0.5, float("nan"), float("inf"), None], from_pandas=False),
    "boolean": pa.array([True, False, None]),
    "time stamp": pa.array([MOMENT, None], pa.timestamp("us")),
    "nanoseconds": pa.array([1, 10**18 + 1, None], pa.timestamp("ns")),
    "zoned": pa.array([MOMENT, None], pa.timestamp("ms", "Europe/Zurich")),
    "date": pa.array([dt.date(1, 1, 1), dt.date(2026, 11, 21), None]),
    "time": pa.array([dt.time(3, 25, 0, 1), None]),
    "duration": pa.array([dt.timedelta(days=-1, microseconds=5), None]),
    "decimal": pa.array([Decimal("1.50"), Decimal("-0.01"), None], pa.decimal128(9, 2)),
    "bytes": pa.array([b"", b"\x00\xff", None], pa.binary()),
}
NESTED: dict[str, pa.Array] = {
    "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
    "null": pa.nulls(3),
}
PLAIN: dict[str, Any] = {
    "scalars": [None, True, 7, -(2**70), 0.1, "text", b"bytes", Decimal("1.50")],
    "times": [MOMENT, MOMENT.date(), MOMENT.time(), dt.timedelta(1, 2, 3)],
    "containers": {"b": (1, 2), "a": [1, 2], "set": frozenset({3, 1, 2})},
    "numpy": np.arange(6, dtype=np.float32).reshape(2, 3),
    "trainer": LightGBMTrainer(label="sales", features=["x"], params={"num_leaves": 7}),
}


def scaled(data: Any, context: Any) -> Any:
    """Stand for a user's function: a constant, a loop, a comprehension and a default."""
    total = 0.0
    for value in data:
        total += FACTOR * value
    return [value / total for value in data]


FACTOR = 2.5


def python() -> str:
    """Name the Python whose instructions a code fingerprint covers."""
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def of_keys(array: pa.Array) -> list[dict[str, Any]]:
    """Compute what is derived from each key of a column."""
    table = pa.table({"key": array})
    columns = key_columns(table.schema, "key")
    normalized = normalize_keys(table, columns)
    found = []
    for key, hashed in zip(normalized["key"].to_pylist(), hash_keys(normalized), strict=True):
        encoded = key_bytes(key, columns)
        found.append(
            {
                "hash": f"{int(hashed):016x}",
                "bytes": encoded.hex()
                if len(encoded) < 100
                else hashlib.sha256(encoded).hexdigest(),
                "partition_id": partition_id(key, columns),
                "seeds": [partition_seed(seed, encoded) for seed in (0, 1, 2**40)],
            }
        )
    return found


def of_rows(array: pa.Array) -> dict[str, str]:
    """Compute the fingerprints of rows of one column, as a partition and as a dataset."""
    batch = pa.record_batch({"x": array})
    partition = hash_schema(batch.schema)
    hash_rows(partition, [(lay_out_batch(batch), 0, batch.num_rows)])
    dataset = ContentFingerprint(batch.schema)
    dataset.add(batch)
    return {"partition": partition.hexdigest(), "dataset": dataset.hexdigest()}


def of_pairs() -> list[dict[str, Any]]:
    """Compute what is derived from keys of two columns."""
    table = pa.table({"store": ["a_b", "a"], "day": pa.array([1, 2], pa.int32())})
    columns = key_columns(table.schema, ["store", "day"])
    hashes = hash_keys(normalize_keys(table, columns))
    return [
        {
            "hash": f"{int(hashed):016x}",
            "partition_id": partition_id((row["store"], row["day"]), columns),
        }
        for row, hashed in zip(table.to_pylist(), hashes, strict=True)
    ]


def values() -> dict[str, Any]:
    """Compute all values with the code of today."""
    return {
        "keys": {name: of_keys(array) for name, array in COLUMNS.items()},
        "pairs": of_pairs(),
        "rows": {name: of_rows(array) for name, array in {**COLUMNS, **NESTED}.items()},
        "plain": {
            name: hashlib.sha256(canonical_bytes(value)).hexdigest()
            for name, value in PLAIN.items()
        },
        "version": code_fingerprint(scaled, version="7").digest,
    }


def code() -> str | None:
    """Compute the fingerprint of a function's code, which each minor Python has its own of."""
    return code_fingerprint(scaled).digest
