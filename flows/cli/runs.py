"""`partwise runs`: list them, look into one, go on with it, repeat it, tidy it."""

import csv
import datetime as dt
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from partwise.errors import InputError, PartitionNotFoundError, PartwiseError
from partwise.flows.cli import output, run_output
from partwise.flows.cli.options import ClusterOptions, StoreUrl
from partwise.flows.cli.parsing import COMMON
from partwise.formatting import size
from partwise.outcomes import RunStatus
from partwise.runs.bundle import LOG_FILENAME
from partwise.runs.contents import list_runs
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import Key, KeyClass, KeyColumn

READERS = 8

runs = App(
    name="runs",
    help="List runs, look into one, go on with it, repeat it, tidy it.",
    default_parameter=COMMON,
)

Json = Annotated[bool, Parameter(name="--json")]
RunId = Annotated[str, Parameter(name="RUN")]
_CLUSTER = ClusterOptions()
_COUNTED = {
    "done": ("DONE",),
    "skipped": ("SKIPPED",),
    "failed": ("FAILED", "INTERNAL_ERROR"),
    "cancelled": ("CANCELLED",),
}
"""The columns of `runs list` that count partitions, each with the statuses that it counts."""


@runs.command(name="list")
def print_runs(*, store: StoreUrl = "artifacts", limit: int = 50, as_json: Json = False) -> int:
    """List the runs in a store, newest first.

    Args:
        store: A folder, or a URL such as s3://bucket/folder.
        limit: The most runs to list.
        as_json: Print a JSON object per run.
    """
    opened = Store.parse(store)
    names = list_runs(opened)
    with ThreadPoolExecutor(READERS) as readers:
        records = list(readers.map(lambda name: _record(name, opened), names))
    records.sort(key=lambda record: str(record["created_at"] or ""), reverse=True)
    if as_json:
        for record in records[:limit]:
            output.print_json(record)
        return 0
    if not records:
        output.console().print(f"There are no runs in {opened.url}.", markup=False)
        return 0
    columns = ("run", "kind", "status", "partitions", *_COUNTED, "began (UTC)")
    output.print_table(columns, [_list_row(record) for record in records[:limit]])
    if len(records) > limit:
        output.console().print(f"and {len(records) - limit} older ones (--limit)")
    return 0


@runs.command(name="show")
def show_run(
    run_id: RunId,
    /,
    *,
    failures: bool = False,
    key: str | None = None,
    logs: bool = False,
    in_browser: Annotated[bool, Parameter(name="--open")] = False,
    generation: Annotated[int, Parameter(validator=Number(gte=1))] | None = None,
    store: StoreUrl = "artifacts",
    as_json: Json = False,
) -> int:
    """Show how a run stands, what failed in it, or what became of one partition.

    Args:
        run_id: The run's ID.
        failures: List every partition that failed, by cause.
        key: One partition: its key, with commas between several columns, or its partition_id.
        logs: With --key: print what the partition wrote while it ran.
        in_browser: Open the run's report in a browser.
        generation: Show this one alone, also where readers see another: the newest that is
            complete, or all that was committed of a run that never was.
        store: A folder, or a URL such as s3://bucket/folder.
        as_json: Print a JSON object: of the run, the partition, or each failed partition.
    """
    if logs and key is None:
        raise InputError("--logs prints the log of one partition: name it with --key.")
    if failures and key is not None:
        raise InputError("--failures lists partitions, and --key shows one: give one of them.")
    if in_browser and (failures or key is not None or as_json):
        raise InputError("--open shows the report of the whole run: give it by itself.")
    run = Run.open(run_id, store, generation=generation)
    if in_browser:
        from partwise.flows.cli.open import open_report

        open_report(run)
    elif key is not None:
        _show_partition(run, key, logs, as_json)
    elif failures:
        _show_failures(run, as_json)
    elif as_json:
        output.print_json(run_output.run_record(run))
    else:
        _print_run(run)
    return 0


@runs.command(name="resume")
def resume_run(
    run_id: RunId, /, *, store: StoreUrl = "artifacts", cluster: ClusterOptions = _CLUSTER
) -> int:
    """Repeat the call that a run was begun with, and run only what is not done.

    Args:
        run_id: The run's ID.
        store: A folder, or a URL such as s3://bucket/folder.
        cluster: Where the work is done, as it need not be where it was begun.
    """
    from partwise.flows.cli.flow_calls import call_and_print

    flow, arguments = _read_call(Run.open(run_id, store), cluster)
    arguments |= {"run_id": run_id, "store": store, "on_existing_artifacts": "resume"}
    return call_and_print(flow, arguments)


@runs.command(name="repeat")
def repeat_run(
    run_id: RunId,
    /,
    *,
    new_run_id: Annotated[str, Parameter(name="--run-id")] = "",
    store: StoreUrl = "artifacts",
    cluster: ClusterOptions = _CLUSTER,
) -> int:
    """Begin a new run with the call of another one; a script's with its own snapshot.

    Args:
        run_id: The ID of the run that is repeated.
        new_run_id: That of the new run. Default: one is made up.
        store: A folder or URL, which has the run and gets the new one.
        cluster: Where the work is done, as it need not be where it was done before.
    """
    from partwise.flows.cli.flow_calls import call_and_print
    from partwise.flows.orchestration.run_ids import new_run_id as made_up

    run = Run.open(run_id, store)
    flow, arguments = _read_call(run, cluster)
    arguments |= {"run_id": new_run_id or made_up(run.kind), "store": store}
    return call_and_print(flow, arguments)


