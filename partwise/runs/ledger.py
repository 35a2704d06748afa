"""The ledger: one row per partition, as Parquet.

On disk a key column is named `key.<name>`, so that it never meets a column of ours. The schema is
fixed and explicit: metrics are one map column, which readers see as columns of their own.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise.errors import NewerFormatError, RunFormatError
from partwise.formatting import shortened, size
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import StoredArtifact
from partwise.runs.own_checksums import check_own_checksum, write_sealed
from partwise.runs.stored_names import check_names
from partwise.store.signing import SigningKey
from partwise.tables.keys.one_table import one_table
from partwise.tables.rows_by_number import take_columns

FORMAT_VERSION = 2
KEY_PREFIX = "key."
METRIC_PREFIX = "metric."
DAMAGED_MODELS = "damaged_models"
"""The metric of how many models of a partition could not be read, where another one answered."""
FAILED_MODELS = "failed_models"
"""That of how many raised an error, where another one answered."""
RUNNING_SINCE = "running_since"
"""A column that only runs at work have, in memory."""

ARTIFACT = pa.struct(
    [
        pa.field("filename", pa.string()),
        pa.field("bundle", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("size_bytes", pa.int64()),
        pa.field("stored_bytes", pa.int64()),
        pa.field("compression", pa.string()),
        pa.field("sha256", pa.string()),
        pa.field("serde", pa.string()),
    ]
)
COLUMNS = pa.schema(
    [
        pa.field("partition_id", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("generation", pa.int32()),
        pa.field("status", pa.string()),
        pa.field("attempts", pa.int32()),
        pa.field("rows", pa.int64()),
        pa.field("seconds", pa.float64()),
        pa.field("peak_memory_bytes", pa.int64()),
        pa.field("exit_code", pa.int32()),
        pa.field("finished_at", pa.timestamp("us", tz="UTC")),
        pa.field("host", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("error_type", pa.string()),
        pa.field("error_message", pa.string()),
        pa.field("error_fingerprint", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("candidate", pa.string()),
        pa.field("metrics", pa.map_(pa.string(), pa.float64())),
        pa.field("trial", pa.string()),
        pa.field("artifacts", pa.list_(ARTIFACT)),
        pa.field("rows_file", pa.string()),
        pa.field("rows_offset", pa.int64()),
        pa.field("rows_count", pa.int64()),
        pa.field("rows_in_file", pa.int64()),
        pa.field("rows_sha256", pa.string()),
    ]
)
_NOT_SHOWN = (
    *("metrics", "trial", "artifacts"),
    *("rows_file", "rows_offset", "rows_count", "rows_in_file", "rows_sha256"),
)
_NEVER_NULL = ("status", "shard", "attempts", "artifacts")
LARGEST_LEDGER_BYTES = 8 << 30
"""Of a ledger in memory: about ten million partitions."""
MOST_METRIC_COLUMNS = 1_000
"""With more names of metrics, `Run.partitions` has one column with all metrics of a partition."""
_WORKED_ON = ("DONE", "SKIPPED", "FAILED")
_SAMPLE = 5  # partitions named per group of failures
_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """What the ledger says of one partition, without its key."""

    partition_id: str
    shard: int
    generation: int
    status: str
    attempts: int = 0
    rows: int | None
    """None where the partition was not looked at."""
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    """Highest sample of anonymous memory; None where it ran shorter than the sampling takes."""
    exit_code: int | None = None
    """Of a rank of a gang, as `subprocess` gives it; None of a partition, which has no process of
    its own."""
    finished_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    host: str | None = None
    """Who did the work: "<host name>/<name of the Dask worker>"."""
    reason: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_fingerprint: str | None = None
    fingerprint: str | None = None
    """Of the partition's rows and params."""
    candidate: str | None = None
    """Which of several candidates the model is of; None: there was but one."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    trial: str | None = None
    """Of a trial of a study, a `TrialRecord` as JSON; None of all else."""
    artifacts: tuple[StoredArtifact, ...] = ()
    rows_file: str | None = None
    """The file of output rows with this partition's, from `rows_offset`, `rows_count` many."""
    rows_offset: int = 0
    rows_count: int = 0
    rows_in_file: int = 0
    rows_sha256: str | None = None
    """Of that file; None: there is none, or format version 1 of the ledger."""


