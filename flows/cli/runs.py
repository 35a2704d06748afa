"""`partwise runs`: look into one run, go on with it, repeat it, tidy it; others in `run_*`."""

from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from partwise.errors import InputError, PartwiseError
from partwise.flows.cli import output, run_output
from partwise.flows.cli.exit_codes import FAILURE, SUCCESS, code_of_run
from partwise.flows.cli.keys import find_partition
from partwise.flows.cli.options import AnyStore, ClusterOptions, Count, Json, RunId
from partwise.flows.cli.parsing import COMMON
from partwise.formatting import counted, size, visible
from partwise.reports import summary
from partwise.reports.next_command import program, store_option
from partwise.runs.bundle import LOG_FILENAME
from partwise.runs.earlier_runs import last_work
from partwise.runs.key_texts import key_columns_text
from partwise.runs.kinds import KINDS
from partwise.runs.run import Run
from partwise.store.store import Store

if TYPE_CHECKING:
    from partwise.calls.call import Call
    from partwise.choices import OnExisting

runs = App(
    name="runs",
    help="List runs, look into one, write its predictions to a file, compare two, go on with one, "
    "repeat it, tidy it.",
    default_parameter=COMMON,
)

_IN_OTHER_MODULES = {
    "list": ("run_list:print_runs", "List the runs in a store, newest first."),
    "logs": ("run_logs:print_logs", "Print what partitions wrote; without a key, failed ones."),
    "model": ("run_model:write_model", "Write the model of one partition to a file."),
    "export": (
        "run_export:export_run",
        "Write the ledger, metrics or predictions to a file, artifacts to many.",
    ),
    "wait": (
        "run_waiting:wait_for_run",
        "Wait for the end of a run that another process works on.",
    ),
    "cancel": (
        "run_waiting:cancel_run",
        "End a run that another process works on, as Ctrl-C does.",
    ),
    "rm": ("run_removal:remove_runs", "Delete runs: models, predictions, logs and reports."),
    "compare": ("run_comparison:compare", "Compare the metrics of two runs, key by key."),
}
for _name, (_place, _help) in _IN_OTHER_MODULES.items():
    runs.command(f"partwise.flows.cli.{_place}", name=_name, help=_help)

_CLUSTER = ClusterOptions()


