"""`partwise data`: register rows as versions of a dataset, list, show and compare them."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any

from cyclopts import App, Parameter

from partwise.datasets.comparison import (
    ColumnChange,
    PartitionChanges,
    compare_columns,
    compare_partitions,
)
from partwise.datasets.dataset import Dataset, dataset_names
from partwise.datasets.manifest import DATASETS, NOUN, ColumnDocument
from partwise.flows.cli import output
from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.news import plain_news
from partwise.flows.cli.options import AnyStore, Days, Json, Names
from partwise.flows.cli.parsing import COMMON, parse_condition, split_names
from partwise.formatting import counted, key_text, shortened, size
from partwise.runs.contents import list_runs
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.store.versions import parse_reference

READERS = 8

data = App(
    name="data",
    help="Register rows as versions of a dataset, list, show and compare them.",
    default_parameter=COMMON,
)

_FILES = FileOptions()
Reference = Annotated[str, Parameter(name="NAME[@VERSION]")]


@data.command(name="register")
def register_dataset(
    name: str,
    source: Annotated[tuple[str, ...], Parameter(name="SOURCE")],
    /,
    *,
    exclude: Names = (),
    label: Names = (),
    filter: Names = (),  # noqa: A002
    columns: Names = (),
    description: str = "",
    files: FileOptions = _FILES,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Write rows to a store as a new version of a dataset; equal rows make none.

    Args:
        name: The dataset's name: letters, digits, "-" and "_".
        source: Files, globs, folders or URLs; a block, query-block/NAME; or dataset://NAME@VERSION.
        exclude: Columns that are read only when they are named.
        label: Columns to be predicted, which are never features by themselves.
        filter: Rows to keep, such as "price > 0". Given several times, all must hold.
        columns: Columns to keep. Default: all.
        description: A sentence for people.
        files: How the files are read.
        as_json: Print a JSON object.
    """
    from partwise.datasets import registration
    from partwise.flows.running.connections import open_rows

    with plain_news():
        done = registration.register(
            name,
            open_rows(files.of(source)),
            store=Store.of(store),
            columns=split_names(columns) or None,
            filter=[parse_condition(text) for text in filter] or None,
            exclude=split_names(exclude),
            label=split_names(label),
            description=description,
        )
    dataset = done.dataset
    if as_json:
        return output.print_json({**_record(dataset), "is_new": done.is_new})
    if done.is_new:
        output.print_line(f"{dataset.reference}  {_extent(dataset)}")
    else:
        output.print_line(f"{dataset.reference} has these very rows: no new version.")
    return 0


@data.command(name="list")
def print_datasets(*, store: AnyStore = "artifacts", as_json: Json = False) -> int:
    """List the datasets in a store, each with its newest version.

    A dataset that cannot be read has no version, and the reason stands below; the others are listed
    all the same, and the exit code stays 0.

    Args:
        as_json: Print a JSON object per dataset.
    """
    opened = Store.of(store)

    def read(name: str) -> tuple[Mapping[str, Any], Sequence[Any]]:
        dataset = Dataset.open(name, store=opened)
        manifest = dataset.manifest
        what = (dataset.rows, len(manifest.columns), size(manifest.size_bytes))
        about = shortened(manifest.description, 60)
        return _record(dataset), (name, dataset.version, *what, manifest.created_at, about)

    return output.print_listed(
        dataset_names(opened),
        read,
        ("dataset", "version", "rows", "columns", "size", "registered (UTC)", "description"),
        f"There are no datasets in {opened.url}.",
        as_json=as_json,
    )


