"""A table of a run as a CSV or Parquet file for other programs: ledger, metrics or predictions."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from partwise.errors import InputError
from partwise.formatting import value_text
from partwise.runs.ledger import key_names, keys_beside
from partwise.runs.local_file import check_free, new_file
from partwise.runs.output_types import mixed_types
from partwise.runs.outputs import output_schemas
from partwise.runs.run import Run
from partwise.tables.local_times import UNITS_A_SECOND

What = Literal["ledger", "metrics", "predictions"]
SUFFIXES = (".csv", ".parquet")
_PARTS: dict[What, str] = {
    "ledger": "partitions",
    "metrics": "metrics",
    "predictions": "rows of predictions",
}


def write_table_file(run: Run, what: What | pa.Table, to: Path, *, overwrite: bool = False) -> int:
    """Write a table of a run to a file, and return how many rows it has.

    "ledger" has a row for each partition, as `Run.partitions`; "metrics" one for each value of a
    metric, with its key; "predictions" those of inference and map runs, which are read and written
    file by file, and twice: first for their types. A table that was made of the run is written as
    it is. The file is .csv or .parquet.

    Raises:
        InputError: The run has no such rows, the file is of no such kind, or it is there already.
        ColumnError: Columns of predictions are of types that do not go together.
        IntegrityError: Something in the run differs from its checksum.
    """
    if to.suffix.lower() not in SUFFIXES:
        raise InputError(f"{to} ends in {to.suffix!r}: name a file that ends in .csv or .parquet.")
    check_free(to, overwrite=overwrite)
    made = what if isinstance(what, pa.Table) else None
    parts, schema = _parts_of(run, what) if made is None else (lambda: iter([made]), made.schema)
    is_csv = to.suffix.lower() == ".csv"
    if is_csv:
        schema = pa.schema([(field.name, _csv_type(field.type)) for field in schema])
    n_rows = 0
    with new_file(to, overwrite=overwrite) as temporary, _writer(temporary, schema, is_csv) as file:
        for part in parts():
            try:
                columns = [_column(part, field, is_csv) for field in schema]
            except pa.ArrowInvalid as error:
                # The types go together, and a value does not: 2**53 + 1 among doubles.
                raise mixed_types(run.run_id, run.ledger, output_schemas(run), error) from error
            file.write_table(pa.table(columns, schema=schema))
            n_rows += part.num_rows
    return n_rows


def _parts_of(run: Run, what: What) -> tuple[Callable[[], Iterator[pa.Table]], pa.Schema]:
    """Return what gives the tables, and the schema that holds all of them."""
    if what == "predictions":
        schemas: list[pa.Schema] = []
        for part in run.iter_predictions():
            if part.schema not in schemas:
                schemas.append(part.schema)
        if not schemas:
            raise _nothing(run, what)
        try:
            schema = pa.unify_schemas(schemas, promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise mixed_types(run.run_id, run.ledger, output_schemas(run), error) from error
        return run.iter_predictions, schema
    table = run.partitions if what == "ledger" else keyed_metrics(run)
    if not table.num_rows:
        raise _nothing(run, what)
    return lambda: iter([table]), table.schema


def _nothing(run: Run, what: What) -> InputError:
    return InputError(
        f"The run {run.run_id!r} ({run.kind}, {run.status.value}) has no {_PARTS[what]}: nothing "
        "was written."
    )


def keyed_metrics(run: Run) -> pa.Table:
    """Return the metrics of a run with one row for each value: key columns, metric, value."""
    metrics = run.metrics
    places = pc.index_in(metrics["partition_id"], run.ledger["partition_id"].combine_chunks())
    taken = run.ledger.select(key_names(run.ledger.column_names)).take(places)
    columns = dict(zip(metrics.column_names, metrics.columns, strict=True))
    return pa.table(keys_beside(taken, columns) | columns)


def _writer(path: Path, schema: pa.Schema, is_csv: bool) -> Any:
    return pc_csv.CSVWriter(path, schema) if is_csv else pq.ParquetWriter(path, schema)


def _column(part: pa.Table, field: pa.Field, is_csv: bool) -> pa.ChunkedArray | pa.Array:
    if field.name not in part.column_names:
        return pa.nulls(part.num_rows, field.type)
    column = part[field.name]
    if not is_csv or column.type == field.type:
        return column.cast(field.type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_duration(column.type):
        # Not by Python, whose lengths of time have no nanoseconds and end after 2.7 million years.
        counts = column.cast(pa.int64()).cast(pa.float64(), safe=False)
        return pc.divide(counts, float(UNITS_A_SECOND[column.type.unit]))
    if _is_written_as_text(column.type):
        return pa.array([_text(each) for each in column.to_pylist()], pa.string())
    return column.cast(field.type)


def _csv_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of another one can stand in a CSV file."""
    if pa.types.is_dictionary(kind):
        return _csv_type(kind.value_type)
    if pa.types.is_duration(kind):
        return pa.float64()
    if pa.types.is_float16(kind):
        return pa.float32()
    return pa.string() if _is_written_as_text(kind) else kind


def _is_written_as_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def _text(value: Any) -> str | None:
    """Return a value that a CSV file has no form for: bytes as hex digits, most others as JSON."""
    if value is None:
        return None
    if isinstance(value, bytes | str | UUID):
        return value_text(value)
    text = json.dumps(value, default=value_text)
    if "NaN" not in text and "Infinity" not in text:
        return text
    # JSON has no NaN, which becomes null, and no infinity, which becomes text.
    infinite = {"Infinity": "inf", "-Infinity": "-inf"}
    return json.dumps(json.loads(text, parse_constant=infinite.get))
