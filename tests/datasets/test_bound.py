"""Parts of datasets, and Parquet files, of which a bit is flipped: an error, never fewer rows."""

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.datasets import rows
from partwise.datasets.dataset import Dataset
from partwise.datasets.registration import register_dataset
from partwise.errors import (
    IntegrityError,
    PartwiseError,
    RunFormatError,
    SignatureError,
    StoreError,
)
from partwise.sources.opening import open_source
from partwise.store.signing import KEYS_VARIABLE
from partwise.store.store import Store

TABLE = pa.table({"key": ["a", "b", "c"] * 20, "value": [float(i) for i in range(60)]})
OLD = f"2025:{'a1' * 32}"


def rows_of(store: Path) -> list[dict[str, object]]:
    batches = Dataset.open("sales", store=store).source().batches()
    return [row for batch in batches for row in batch.to_pylist()]


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_no_flipped_bit_of_a_part_loses_or_changes_a_row(tmp_path: Path) -> None:
    register_dataset("sales", TABLE, store=tmp_path)
    [part] = (tmp_path / "datasets/sales/parts").glob("*/*.parquet")
    content = part.read_bytes()
    assert rows_of(tmp_path) == TABLE.to_pylist()
    for bit in random.Random(7).sample(range(8 * len(content)), 150):
        part.write_bytes(flipped(content, bit))
        with pytest.raises(IntegrityError, match=r"Part 1 of 1 of dataset://sales@1 .* restore"):
            rows_of(tmp_path)
    part.write_bytes(content)
    assert rows_of(tmp_path) == TABLE.to_pylist()


@pytest.mark.parametrize(
    "error",
    [PermissionError(13, "Access Denied"), TimeoutError("no answer"), ConnectionError("gone")],
)
def test_a_part_that_its_store_does_not_give_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def read(*_: object) -> None:
        raise error

    register_dataset("sales", TABLE, store=tmp_path)
    monkeypatch.setattr(rows, "read_batches", read)
    with pytest.raises(StoreError, match=r"^Part 1 of 1 of dataset://sales@1 .* cannot be read: "):
        rows_of(tmp_path)


def test_no_flipped_bit_of_a_footer_in_a_bucket_is_believed(s3_store: Store) -> None:
    """There a part is not compared as a whole: its footer says which pages are fetched."""
    dataset = register_dataset("sales", TABLE, store=s3_store)
    [part] = dataset.manifest.parts
    path = f"datasets/sales/{part.path}"
    content = s3_store.read(path)
    begin = 8 * (len(content) - part.footer_bytes)
    for bit in random.Random(7).sample(range(begin, 8 * len(content)), 10):
        s3_store.write(path, flipped(content, bit))
        source = Dataset.open("sales", store=s3_store).source()
        with pytest.raises(IntegrityError, match=r"Part 1 of 1 .* was changed after it was regis"):
            list(source.batches())


def test_no_flipped_bit_of_a_manifest_is_read(tmp_path: Path) -> None:
    register_dataset("sales", TABLE, store=tmp_path)
    manifest = tmp_path / "datasets/sales/manifests/0001.json"
    content = manifest.read_bytes()
    end = content.index(b'"signature"')
    for bit in random.Random(7).sample(range(8 * end), 300):
        manifest.write_bytes(flipped(content, bit))
        with pytest.raises(RunFormatError, match=r"manifests/0001\.json"):
            Dataset.open("sales", store=tmp_path)


def test_a_manifest_of_another_version_or_dataset_is_refused_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_dataset("unsigned", TABLE, store=tmp_path)
    monkeypatch.setenv(KEYS_VARIABLE, OLD)
    register_dataset("sales", TABLE, store=tmp_path)
    register_dataset("sales", TABLE.slice(1), store=tmp_path)
    monkeypatch.setenv("PARTWISE_STATE", str(tmp_path / "of another"))
    with pytest.raises(SignatureError, match="is signed with the key of one user on one machine"):
        Dataset.open("unsigned", store=tmp_path)
    first, second = (tmp_path / f"datasets/sales/manifests/000{i}.json" for i in (1, 2))
    second.write_bytes(first.read_bytes())
    with pytest.raises(SignatureError, match="belongs elsewhere"):
        Dataset.open("sales", store=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "row_groups", "step"),
    [
        (["key", "value"], 1, 9),
        # Where there is another column, Arrow itself finds one that is too short.
        (["key"], 1, 2),
        (["key"], 2, 4),
    ],
    ids=["two columns", "one column, read at once", "one column, read in batches"],
)
def test_a_flipped_bit_of_a_parquet_source_loses_no_row(
    tmp_path: Path, columns: list[str], row_groups: int, step: int
) -> None:
    """Its footer has no checksum, so values may change there; rows are never fewer."""
    path = tmp_path / "rows.parquet"
    size = TABLE.num_rows // row_groups
    pq.write_table(TABLE.select(columns), path, row_group_size=size, write_page_checksum=True)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    seen: Counter[str] = Counter()
    for bit in range(8 * 4, 8 * footer, step):
        path.write_bytes(flipped(content, bit))
        try:
            batches = list(open_source(str(path)).batches())
        except PartwiseError as error:
            seen["refused" if "rows.parquet" in str(error) else "unnamed"] += 1
            continue
        rows = sum(batch.num_rows for batch in batches)
        assert rows == TABLE.num_rows, bit
        seen["rows"] += 1
    assert seen["refused"] > seen.total() / 2
    assert not seen["unnamed"]
