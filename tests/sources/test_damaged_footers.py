"""Parquet files with damaged footers: each is read as it is, or refused by its name."""

import datetime
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.errors import PartwiseError
from partwise.sources.opening import open_source
from tests.thoroughness import quick_and_slow

ROWS = 60
FLAT = pa.table(
    {
        "key": [f"k{row // 20}" for row in range(ROWS)],
        "value": [row / 7 for row in range(ROWS)],
        "number": pa.array(range(ROWS), pa.int32()),
        "day": [datetime.date(2026, 1, 1)] * ROWS,
        "flag": [row % 2 == 0 for row in range(ROWS)],
    }
)
NESTED = pa.table(
    {
        "key": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        "list": [[row, row + 1] for row in range(ROWS)],
        "struct": [{"number": row, "text": str(row)} for row in range(ROWS)],
    }
)
TABLES: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "flat": (FLAT, {"row_group_size": 20}),
    "nested": (NESTED, {"compression": "zstd", "write_page_index": True}),
}


def try_damages(folder: Path, name: str, seed: int, count: int) -> tuple[int, int]:
    """Turn one bit of the footer after the other, and read all rows of one key.

    Returns:
        How many files were refused by their name, and how many read.
    """
    table, options = TABLES[name]
    path = folder / f"{name}.parquet"
    pq.write_table(table, path, **options)
    whole, chance, refused = path.read_bytes(), random.Random(seed), 0
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for number in range(count):
        content = bytearray(whole)
        content[chance.randrange(start, len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        try:
            # A filter has another part of Arrow look at the statistics.
            rows = open_source(str(path), filter=[("key", "!=", "z")] if number % 2 else None)
            for fragment in rows.fragments(["key"]):
                for _batch in fragment.batches():
                    pass
        except PartwiseError as error:
            if path.name not in str(error):
                raise
            refused += 1
    return refused, count - refused


@pytest.mark.parametrize("count", quick_and_slow({60}, [60, 250]))
def test_no_bit_of_a_footer_ends_the_process(tmp_path, count) -> None:
    # In a process of its own, which pyarrow aborts where a look at the footer is not guarded: one
    # of 80 bits does so.
    calls = [
        f"print(*try_damages(Path({str(tmp_path)!r}), {name!r}, 7, {count}))" for name in TABLES
    ]
    code = f"from pathlib import Path; from {__name__} import try_damages; {'; '.join(calls)}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        refused, read = map(int, line.split())
        assert min(refused, read) > count / 5