def segment_table(keys: pa.Table, rows: Sequence[LedgerRow]) -> pa.Table:
    """Return ledger rows as a table; `keys` are normalized, one row for each of `rows`."""
    columns = []
    of_artifact = [field.name for field in ARTIFACT]
    for column in COLUMNS:
        values: list[Any] = [getattr(row, column.name) for row in rows]
        if column.name == "metrics":
            values = [list(value.items()) for value in values]
        elif column.name == "artifacts":
            # Not asdict(), which copies each value, and takes ten times as long.
            values = [
                [{name: getattr(artifact, name) for name in of_artifact} for artifact in value]
                for value in values
            ]
        columns.append(pa.array(values, column.type))
    names = [f"{KEY_PREFIX}{name}" for name in keys.column_names]
    return pa.table([*keys.columns, *columns], names=[*names, *COLUMNS.names])


def write_table(table: pa.Table, purpose: str = "", key: SigningKey | None = None) -> bytes:
    """Return a table as the bytes of a Parquet file with our format version and its own checksum.

    `purpose` says which file it is, for its signature; `key` None: it gets none.
    """
    version = {b"partwise.format_version": b"%d" % FORMAT_VERSION}
    metadata = {**(table.schema.metadata or {}), **version}
    return write_sealed(table.replace_schema_metadata(metadata), purpose, key)


def check_size(content: bytes, where: str) -> None:
    """Refuse a file that would become far larger in memory than a ledger ever is."""
    try:
        about = pq.ParquetFile(pa.BufferReader(content)).metadata
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        # A column of equal values is next to nothing in the file, and has all rows in memory.
        claimed = max(
            sum(group.total_byte_size for group in groups),
            sum(group.num_rows for group in groups) * 8 * about.num_columns,
        )
    except (pa.ArrowException, OSError):
        return  # `read_table` says what is wrong with it.
    if claimed > LARGEST_LEDGER_BYTES:
        raise RunFormatError(
            f"{where} would take {size(claimed)} of memory, and a ledger may take "
            f"{size(LARGEST_LEDGER_BYTES)}; it was changed or damaged."
        )


def read_table(content: bytes, where: str, *, as_ledger: bool = False) -> pa.Table:
    """Return the table of a Parquet file that `write_table` made.

    Raises:
        NewerFormatError: A newer release wrote it.
        RunFormatError: It is damaged; or, with `as_ledger`, larger than any ledger.
    """
    # First, so that no footer is parsed that was damaged.
    has_checksum = check_own_checksum(content, where)
    if as_ledger:
        check_size(content, where)
    try:
        # Threads of Arrow that hold bytes of Python's abort a process that ends (7 of 120 did).
        file = pq.ParquetFile(
            pa.BufferReader(content), pre_buffer=False, page_checksum_verification=True
        )
        table = file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise RunFormatError(f"{where} is not a readable Parquet file: {reason}") from error
    if table.num_rows != file.metadata.num_rows:
        raise RunFormatError(
            f"{where} is damaged: it has {table.num_rows:,} of {file.metadata.num_rows:,} rows."
        )
    version = (table.schema.metadata or {}).get(b"partwise.format_version", b"none")
    if not version.isdigit() or not 1 <= int(version) <= FORMAT_VERSION:
        raise NewerFormatError(
            f"{where} has format version {version.decode(errors='replace')}, and this release "
            f"reads up to {FORMAT_VERSION}; install a newer partwise."
        )
    if int(version) > 1 and not has_checksum:
        raise RunFormatError(f"{where} is damaged: it holds no checksum.")
    return table