def _read_call(run: Run, cluster: ClusterOptions) -> tuple[str, dict[str, Any]]:
    """Return the flow that a run was begun with, and its arguments, to be called from here.

    Raises:
        InputError: The call was not written down, or cannot be repeated by another process.
    """
    from partwise.flows.running.calls import read_call

    if not run.generation:
        raise InputError(
            f"The run {run.run_id!r} was claimed, and its process ended before it wrote down its "
            f"call; repeat the call with run_id={run.run_id!r} and on_existing_artifacts='resume'."
        )
    document = run.read_generation_document()
    if document.call is None:
        raise InputError(
            f"The run {run.run_id!r} cannot be begun again from here: {document.call_obstacle}. "
            f"Repeat the call itself: {_python_call(run)}"
        )
    flow, arguments = read_call(document.call)
    arguments["compute_target" if flow == "run_script" else "cluster"] = cluster.build()
    return flow, arguments


@runs.command(name="gc")
def collect_run_garbage(
    run_id: RunId,
    /,
    *,
    dry_run: bool = False,
    grace_hours: float = 24.0,
    store: StoreUrl = "artifacts",
    as_json: Json = False,
) -> int:
    """Delete the files of a run that nothing refers to any more.

    A call that wants to work on the run meanwhile is not refused: this one then ends early.

    Args:
        run_id: The run's ID.
        dry_run: Only list them.
        grace_hours: What readers could see stays so long after it was replaced.
        store: A folder, or a URL such as s3://bucket/folder.
        as_json: Print a JSON object per file.
    """
    from partwise.runs.garbage import collect_garbage

    opened = Store.parse(store)
    found = collect_garbage(opened, run_id, dry_run=dry_run, grace_hours=grace_hours)
    output.print_garbage(found.files, run_id, dry_run=dry_run, as_json=as_json)
    if found.gave_way and not as_json:
        output.console().print("ended early: a process began to work on the run", markup=False)
    return 0


def _record(run_id: str, store: Store) -> dict[str, Any]:
    """Return a run as a JSON line has it, also where its documents cannot be read."""
    try:
        return run_output.run_record(Run.open(run_id, store))
    except PartwiseError as error:
        return {"run_id": run_id, "status": "UNREADABLE", "created_at": None, "error": str(error)}


def _list_row(record: Mapping[str, Any]) -> tuple[Any, ...]:
    counts = record.get("counts", {})
    counted = [sum(counts.get(name, 0) for name in names) for names in _COUNTED.values()]
    began = record.get("started_at") or record["created_at"]
    name, kind, status = record["run_id"], record.get("kind"), record["status"]
    return name, kind, status, sum(counts.values()), *counted, began


def _print_run(run: Run) -> None:
    document = run.document
    keys = ", ".join(f"{column.name} ({column.key_class})" for column in run.key_columns)
    fields: dict[str, str] = {"kind": document.kind, "keys": keys}
    if document.training_run_id:
        fields["models of"] = document.training_run_id
    fields["shards"] = str(document.n_shards)
    if run.generation:
        newest = run.read_generation_document()
        began = f"begun {output.cell_text(newest.started_at)} UTC by {newest.owner}"
        fields["generation"] = f"{run.generation}, {began}"
        fields["with"] = ", ".join(f"{name} {value}" for name, value in newest.environment.items())
    if run.at_work is not None:
        fields["note"] = f"{run.at_work}; or its process died: a resume finds out"
    if run.shown is not None and run.shown is not run.summary:
        # The other lines are of the newest generation, which readers do not see.
        fields["readers see"] = run_output.shown_text(run)
        run = run.newest
    run_output.print_run(run, fields)


def _show_failures(run: Run, as_json: bool) -> None:
    if as_json:
        for row in run_output.failed_rows(run):
            output.print_json(row)
        return
    groups = run_output.failure_groups(run, most=1000, samples=20)
    if not groups:
        output.console().print(f"Nothing failed in the run {run.run_id}.", markup=False)
        return
    for text in groups:
        output.console().print(text)
    option = run_output.store_option(run)
    if run.shown is not None and run.shown is not run.summary:
        # What was listed is not what readers see.
        option = f" --generation {run.generation}{option}"
    output.console().print(
        f"next: partwise runs show {run.run_id} --key KEY --logs{option}  (what one wrote)",
        markup=False,
    )


