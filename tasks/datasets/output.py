"""The rows that a run produced, as a version of a dataset: once, however often it is asked for."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.tasks.datasets.manifest import SCHEME, Origin, check_dataset_name, parse_reference
from partwise.tasks.datasets.registration import Draft, Registration, commit, plain_schema
from partwise.tasks.datasets.rows import stored_file
from partwise.tasks.errors import ColumnError, InputError, IntegrityError
from partwise.tasks.runs.committed import READ_THREADS
from partwise.tasks.runs.manifest import run_path
from partwise.tasks.runs.run import Run


@dataclass(frozen=True, slots=True)
class DatasetOutput:
    """A dataset of which the rows of a run are to be a new version.

    Args:
        name: Its name.

    Raises:
        InputError: It is no safe name.
    """

    name: str

    def __post_init__(self) -> None:
        check_dataset_name(self.name)

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}"

    @classmethod
    def of(cls, reference: str) -> "DatasetOutput":
        """Make one of dataset://NAME.

        Raises:
            InputError: The reference names a version, or is none.
        """
        name, version = parse_reference(reference)
        if version is not None:
            raise InputError(
                f"The output {reference!r} names a version, and versions never change: give "
                f"{SCHEME}{name}, of which the rows become the next one."
            )
        return cls(name)


def register_output(name: str, run: Run, *, description: str = "") -> Registration:
    """Copy the rows that an inference or map run produced to a dataset in the run's store.

    Each partition's rows are there once: they come from the run's committed ledger, and the version
    remembers which outcome of the run it holds. A second call, after a crash or because a flow is
    repeated, finds that version. A resume that changed the outcome makes another.

    Args:
        name: The dataset's name.
        run: A run that has ended.
        description: A sentence for people. Empty: one that names the run.

    Raises:
        InputError: The name is not safe, the run has not ended or has no rows to register.
        ColumnError: Partitions returned columns of types that do not go together.
        IntegrityError: Rows of the run are gone or damaged.
        StoreError: The store cannot be written.

    Example:
        >>> run = run_inference("sales.parquet", "store", "first", run_id="forecast")
        >>> register_output("forecasts", run).dataset.version  # doctest: +SKIP
        1
    """
    check_dataset_name(name)
    run = run.refresh()
    if run.summary is None:
        raise InputError(
            f"The run {run.run_id!r} has not ended ({run.status.value}): its rows can be "
            "registered when it has."
        )
    paths = sorted(run.ledger["rows_file"].drop_null().unique().to_pylist())
    if not paths:
        raise InputError(f"The run {run.run_id!r} ({run.kind}) has no rows to register.")
    schema = _common_schema(run, paths)
    origin = Origin(
        run_id=run.run_id, generation=run.generation, ledger_sha256=run.summary.ledger_sha256
    )
    draft = Draft(
        store=run.store,
        name=name,
        schema=schema,
        batches=lambda: _batches(run, schema),
        excluded=(),
        label=(),
        description=description or f"What the run {run.run_id} produced.",
        source={"run_id": run.run_id, "generation": run.generation},
        source_fingerprint=None,
        origin=origin,
    )
    return commit(draft)


def _common_schema(run: Run, paths: list[str]) -> pa.Schema:
    """All columns of all files, of types to which all widen; only the files' ends are read."""
    with ThreadPoolExecutor(READ_THREADS) as threads:
        schemas = list(threads.map(lambda name: _read_schema(run, name), paths))
    try:
        return plain_schema(pa.unify_schemas(schemas, promote_options="permissive"))
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise ColumnError(
            f"Partitions of the run {run.run_id!r} returned columns of types that do not go "
            f"together ({error}): return one type for each."
        ) from error


def _read_schema(run: Run, name: str) -> pa.Schema:
    path = run_path(run.run_id, name)
    try:
        file = stored_file(run.store, path, run.store.size(path))
        with pq.ParquetFile(file.open()) as parquet:
            return parquet.schema_arrow.remove_metadata()
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise IntegrityError(
            f"{name} of the run {run.run_id!r} is gone or damaged; resume the run to make it again."
        ) from error


def _batches(run: Run, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for rows in run.iter_predictions():
        missing = [field for field in schema if field.name not in rows.column_names]
        for field in missing:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        yield from _widened(rows.select(schema.names), schema).to_batches()


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        pc.cast(column, field.type) if column.type != field.type else column
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
