"""The rows of a run, appended to a table of a database: each partition exactly once.

Rows carry `run_id` and `partition_id`. Beside the table stands `partwise_published`, with a row for
each partition that is in it: which content, of which generation of the run; and one for the run:
which generation publishes it, so that no older one does any more. Rows and mark are
written in one transaction, a file of rows at a time. Whoever publishes again finds by the marks
what is there; a partition whose content is another is replaced, one that is no longer done is taken
out. Publishers of one run wait for one another; what a newer generation wrote stays.

A run is known by its ID: runs of one ID from two stores take each other's rows for their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import InputError, IntegrityError
from partwise.formatting import counted
from partwise.publishing.sql_columns import OWN_COLUMNS, refuse_columns, refuse_unfit
from partwise.publishing.sql_target import Target
from partwise.runs.contents import output_rows, read_output
from partwise.runs.outputs import read_schemas
from partwise.runs.run import Run
from partwise.sources.sql.databases import Database, DatabaseKind, is_table_name, table_parts
from partwise.tables.row_hash import hash_rows, hash_schema, lay_out_batch
from partwise.tables.schemas import common_schema


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a database, for output; created where there is none.

    Args:
        name: Its name, such as `predictions`, `public.predictions` or `"Predictions"`.
        uri: `postgresql://user@host:5432/name`, or the path of an SQLite file.
        driver: "postgresql" or "sqlite", where the URI does not say.
        password: The password, where it does not stand in the URI.
        block: The saved block that this was made of, such as "table-block/prod".

    Raises:
        InputError: The name is none, or the database is of another kind.
    """

    name: str
    uri: str
    driver: DatabaseKind | None = None
    password: str | None = None
    block: str = ""

    def __post_init__(self) -> None:
        if not is_table_name(self.name):
            raise InputError(
                f"{self.name!r} is not the name of a table: put unusual characters in quotes."
            )
        if self.database.kind == "sqlite" and any(table_parts(self.name, "sqlite")[:2]):
            raise InputError(f"{self.name!r} names a schema, and SQLite has none: leave it out.")
        if (kind := self.database.kind) not in ("postgresql", "sqlite"):
            raise InputError(f"Rows are appended to PostgreSQL and SQLite only, not to {kind}.")

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.database.shown!r})"

    def __str__(self) -> str:
        return self.name

    @property
    def database(self) -> Database:
        """Where the table is."""
        return Database(uri=self.uri, driver=self.driver, password=self.password)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What became of the rows of a run."""

    table: str
    rows: int
    """Appended now."""
    partitions: int
    """Appended now, those that were replaced among them."""
    replaced: int
    removed: int
    """Partitions that were taken out, as they are no longer done."""
    unchanged: int
    """Partitions that were there already."""

    def __str__(self) -> str:
        of = counted(self.partitions, "partition")
        if not (self.partitions or self.removed or self.unchanged):
            return f"no rows to append to {self.table}"
        text = f"{counted(self.rows, 'row')} of {of} appended to {self.table}"
        counts = {
            "of them replaced": self.replaced,
            "taken out": self.removed,
            "there already": self.unchanged,
        }
        parts = [f"{count:,} {name}" for name, count in counts.items() if count]
        return f"{text} ({', '.join(parts)})" if parts else text


def check_table(table: Table, columns: Sequence[pa.Field]) -> None:
    """See before any work that a table can be written to, and has a place for some columns."""
    with Target.opened(table.database, table.name) as target:
        missing = target.missing_rights()
        if missing:
            raise InputError(
                f"The table {table.name} of {table.database.shown} cannot be written to: the role "
                f"lacks {', '.join(missing)}."
            )
        existing = target.find_schema()
    kind = table.database.kind
    if existing is not None:
        own = [pa.field(name, pa.string()) for name in OWN_COLUMNS]
        refuse_unfit(table.name, existing, own, kind)
    refuse_columns(table.name, existing, columns, kind)


def publish(run: Run, table: Table) -> Published:
    """Append the rows of a run's finished partitions to a table; those that are there stay.

    A file of rows is in memory at a time, as workers wrote them. Of a run without rows no table is
    made, as nothing says of which columns.

    Raises:
        OutputError: The database refuses, or goes away; what was committed is not written again.
        InputError: A column does not fit the table.
    """
    ledger = run.ledger.filter(pc.greater(run.ledger["rows_count"], 0))
    places = ["rows_file", "rows_offset", "rows_count", "rows_in_file", "rows_sha256"]
    current = ledger.select(["partition_id", *places])
    names = current["rows_file"].to_pylist()
    rows = partitions = replaced = removed = 0
    with Target.opened(table.database, table.name) as target:
        if names or target.find_schema() is not None:
            target.prepare(
                run.run_id,
                run.generation,
                lambda: common_schema(read_schemas(run, sorted(set(names))), "union"),
            )
            for file, spans in files(run, current):
                done = target.append(run.run_id, run.generation, file, spans, contents(file, spans))
                rows += done[0]
                partitions += done[1]
                replaced += done[2]
            kept = set(current["partition_id"].to_pylist())
            removed = target.remove_others(run.run_id, run.generation, kept)
    return Published(
        table=table.name,
        rows=rows,
        partitions=partitions,
        replaced=replaced,
        removed=removed,
        unchanged=current.num_rows - partitions,
    )


def files(run: Run, current: pa.Table) -> Iterator[tuple[pa.Table, list[tuple[str, int, int]]]]:
    """Read each file of rows, and say which partition stands where in it: from, and up to."""
    for name in sorted(set(current["rows_file"].to_pylist())):
        try:
            content = read_output(run.store, run.run_id, name)
        except FileNotFoundError as error:
            raise IntegrityError(
                f"{name} of the run {run.run_id!r} is gone; resume the run to make it again."
            ) from error
        there = current.filter(pc.equal(current["rows_file"], name))
        expected = there["rows_sha256"][0].as_py(), there["rows_in_file"][0].as_py()
        rows = output_rows(content, f"{run.run_id}/{name}", *expected).replace_schema_metadata(None)
        names = there["partition_id"].to_pylist()
        starts, counts = there["rows_offset"].to_pylist(), there["rows_count"].to_pylist()
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        yield rows, list(zip(names, starts, ends, strict=True))


def contents(rows: pa.Table, spans: Sequence[tuple[str, int, int]]) -> dict[str, str]:
    """Return a fingerprint of the rows of each partition."""
    empty, digests = hash_schema(rows.schema), {}
    laid_out = None
    whole = rows.combine_chunks().to_batches()
    for name, start, end in spans:
        digest = empty.copy()
        if len(whole) == 1:
            laid_out = laid_out or lay_out_batch(whole[0])
            hash_rows(digest, [(laid_out, start, end)])
        else:
            # More text than fits into one batch.
            for part in rows.slice(start, end - start).to_batches():
                hash_rows(digest, [(lay_out_batch(part), 0, part.num_rows)])
        digests[name] = str(digest.hexdigest())
    return digests