def read_ledger(content: bytes, where: str) -> pa.Table:
    """Return ledger rows as they are stored, with the columns that an older release did not write.

    Whoever reads them need not look at a name again: each is checked here, since whoever may write
    to a store may write anything into a ledger.

    Raises:
        NewerFormatError: A newer release wrote it.
        RunFormatError: It is damaged, too large, or holds what partwise never writes.
    """
    table = read_table(content, where, as_ledger=True)
    try:
        table.validate(full=True)
        table = _with_all_columns(table)
    except (pa.ArrowException, KeyError) as error:
        reason = " ".join(str(error).split())
        raise RunFormatError(f"{where} is not a ledger: {reason[:200]}") from error
    names = table.column_names
    if len(set(names)) != len(names):
        raise RunFormatError(f"{where} is not a ledger: a column stands there twice.")
    for name in names:
        if not name.startswith(KEY_PREFIX) and name not in COLUMNS.names:
            raise RunFormatError(f"{where} is not a ledger: it has the column {name[:80]!r}.")
    for column in COLUMNS:
        if table.schema.field(column.name).type != column.type:
            kind = table.schema.field(column.name).type
            raise RunFormatError(f"{where} is not a ledger: its column {column.name!r} is {kind}.")
    for name in _NEVER_NULL:
        if table[name].null_count:
            raise RunFormatError(f"{where} is not a ledger: a row has no {name!r}.")
    placed = table.filter(pc.is_valid(table["rows_file"]))
    offsets, counts = placed["rows_offset"], placed["rows_count"]
    # As sums may overflow, none of the three is believed before.
    within = [pc.greater_equal(each, 0) for each in (offsets, counts)]
    within.append(pc.less_equal(counts, pc.subtract(placed["rows_in_file"], offsets)))
    # With min_count, as Arrow's all() of no rows is null, by which such a ledger would be refused.
    if not all(pc.all(each, skip_nulls=False, min_count=0).as_py() for each in within):
        raise RunFormatError(f"{where} is not a ledger: it names rows that are in no file.")
    rows_files = table["rows_file"].drop_null().unique().to_pylist()
    check_names(where, table["partition_id"], [pc.list_flatten(table["artifacts"])], rows_files)
    return table


def _with_all_columns(table: pa.Table) -> pa.Table:
    """Return ledger rows with the columns that an older release did not write, as nulls."""
    n_keys = len(key_names(table.column_names))
    for place, column in enumerate(COLUMNS):
        if column.name not in table.column_names:
            missing = pa.nulls(table.num_rows, column.type)
            table = table.add_column(n_keys + place, column, missing)
    return table


def merge(
    tables: Iterable[pa.Table], written_in: Iterable[int] = (), *, newest_first: bool = False
) -> pa.Table | None:
    """Return one row per partition, sorted by key: the rule that every reader goes by.

    Where `tables` gives the last reference to each, the rows are never in memory twice.

    Of several rows for one partition a DONE one is taken before others, then that of the newest
    generation, then the newest. `written_in` has the generation that wrote each table, which may
    have carried its rows over from an earlier one; none: the same wrote all of them. With
    `newest_first`, the newest generation that worked on a partition is taken before a DONE one.
    """
    segments = list(tables)
    if not segments:
        return None
    # Keys may have become wider since an earlier generation, such as text with offsets of 64 bits.
    table = one_table(segments)
    generations = list(written_in) or [0] * len(segments)
    lengths = [part.num_rows for part in segments]
    del segments
    done = pc.equal(table["status"], "DONE")
    first = pc.is_in(table["status"], pa.array(_WORKED_ON)) if newest_first else done
    columns = {
        "partition_id": table["partition_id"],
        "first": first.cast(pa.int8()),
        "written_in": pa.array(np.repeat(generations, lengths)),
        "done": done.cast(pa.int8()),
        "finished_at": table["finished_at"],
    }
    ranks = [(name, "descending") for name in columns if name != "partition_id"]
    order = pc.sort_indices(pa.table(columns), sort_keys=[("partition_id", "ascending"), *ranks])
    del done, first, columns
    names = table["partition_id"].take(order).combine_chunks()
    is_first = np.ones(len(names), dtype=bool)
    differs = pc.not_equal(names.slice(1), names.slice(0, max(0, len(names) - 1)))
    is_first[1:] = differs.fill_null(True).to_numpy(zero_copy_only=False)
    del names
    # Places all along, and the rows once at the end: each copy of a million rows is 300 MiB.
    chosen = order.filter(pa.array(is_first))
    schema = table.schema
    keys = table.select(key_names(schema.names)).take(chosen)
    places = chosen.take(in_order_of_keys(keys))
    values = table.columns
    del table
    return pa.table(take_columns(values, places), schema=schema)


