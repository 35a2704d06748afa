"""Keys that no file name could bear, and keys of every class, find what is theirs."""

import datetime as dt
import math
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import KeyClassError, PartitionNotFoundError
from partwise.flows import run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.runs.run import Run

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"
TEXTS = [
    "", " ", ".", "..", "../../etc/passwd", "/", "a/b", "a\\b", "a\nb", "a\x00b", "con", "CON",
    "nul.txt", "x" * 300, "x" * 301, COMPOSED, DECOMPOSED, "\u202egnp", "\U0001f600", "1", "true",
    "null", "None", "{}", "%2e%2e", "a b", "a+b", "A", "a", "-", "~", "*", "?", "'; drop table --",
]  # fmt: skip

ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))
MOMENT = dt.datetime(2026, 11, 21, 3, 25, 0, 123456, tzinfo=ZONE)
CLASSES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "float": (pa.float32(), [0.5, -0.0, 0.0, math.inf, None]),
    "decimal": (pa.decimal128(10, 3), [Decimal("1.500"), Decimal("-0.001"), None]),
    "unsigned": (pa.uint64(), [2**64 - 1, 0]),
    "signed": (pa.int64(), [-(2**63), -1, 1]),
    "moment": (pa.timestamp("ns", "Asia/Kolkata"), [MOMENT, None]),
    "bytes": (pa.binary(), [b"\x00\xff", b""]),
    "boolean": (pa.bool_(), [True, False, None]),
    "time": (pa.time32("ms"), [dt.time(3, 25)]),
    "duration": (pa.duration("s"), [dt.timedelta(days=-1, seconds=5)]),
}


def train_and_infer(cluster, store: Path, table: pa.Table, by: Any) -> tuple[Run, Run]:
    def fit(data, context):
        print(f"the key is {context.key!r}")
        return {"key": context.key, "rows": sorted(data.to_numpy("row").tolist())}

    def predict(data, model, context):
        return {
            "row_seen": data.to_arrow()["row"],
            "is_own": [model["key"] == context.key] * len(data),
        }

    options = {"store": store, "serde": PickleSerde(), "null_keys": "keep", "cluster": cluster}
    trained = train_models(
        table, by, fit, run_id="odd", execution=ExecutionOptions(n_shards=2), **options
    )
    inferred = run_inference(table, by, "odd", predict, **options)
    return trained, inferred


@pytest.fixture(scope="module")
def texts(cluster, tmp_path_factory) -> tuple[Run, Run]:
    rows = [*TEXTS, *TEXTS]
    table = pa.table({"key": rows, "row": range(len(rows))})
    return train_and_infer(cluster, tmp_path_factory.mktemp("odd"), table, "key")


def test_every_text_is_a_partition_of_its_own(texts) -> None:
    trained, inferred = texts
    assert trained.counts == inferred.counts == {"DONE": len(TEXTS)}
    assert sorted(trained.partitions["key"].to_pylist()) == sorted(TEXTS)
    for place, text in enumerate(TEXTS):
        assert trained.model(text, PickleSerde()) == {
            "key": text,
            "rows": [place, place + len(TEXTS)],
        }
        assert repr(text) in trained.logs(text)


def test_their_predictions_are_their_own(texts) -> None:
    rows = texts[1].predictions().to_pylist()
    assert len(rows) == 2 * len(TEXTS)
    assert all(row["is_own"] and TEXTS[row["row_seen"] % len(TEXTS)] == row["key"] for row in rows)


def test_their_files_have_plain_names(texts) -> None:
    run = texts[0]
    names = run.partitions["partition_id"].to_pylist()
    assert len({name.lower() for name in names}) == len(TEXTS)
    assert all(name.isascii() and len(name) < 80 for name in names)
    for bundle in Path(run.path, "bundles").iterdir():
        with zipfile.ZipFile(bundle) as archive:
            assert archive.testzip() is None
            for name in archive.namelist():
                assert name.count("/") == 1
                assert name.partition("/")[0] in names


def test_keys_of_other_classes_are_not_taken_for_texts(texts) -> None:
    run = texts[0]
    for key in (1, True, None, 1.0, b"1"):
        with pytest.raises((KeyClassError, PartitionNotFoundError)):
            run.model(key, PickleSerde())


def test_a_key_of_every_class(cluster, tmp_path) -> None:
    size = 30
    columns = {
        name: pa.array([values[i % len(values)] for i in range(size)], data_type)
        for name, (data_type, values) in CLASSES.items()
    }
    table = pa.table({**columns, "row": range(size)})
    trained, inferred = train_and_infer(cluster, tmp_path, table, list(CLASSES))
    keys = {
        # -0.0 and 0.0 are one key.
        tuple(0.0 if value == 0 and isinstance(value, float) else value for value in row)
        for row in zip(*(column.to_pylist() for column in columns.values()), strict=True)
    }
    assert trained.counts == {"DONE": len(keys)}
    assert inferred.counts == {"DONE": len(keys)}
    assert pc.all(inferred.predictions()["is_own"]).as_py()
    found = []
    for key in keys:
        model = trained.model(key, PickleSerde())
        assert model["key"] == key
        found += model["rows"]
    assert sorted(found) == list(range(size))
