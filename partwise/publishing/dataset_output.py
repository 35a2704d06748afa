"""The rows that a run produced, as a version of a dataset: once, however often it is asked for."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from partwise.datasets.manifest import NOUN
from partwise.datasets.registration import Draft, Registration, commit, plain_schema
from partwise.errors import InputError
from partwise.runs.documents import RunOrigin
from partwise.runs.outputs import has_rows, read_schemas
from partwise.runs.run import Run
from partwise.sources.references import DATASET_SCHEME
from partwise.store.versions import check_name, parse_reference
from partwise.tables.schemas import cast_batch, common_schema


@dataclass(frozen=True, slots=True)
class DatasetOutput:
    """A dataset of which the rows of a run are to be a new version.

    Args:
        name: Its name.

    Raises:
        InputError: It is not a safe name.
    """

    name: str

    def __post_init__(self) -> None:
        check_name(self.name, NOUN)

    def __str__(self) -> str:
        return f"{DATASET_SCHEME}{self.name}"

    @classmethod
    def of(cls, reference: str) -> "DatasetOutput":
        """Make one of dataset://NAME.

        Raises:
            InputError: The reference names a version, or is none.
        """
        name, version = parse_reference(reference, NOUN)
        if version is not None:
            raise InputError(
                f"The output {reference!r} names a version, and versions never change: give "
                f"{DATASET_SCHEME}{name}, of which the rows become the next one."
            )
        return cls(name)


def register_output(name: str, run: Run) -> Registration:
    """Copy the rows that an inference or map run produced to a dataset in the run's store.

    Each partition's rows are there once: they come from the run's committed ledger, and the version
    remembers which outcome of the run it holds. A second call, after a crash or because a flow is
    repeated, finds that version. A resume that changed the outcome makes another.
    """
    run = run.refresh()
    end = run.shown or run.summary
    if end is None:
        raise InputError(
            f"The run {run.run_id!r} has not ended ({run.status.value}): its rows can be "
            "registered when it has."
        )
    paths = sorted(run.ledger["rows_file"].drop_null().unique().to_pylist())
    if not has_rows(run):
        raise InputError(f"The run {run.run_id!r} ({run.kind}) has no rows to register.")
    schema = plain_schema(common_schema(read_schemas(run, paths), "union"))
    origin = RunOrigin(
        run_id=run.run_id, generation=end.generation, ledger_sha256=end.ledger_sha256
    )
    draft = Draft(
        store=run.store,
        name=name,
        schema=schema,
        batches=lambda: _batches(run, schema),
        excluded=(),
        label=(),
        description=f"What the run {run.run_id} produced.",
        source={"run_id": run.run_id, "generation": end.generation},
        source_fingerprint=None,
        origin=origin,
    )
    return commit(draft)


def _batches(run: Run, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    absent = dict.fromkeys(schema.names)
    for rows in run.iter_predictions():
        for batch in rows.to_batches():
            yield cast_batch(batch, schema, absent, f"the run {run.run_id!r}")