@runs.command(name="show")
def show_run(
    run_id: RunId,
    /,
    *,
    failures: bool = False,
    key: str | None = None,
    logs: bool = False,
    in_browser: Annotated[bool, Parameter(name="--open")] = False,
    follow: bool = False,
    generation: Count | None = None,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Show how a run stands, what failed in it, or what became of one partition.

    Args:
        failures: List every partition that failed, by cause.
        key: One partition: its key, with commas between several columns, or its partition_id.
        logs: With --key: print what the partition wrote while it ran.
        in_browser: Open the run's report in a browser.
        follow: First show how far it is, until no process works on it. The exit code is then that
            of the command that did the work; 1 where the run has not ended.
        generation: Show this one alone, also where readers see another: the newest that is
            complete, or all that was committed of a run that never was.
        as_json: Print a JSON object: of the run, the partition, or each failed partition.
    """
    if logs and key is None:
        raise InputError("--logs prints the log of one partition: name it with --key.")
    if failures and key is not None:
        raise InputError("--failures lists partitions, and --key shows one: give one of them.")
    if in_browser and (failures or key is not None or as_json):
        raise InputError("--open shows the report of the whole run: give it by itself.")
    if follow and (in_browser or failures or key is not None or as_json or generation):
        raise InputError("--follow shows how far the whole run is: give it by itself.")
    run = Run.open(run_id, store, generation=generation)
    if follow:
        from partwise.flows.cli.run_following import follow as follow_run

        follow_run(run)
        run = run.refresh()
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
    return code_of_run(run) if follow else SUCCESS


@runs.command(name="resume")
def resume_run(
    run_id: RunId,
    /,
    *,
    failed_only: bool = False,
    store: AnyStore = "artifacts",
    cluster: ClusterOptions = _CLUSTER,
    trust: bool = False,
) -> int:
    """Repeat the call that a run was begun with, and run only what is not done.

    Args:
        failed_only: Keep all that is DONE, though its function, settings or rows have changed
            since. The run says so.
        cluster: Where the work is done, as it need not be where it was begun.
        trust: Repeat the call of a run that was begun elsewhere: without this it is only shown.
    """
    from partwise.flows.cli.flow_calls import call_and_print

    call = _read_call(Run.open(run_id, store), cluster, trust=trust)
    how = _resume_failed(call) if failed_only else "resume"
    return call_and_print(replace(call, run_id=run_id, store=store, on_existing_artifacts=how))


def _resume_failed(call: "Call") -> "OnExisting":
    """Return how a call goes on with its run and keeps all that is DONE.

    Raises:
        InputError: Its partitions are not each done by itself.
    """
    from typing import get_args

    from partwise.calls.call import field_types

    how: OnExisting = "resume-failed"
    if how not in get_args(field_types(type(call))["on_existing_artifacts"]):
        raise InputError(
            f"--failed-only keeps partitions that are DONE, and {call.flow()} has none that are "
            "each done by itself: resume it without."
        )
    return how


@runs.command(name="repeat")
def repeat_run(
    run_id: Annotated[RunId, Parameter(help="The ID of the run that is repeated.")],
    /,
    *,
    new_run_id: Annotated[str, Parameter(name="--run-id")] = "",
    store: Annotated[
        AnyStore, Parameter(help="A folder or URL, which has the run and gets the new one.")
    ] = "artifacts",
    cluster: ClusterOptions = _CLUSTER,
    trust: bool = False,
) -> int:
    """Begin a new run with the call of another one; a script's with its own snapshot.

    Args:
        new_run_id: That of the new run. Default: one is made up.
        cluster: Where the work is done, as it need not be where it was done before.
        trust: Repeat the call of a run that was begun elsewhere: without this it is only shown.
    """
    from partwise.flows.cli.flow_calls import call_and_print
    from partwise.flows.orchestration.run_ids import new_run_id as made_up

    run = Run.open(run_id, store)
    call = _read_call(run, cluster, trust=trust)
    return call_and_print(replace(call, run_id=new_run_id or made_up(run.kind), store=store))


def _read_call(run: Run, cluster: ClusterOptions, *, trust: bool) -> "Call":
    """Return the call that a run was begun with, to be carried out from here.

    Raises:
        InputError: The call was not written down, or cannot be repeated by another process.
        TrustError: The run was made elsewhere, and its call is not said to be trusted.
    """
    from partwise.calls.call import VersionedCall
    from partwise.calls.exports import ComparedCall
    from partwise.calls.reading import read_call
    from partwise.calls.script import ScriptCall
    from partwise.planning.trust import check_trusted, is_made_here

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
    check_trusted(run, document.call, trust=trust)
    call = read_call(document.call, is_own=is_made_here(run))
    if isinstance(call, ComparedCall):
        # Of the run whose models are used nothing is asked again.
        call = replace(call, trust=trust)
    if isinstance(call, VersionedCall | ScriptCall):
        return replace(call, cluster=cluster.checked())
    return call


@runs.command(name="gc")
def collect_run_garbage(
    run_id: RunId,
    /,
    *,
    dry_run: bool = False,
    grace_hours: float = 24.0,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Delete the files of a run that nothing refers to any more.

    A call that wants to work on the run meanwhile is not refused: this one then ends early.

    Args:
        dry_run: Only list them.
        grace_hours: What readers could see stays so long after it was replaced.
        as_json: Print a JSON object per file.
    """
    from partwise.runs.garbage import collect_garbage

    opened = Store.of(store)
    found = collect_garbage(opened, run_id, dry_run=dry_run, grace_hours=grace_hours)
    output.print_garbage(
        found.files, run_id, dry_run=dry_run, as_json=as_json, waiting=found.waiting
    )
    if found.gave_way and not as_json:
        output.print_line("ended early: a process began to work on the run")
    return 0


@runs.command(name="verify")
def verify_run(
    run_id: RunId,
    /,
    *,
    set_aside: bool = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Read all of a run, and compare it with every checksum; exit code 1 where something differs.

    Args:
        set_aside: Move damaged files that a resume can make again to the run's folder "damaged":
            the next resume runs their partitions again.
        as_json: Print a JSON object per damage.
    """
    from partwise.runs import verification

    opened = Store.of(store)
    found = verification.verify_run(run_id, opened)
    moved = verification.set_aside(found, opened) if set_aside else []
    if as_json:
        output.print_json(
            *({**asdict(each), "set_aside": each.path in moved} for each in found.damages)
        )
        return FAILURE if found.damages else SUCCESS
    for damage in found.damages:
        output.print_line(visible(str(damage)))
    for note in found.notes:
        output.print_line(f"not bound: {note}")
    for path in moved:
        output.print_line(f"set aside: {path}")
    wrong = f"{len(found.damages):,} damaged" if found.damages else "all as they were written"
    read = f"{counted(found.files, 'file')} of {run_id}, {size(found.size_bytes)}"
    output.print_line(f"{read} of rows and artifacts: {wrong}")
    return FAILURE if found.damages else SUCCESS


def _print_run(run: Run) -> None:
    document = run.document
    fields = {"kind": document.kind, "keys": key_columns_text(run.key_columns)}
    if document.models:
        fields["models of"] = document.training_run_id or ", ".join(document.models)
    if run.generation:
        fields["shards"] = str(document.n_shards)
        newest = run.read_generation_document()
        began = f"begun {output.cell_text(newest.started_at)} UTC by {newest.owner}"
        fields["generation"] = f"{run.generation}, {began}"
        fields["with"] = ", ".join(f"{name} {value}" for name, value in newest.environment.items())
    if (trained := _newer_models(run)) is not None:
        words = f"{program()} runs resume {run.run_id}{store_option(run)}"
        fields["stale"] = f"{trained} has newer models: `{words}` works on what changed"
    if run.at_work is not None:
        fields["note"] = f"{run.at_work}; or its process died: a resume finds out"
    if run.shown is not None and run.shown is not run.summary:
        # The other lines are of the newest generation, which readers do not see.
        fields["readers see"] = summary.shown_text(run)
        run = run.newest
    run_output.print_run(run, fields)


def _newer_models(run: Run) -> str | None:
    """Return the run whose models this one used, if it got others since; None: it did not.

    What counts is when both ended and began by the clocks of who worked on them: no document says
    which generation of the other run was used.
    """
    trained_by = run.document.training_run_id
    if trained_by is None or run.shown is None or run.at_work is not None:
        return None
    # It may have been removed or damaged, which does not keep anybody from reading this one.
    with suppress(PartwiseError):
        last = last_work(Run.open(trained_by, run.store))
        if last is not None and last.finished_at > run.shown.started_at:
            return trained_by
    return None


def _show_failures(run: Run, as_json: bool) -> None:
    if as_json:
        output.print_json(*summary.failed_rows(run))
        return
    groups = summary.failure_groups(run, most=1000, samples=20)
    if not groups:
        output.print_line(f"Nothing failed in the run {run.run_id}.")
        return
    for text in groups:
        output.console().print(text)
    command = f"{program()} runs logs {run.run_id}{store_option(run)}"
    output.print_line(f"next: {command}  (what they wrote)")


def _show_partition(run: Run, text: str, logs: bool, as_json: bool) -> None:
    name = find_partition(run, text)
    artifacts = run.stored_artifacts(name)
    has_log = any(artifact.filename == LOG_FILENAME for artifact in artifacts)
    if logs:
        if has_log:
            content = run.read_artifact(name, LOG_FILENAME)
            output.print_text(content.decode(errors="replace"))
        return
    place = run.ledger["partition_id"].to_pylist().index(name)
    row = run.partitions.slice(place, 1).to_pylist()[0]
    if isinstance(metrics := row.get("metrics"), list):
        # Of a run with very many: here only those of this partition.
        row = {**row, "metrics": dict(metrics)}
    if as_json:
        files = [{"filename": a.filename, "size_bytes": a.size_bytes} for a in artifacts]
        output.print_json({**row, "artifacts": files})
        return
    fields = {name: output.cell_text(value) for name, value in row.items() if value is not None}
    if artifacts:
        fields["artifacts"] = "\n".join(f"{a.filename} ({size(a.size_bytes)})" for a in artifacts)
    output.print_fields(fields)
    if has_log:
        output.print_line("--logs prints what it wrote")


def _python_call(run: Run) -> str:
    """Return the call of a run in Python, as far as it is known."""
    kind = KINDS[run.kind]
    used = run.document.training_run_id
    models = f"{'export' if run.kind == 'validate' else 'training'}_run_id={used!r}, "
    keys = f"partition_by={run.document.partition_by}, " if kind.takes_keys else ""
    return (
        f"{kind.flow}(..., {keys}"
        f"{models if used else ''}run_id={run.run_id!r}, "
        f"store={run.store.url!r}, on_existing_artifacts='resume')"
    )
