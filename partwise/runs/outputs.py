"""The files of rows that inference and map functions returned: without doubles, for any reader."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.errors import IntegrityError
from partwise.runs.contents import (
    READ_THREADS,
    objects_below,
    output_places,
    output_rows,
    read_output,
    refuse_removed,
)
from partwise.runs.documents import run_path, sha256_of
from partwise.runs.ledger import write_table
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.categories import without_orders
from partwise.tables.dictionaries import without_views

_END_BYTES = 64 << 10
"""Read at first of a file, where its metadata stands."""


def has_rows(run: Run) -> bool:
    """Whether any partition of a run returned rows."""
    return bool(pc.any(pc.greater(run.ledger["rows_count"], 0)).as_py())


def read_schemas(run: Run, paths: Sequence[str]) -> list[tuple[pa.Schema, str]]:
    """Return the schema of each file of rows, and words that name it; only its end is read."""
    with ThreadPoolExecutor(READ_THREADS) as threads:
        return list(threads.map(lambda name: (_read_schema(run, name), f"file {name!r}"), paths))


def output_schemas(run: Run) -> dict[str, pa.Schema]:
    """Return the schema of each file of rows to which the ledger of a run refers."""
    names = sorted(set(run.ledger["rows_file"].drop_null().to_pylist()))
    schemas = read_schemas(run, names)
    return {name: schema for name, (schema, _) in zip(names, schemas, strict=True)}


def _read_schema(run: Run, name: str) -> pa.Schema:
    for path in output_places(run.run_id, name):
        try:
            size = run.store.size(path)
            tail = run.store.read_range(path, max(0, size - _END_BYTES), min(size, _END_BYTES))
            # A Parquet file ends in the length of its metadata, four bytes, and "PAR1":
            # https://parquet.apache.org/docs/file-format/
            needed = int.from_bytes(tail[-8:-4], "little") + 8
            if len(tail) < needed <= size:
                tail = run.store.read_range(path, size - needed, needed)
            schema = pq.read_schema(pa.BufferReader(tail)).remove_metadata()
            return without_orders(without_views(schema.empty_table())).schema
        except FileNotFoundError:
            continue
        except (pa.ArrowException, OSError) as error:
            raise IntegrityError(_gone(run.run_id, name)) from error
    raise IntegrityError(_gone(run.run_id, name))


def _gone(run_id: str, name: str) -> str:
    return f"{name} of the run {run_id!r} is gone or damaged; resume the run to make it again."


def rewrite_partial_files(
    store: Store, run_id: str, ledger: pa.Table, rename: Callable[[str], str]
) -> pa.Table:
    """Write again each output file that holds more than the rows of a ledger.

    A file can hold rows of partitions that another execution of the shard, or a later generation,
    did again. `rename` gives the new name of an old file, both relative to the run. Returned is the
    ledger, with the places of the output rows as they are now.
    """
    for name in sorted(set(ledger["rows_file"].drop_null().to_pylist())):
        chosen = pc.equal(ledger["rows_file"], name).fill_null(False)
        offsets = ledger["rows_offset"].filter(chosen).to_numpy()
        counts = ledger["rows_count"].filter(chosen).to_numpy()
        if int(counts.sum()) == ledger["rows_in_file"].filter(chosen)[0].as_py():
            continue
        try:
            content = read_output(store, run_id, name)
        except FileNotFoundError as error:
            newest = pc.max(ledger["generation"].filter(chosen)).as_py()
            refuse_removed(store, run_id, newest)
            raise IntegrityError(_gone(run_id, name)) from error
        first = ledger.filter(chosen).slice(0, 1).select(["rows_sha256", "rows_in_file"])
        sha256, in_file = (column[0].as_py() for column in first.columns)
        rows = output_rows(content, f"{run_id}/{name}", sha256, in_file)
        spans = [np.arange(o, o + c) for o, c in zip(offsets, counts, strict=True)]
        taken = rows.take(pa.array(np.concatenate(spans)))
        content = write_table(taken)
        store.create(run_path(run_id, rename(name)), content)
        moved = {
            "rows_file": pa.repeat(rename(name), len(offsets)),
            "rows_offset": pa.array(np.cumsum(counts) - counts, pa.int64()),
            "rows_in_file": pa.repeat(pa.scalar(taken.num_rows, pa.int64()), len(offsets)),
            "rows_sha256": pa.repeat(sha256_of(content), len(offsets)),
        }
        mask = chosen.combine_chunks()
        for column, values in moved.items():
            place = ledger.schema.get_field_index(column)
            replaced = pc.replace_with_mask(ledger[column].combine_chunks(), mask, values)
            ledger = ledger.set_column(place, column, replaced)
    return ledger


def unreferenced_outputs(store: Store, run_id: str, ledger: pa.Table, folder: str) -> list[str]:
    """Return the output files to which no row of the ledger refers, relative to the run."""
    referenced = set(ledger["rows_file"].drop_null().unique().to_pylist())
    root = run_path(run_id) + "/"
    names = (path.removeprefix(root) for path in objects_below(store, run_id, f"{folder}/"))
    return [name for name in names if name not in referenced]