def _show_partition(run: Run, text: str, logs: bool, as_json: bool) -> None:
    name = find_partition(run, text)
    artifacts = run.stored_artifacts(name)
    has_log = any(artifact.filename == LOG_FILENAME for artifact in artifacts)
    if logs:
        if has_log:
            content = run.read_artifact(name, LOG_FILENAME)
            sys.stdout.write(content.decode(errors="replace"))
        return
    place = run.ledger["partition_id"].to_pylist().index(name)
    row = run.partitions.slice(place, 1).to_pylist()[0]
    if as_json:
        files = [{"filename": a.filename, "size_bytes": a.size_bytes} for a in artifacts]
        output.print_json({**row, "artifacts": files})
        return
    fields = {name: output.cell_text(value) for name, value in row.items() if value is not None}
    if artifacts:
        fields["artifacts"] = "\n".join(f"{a.filename} ({size(a.size_bytes)})" for a in artifacts)
    output.print_fields(fields)
    if has_log:
        output.console().print("--logs prints what it wrote")


def find_partition(run: Run, text: str) -> str:
    """Return the partition_id that is meant by a key, as `parse_key` reads it, or by itself.

    Raises:
        InputError: The text is no key of the run's classes.
        PartitionNotFoundError: The run has no such partition.
    """
    known = set(run.ledger["partition_id"].to_pylist())
    try:
        name = run.partition_id(parse_key(text, run.key_columns))
    except InputError:
        if text not in known:
            raise
        return text
    if name not in known and text not in known:
        unfinished = " yet" if run.status is RunStatus.IN_PROGRESS else ""
        raise PartitionNotFoundError(
            f"The run {run.run_id!r} has no partition {text!r}{unfinished}."
        )
    return name if name in known else text


def parse_key(text: str, columns: tuple[KeyColumn, ...]) -> Key:
    """Return the key that a text stands for.

    Args:
        text: A value; for several key columns, values with commas between them, as in a CSV file.
            Dates and times as ISO 8601, durations as seconds, binary as hexadecimal digits, null
            as "null" (but for strings: there, give the partition_id).
        columns: The key columns of the run.

    Raises:
        InputError: It is not of these classes.

    Example:
        >>> store = KeyColumn(name="store", key_class=KeyClass.STRING)
        >>> day = KeyColumn(name="day", key_class=KeyClass.DATE)
        >>> parse_key("a-1,2026-03-01", (store, day))
        ('a-1', datetime.date(2026, 3, 1))
    """
    texts = [text] if len(columns) == 1 else next(csv.reader([text]), [])
    if len(texts) != len(columns):
        names = ",".join(column.name for column in columns)
        raise InputError(
            f"--key {text!r} has {len(texts)} values, and the key has {len(columns)}: {names}."
        )
    values = [_parse_key_value(text, column) for text, column in zip(texts, columns, strict=True)]
    return values[0] if len(columns) == 1 else tuple(values)


def _parse_key_value(text: str, column: KeyColumn) -> Any:
    if column.key_class is KeyClass.STRING:
        return text
    if text == "null":
        return None
    parse, example = _PARSERS[column.key_class]
    try:
        return parse(text)
    except (ValueError, ArithmeticError) as error:
        raise InputError(
            f"--key: {text!r} is no {column.key_class} for the key column {column.name!r}; write "
            f"it like {example}."
        ) from error


_PARSERS: dict[KeyClass, tuple[Callable[[str], Any], str]] = {
    KeyClass.INTEGER: (int, "42"),
    KeyClass.FLOAT: (float, "0.5"),
    KeyClass.BOOLEAN: (lambda text: ("false", "true").index(text.lower()) == 1, "true"),
    KeyClass.TIMESTAMP: (dt.datetime.fromisoformat, "2026-03-01T12:00:00"),
    KeyClass.TIMESTAMP_TZ: (dt.datetime.fromisoformat, "2026-03-01T12:00:00+00:00"),
    KeyClass.DATE: (dt.date.fromisoformat, "2026-03-01"),
    KeyClass.TIME: (dt.time.fromisoformat, "12:30:00"),
    KeyClass.DURATION: (lambda text: dt.timedelta(seconds=float(text)), "90 (seconds)"),
    KeyClass.DECIMAL: (Decimal, "19.90"),
    KeyClass.BINARY: (bytes.fromhex, "00ff"),
    KeyClass.NULL: (lambda text: ("null",).index(text), "null"),
}


_WITHOUT_KEYS = (
    *("train-distributed", "run-script", "tune"),
    *("export", "export-transformers", "validate"),
)
"""Kinds of runs whose flows take no partition_by: the keys are ranks, trials, or those of the
models."""


def _python_call(run: Run) -> str:
    """Return the call of a run in Python, as far as it is known."""
    flow = {
        "train": "train_models",
        "train-distributed": "train_distributed",
        "run-script": "run_script",
        "tune": "tune_model",
        "infer": "run_inference",
        "map": "map_partitions",
        "export": "export_models",
        "export-transformers": "export_transformers",
        "validate": "validate_exports",
    }[run.kind]
    used = run.document.training_run_id
    models = f"{'export' if run.kind == 'validate' else 'training'}_run_id={used!r}, "
    keys = f"partition_by={run.document.partition_by}, "
    return (
        f"{flow}(..., {'' if run.kind in _WITHOUT_KEYS else keys}"
        f"{models if used else ''}run_id={run.run_id!r}, "
        f"store={run.store.url!r}, on_existing_artifacts='resume')"
    )