def key_names(names: Iterable[str]) -> list[str]:
    """Return those of the names of a ledger's columns that are of key columns."""
    return [name for name in names if name.startswith(KEY_PREFIX)]


def with_plain_keys(table: pa.Table) -> pa.Table:
    """Return rows whose key columns are named as in the source."""
    return table.rename_columns([name.removeprefix(KEY_PREFIX) for name in table.column_names])


def keys_beside(table: pa.Table, names: Collection[str]) -> dict[str, pa.ChunkedArray]:
    """Return key columns named as in the source; one named like any of `names` keeps its prefix."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name in key_names(table.column_names):
        short = name.removeprefix(KEY_PREFIX)
        columns[_free_name(short, KEY_PREFIX, {*names, *columns})] = table[name]
    return columns


def in_order_of_keys(keys: pa.Table) -> pa.Array:
    """Return the places of normalized keys in the order of all ledgers and shards, nulls last."""
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def readable_ledger(table: pa.Table) -> pa.Table:
    """Return the ledger as users read it: keys and metrics as columns of their own names.

    A key or metric that is named like a column of the ledger has a prefix (`key.`, `metric.`).
    """
    ours = [name for name in COLUMNS.names if name not in _NOT_SHOWN]
    # Few runs have these.
    for name in ("exit_code", "candidate"):
        if table[name].null_count == table.num_rows:
            ours.remove(name)
    if RUNNING_SINCE in table.column_names:
        ours.insert(ours.index("status") + 1, RUNNING_SINCE)
    columns: dict[str, Any] = keys_beside(table, ours)
    for name in ours:
        columns[name] = table[name]
    if n_metrics(table) > MOST_METRIC_COLUMNS:
        # One column each would take the square of what there is where names differ by partition.
        columns[_free_name("metrics", METRIC_PREFIX, columns)] = table["metrics"]
        return pa.table(columns)
    for metric, values in _metric_columns(table).items():
        columns[_free_name(metric, METRIC_PREFIX, columns)] = values
    return pa.table(columns)


def long_metrics(table: pa.Table) -> pa.Table:
    """Return the metrics of a ledger with one row for each value, in the order of the partitions.

    Columns: partition_id, metric, value.
    """
    row_of, names, values = _flat_metrics(table)
    partitions = table["partition_id"].take(pa.array(row_of))
    return pa.table({"partition_id": partitions, "metric": names, "value": values})


def n_metrics(table: pa.Table) -> int:
    """Return how many names of metrics a ledger has."""
    return len(_flat_metrics(table)[1].unique())


def _flat_metrics(table: pa.Table) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """Return of each value of a metric its row, its name, and the value."""
    metrics = table["metrics"].combine_chunks()
    if isinstance(metrics, pa.ChunkedArray):
        metrics = pa.concat_arrays(metrics.chunks)
    offsets = metrics.offsets.to_numpy() if len(metrics) else np.zeros(1, np.int32)
    row_of = np.repeat(np.arange(len(metrics)), np.diff(offsets))
    start, stop = int(offsets[0]), int(offsets[-1])
    return row_of, metrics.keys[start:stop], metrics.items[start:stop]


def group_failures(table: pa.Table) -> pa.Table:
    """Return the failed rows of a ledger grouped by error_fingerprint, the largest group first.

    Columns: error_fingerprint, error_type, error_message, count, sample (up to five partition_ids).
    """
    failed = table.filter(pc.equal(table["status"], PartitionStatus.FAILED.value))
    # Without threads, which would have no first row.
    grouped = failed.group_by("error_fingerprint", use_threads=False).aggregate(
        [
            ("error_type", "first"),
            ("error_message", "first"),
            ("partition_id", "count"),
            ("partition_id", "list"),
        ]
    )
    samples = [names[:_SAMPLE] for names in grouped["partition_id_list"].to_pylist()]
    result = pa.table(
        {
            "error_fingerprint": grouped["error_fingerprint"],
            "error_type": grouped["error_type_first"],
            "error_message": grouped["error_message_first"],
            "count": grouped["partition_id_count"],
            "sample": pa.array(samples, pa.list_(pa.string())),
        }
    )
    return result.sort_by([("count", "descending")])


def candidate_counts(table: pa.Table) -> list[tuple[str, int]]:
    """Return how many models are of each candidate, the most frequent first.

    There are none where one trainer made all models.

    Example:
        >>> candidate_counts(run.ledger)  # doctest: +SKIP
        [('lightgbm', 71), ('linear', 29)]
    """
    counts = Counter(table["candidate"].drop_null().to_pylist())
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def rows_by_candidate(table: pa.Table) -> dict[str, int]:
    """Return the rows of the partitions of each candidate, or of each level of an inference."""
    sums = table.group_by("candidate").aggregate([("rows", "sum")]).to_pylist()
    return {each["candidate"]: each["rows_sum"] or 0 for each in sums if each["candidate"]}


def damaged_models(table: pa.Table) -> int:
    """Return how many models could not be read in an inference, where another level answered."""
    _, values = dict(metric_values(table)).get(DAMAGED_MODELS, ((), np.empty(0)))
    return int(values.sum())


def status_counts(table: pa.Table) -> dict[str, int]:
    """Return how many partitions have each status."""
    counted = pc.value_counts(table["status"])
    return {each["values"]: each["counts"] for each in counted.to_pylist()}


def skip_reasons(table: pa.Table) -> str:
    """Return the most frequent reasons for which partitions were skipped; "" where none was.

    Example:
        >>> skip_reasons(run.ledger)  # doctest: +SKIP
        '96 x too few rows; 4 x no label'
    """
    skipped = table.filter(pc.equal(table["status"], PartitionStatus.SKIPPED.value))
    frequent = Counter(skipped["reason"].to_pylist()).most_common(_REASONS)
    texts = [f"{count:,} x {shortened(reason or 'no reason')}" for reason, count in frequent]
    if rest := skipped.num_rows - sum(count for _, count in frequent):
        texts.append(f"{rest:,} for other reasons")
    return "; ".join(texts)


def _free_name(name: str, prefix: str, taken: Container[str]) -> str:
    while name in taken:
        name = prefix + name
    return name


def metric_values(table: pa.Table) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield each metric of a ledger, by name: its name, the rows that have it and their values.

    Row numbers are ascending, of shape (m,), and values float64.
    """
    row_of, keys, items = _flat_metrics(table)
    names = keys.dictionary_encode()
    values = items.to_numpy(zero_copy_only=False)
    codes = names.indices.to_numpy()
    # Stable, so that the rows of each metric stay ascending.
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names.dictionary)))
    found = names.dictionary.to_pylist()
    for code in sorted(range(len(found)), key=found.__getitem__):
        chosen = order[ends[code - 1] if code else 0 : ends[code]]
        yield found[code], (row_of[chosen], values[chosen])


def _metric_columns(table: pa.Table) -> dict[str, pa.Array]:
    """Pivot the metrics: one float64 column for each, null where a row has none."""
    columns = {}
    for name, (rows, values) in metric_values(table):
        dense = np.zeros(table.num_rows)
        missing = np.ones(table.num_rows, dtype=bool)
        dense[rows] = values
        missing[rows] = False
        columns[name] = pa.array(dense, mask=missing)
    return columns