@data.command(name="show")
def show_dataset(
    name: Reference,
    /,
    *,
    runs: bool = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Show a version of a dataset: columns, marks, statistics, where it came from.

    Args:
        name: The dataset, such as sales@3; without a version the newest.
        runs: Look through all runs of the store for those that read this version.
        as_json: Print a JSON object.
    """
    dataset = Dataset.of(name, store)
    users = _users(dataset) if runs else None
    if as_json:
        columns = [column.model_dump(mode="json") for column in dataset.manifest.columns]
        used = {} if users is None else {"runs": users}
        return output.print_json({**_record(dataset), "columns": columns, **used})
    manifest = dataset.manifest
    fields = {"rows": _extent(dataset)}
    if manifest.description:
        fields["description"] = manifest.description
    fields["from"] = _origin(dataset)
    fields["registered"] = f"{output.cell_text(manifest.created_at)} UTC"
    fields["fingerprint"] = manifest.fingerprint
    if users is not None:
        fields["runs"] = "\n".join(users) or "none"
    output.console().print(dataset.reference, style="bold")
    output.print_fields(fields)
    header = ("column", "type", "mark", "nulls", "min", "max", "mean", "distinct")
    output.print_table(header, [_column_row(dataset, column) for column in manifest.columns])
    return 0


@data.command(name="diff")
def compare_versions(
    before: Reference,
    after: Reference,
    /,
    *,
    partition_by: Annotated[Names, Parameter(alias="-p")] = (),
    examples: int = 5,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Compare two versions: rows, columns, statistics, and with --partition-by the partitions.

    Args:
        before: The earlier version, such as sales@1.
        after: The later version, such as sales@2.
        partition_by: The key column, or several: count the partitions added, removed and changed.
        examples: The most keys to print of each.
        as_json: Print a JSON object.
    """
    opened = Store.of(store)
    old, new = Dataset.of(before, opened), Dataset.of(after, opened)
    changes = compare_columns(old, new)
    keys = split_names(partition_by)
    partitions = compare_partitions(old, new, keys, examples=examples) if keys else None
    if as_json:
        return output.print_json(_diff_record(old, new, changes, partitions))
    output.console().print(f"{old.reference} -> {new.reference}", style="bold")
    equal = " (the very same)" if _are_same_rows(old, new, changes) else ""
    fields = {"rows": f"{old.rows:,} -> {new.rows:,}{equal}"}
    if partitions is not None:
        fields["partitions"] = _partition_text(partitions)
    output.print_fields(fields)
    rows = [row for change in changes for row in _change_rows(old, new, change)]
    if rows:
        output.print_table(("column", "what", "before", "after"), rows)
    return 0


@data.command(name="verify")
def verify_data(
    reference: Reference,
    /,
    *,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Read all of a dataset, and compare it with every checksum; exit code 1 where one differs.

    Args:
        reference: The dataset, all versions of it, or one.
        as_json: Print a JSON object per damage.
    """
    from partwise.datasets.verification import verify_dataset

    name, version = parse_reference(reference, NOUN)
    found = verify_dataset(name, Store.of(store), version)
    return output.print_damages(found.damages, found.files, found.size_bytes, name, as_json=as_json)


@data.command(name="gc")
def collect_data_garbage(
    name: str = "",
    /,
    *,
    older_than_days: Days = 7.0,
    dry_run: bool = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Delete what registrations left behind when they died, and rows on their way to workers.

    Args:
        name: The dataset. Default: all of them, and the rows that runs handed to workers by way of
            the store, which later runs on the same rows use again.
        older_than_days: How old such rows have to be: a run may be at work on them.
        dry_run: Only list them.
        as_json: Print a JSON object per file.
    """
    from partwise.datasets.garbage import collect_dataset_garbage
    from partwise.shuffle.shard_cache import collect_shards

    opened = Store.of(store)
    found: list[tuple[str, int]] = []
    for each in [name] if name else opened.list_folder(DATASETS):
        found += collect_dataset_garbage(opened, each, dry_run=dry_run)
    if not name:
        found += collect_shards(opened, timedelta(days=older_than_days), dry_run=dry_run)
    return output.print_garbage(found, name or opened.url, dry_run=dry_run, as_json=as_json)


def _extent(dataset: Dataset) -> str:
    manifest = dataset.manifest
    parts = counted(len(manifest.parts), "part")
    rows, columns = counted(dataset.rows, "row"), counted(len(manifest.columns), "column")
    return f"{rows}, {columns}, {size(manifest.size_bytes)} in {parts}"


def _record(dataset: Dataset) -> dict[str, Any]:
    """Return a version as a JSON line has it."""
    manifest = dataset.manifest
    return {
        "name": dataset.name,
        "version": dataset.version,
        "reference": dataset.reference,
        "description": manifest.description,
        "rows": dataset.rows,
        "size_bytes": manifest.size_bytes,
        "schema": {column.name: column.type for column in manifest.columns},
        "excluded": list(manifest.excluded),
        "label": list(manifest.label),
        "fingerprint": manifest.fingerprint,
        "source": dict(manifest.source),
        "created_at": manifest.created_at,
        "partwise_version": manifest.partwise_version,
        "parts": [part.path for part in manifest.parts],
    }


def _origin(dataset: Dataset) -> str:
    source = dataset.manifest.source
    if "run_id" in source:
        return f"the run {source['run_id']}, generation {source['generation']}"
    paths = source.get("paths")
    if isinstance(paths, list):
        return shortened(", ".join(map(str, paths)))
    return shortened(", ".join(f"{name} {value}" for name, value in source.items()))


def _column_row(dataset: Dataset, column: ColumnDocument) -> tuple[Any, ...]:
    return (
        column.name,
        column.type,
        dataset.manifest.mark_of(column.name),
        column.nulls,
        _bound("min", column.min),
        _bound("max", column.max),
        column.mean,
        column.distinct,
    )


def _bound(what: str, value: Any) -> Any:
    if what in ("mark", "order"):
        return value[:12] if value else "none"
    return shortened(value, 32) if isinstance(value, str) else value


def _change_rows(old: Dataset, new: Dataset, change: ColumnChange) -> list[tuple[Any, ...]]:
    if change.before is None or change.after is None:
        what = "added" if change.before is None else "removed"
        types = [column and column.type for column in (change.before, change.after)]
        return [(change.name, what, *types)]
    return [
        (name, what, *(output.cell_text(_bound(what, value)) for value in values))
        for name, what, *values in _values(old, new, change)
    ]


def _are_same_rows(old: Dataset, new: Dataset, changes: Sequence[ColumnChange]) -> bool:
    """Whether rows are equal, and the order of their categories too."""
    return old.fingerprint == new.fingerprint and not any("order" in c.moved for c in changes)


def _partition_text(partitions: PartitionChanges) -> str:
    lines = [f"{partitions.same:,} unchanged"]
    for change, count in partitions.counts.items():
        keys = "; ".join(_key_texts(partitions, change))
        more = " ..." if count > len(partitions.examples[change]) else ""
        lines.append(f"{count:,} {change}" + (f": {keys}{more}" if keys else ""))
    return "\n".join(lines)


def _key_texts(partitions: PartitionChanges, change: str) -> list[str]:
    keys = partitions.examples[change]
    single = len(partitions.key_columns) == 1
    return [key_text([key] if single else list(key)) for key in keys]


def _diff_record(
    old: Dataset,
    new: Dataset,
    changes: list[ColumnChange],
    partitions: PartitionChanges | None,
) -> Mapping[str, Any]:
    record: dict[str, Any] = {
        "before": old.reference,
        "after": new.reference,
        "same_rows": _are_same_rows(old, new, changes),
        "rows": [old.rows, new.rows],
        "added": [change.name for change in changes if change.before is None],
        "removed": [change.name for change in changes if change.after is None],
        "columns": {
            change.name: {what: list(values) for _, what, *values in _values(old, new, change)}
            for change in changes
            if change.before is not None and change.after is not None
        },
    }
    if partitions is not None:
        record["partitions"] = {
            "unchanged": partitions.same,
            **partitions.counts,
            "examples": {name: _key_texts(partitions, name) for name in partitions.counts},
        }
    return record


def _values(old: Dataset, new: Dataset, change: ColumnChange) -> list[tuple[Any, ...]]:
    """Return each thing that moved, before and after."""
    name, manifests = change.name, (old.manifest, new.manifest)
    values: list[tuple[Any, ...]] = []
    for what in change.moved:
        match what:
            case "mark":
                both = [each.mark_of(name) for each in manifests]
            case "order":
                both = [each.orders[name] for each in manifests]
            case _:
                both = [getattr(side, what) for side in (change.before, change.after)]
        values.append((name, what, *both))
    return values


def _users(dataset: Dataset) -> list[str]:
    """Return the IDs of runs whose newest call reads the version."""

    def reads(run_id: str) -> bool:
        try:
            run = Run.open(run_id, dataset.store)
            if not run.generation:
                return False
            document = run.read_generation_document()
        except Exception:
            # Whatever is wrong with one run, the dataset is to be seen.
            return False
        rows = document.written_call.get("data")
        return isinstance(rows, dict) and rows.get("paths") == [dataset.reference]

    names = list_runs(dataset.store)
    with ThreadPoolExecutor(READERS) as readers:
        return [name for name, used in zip(names, readers.map(reads, names), strict=True) if used]
