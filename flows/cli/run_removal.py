"""`partwise runs rm`: delete runs with all that they hold."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

from cyclopts import Parameter

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import FAILURE
from partwise.flows.cli.options import AnyStore, Json, RunId, Yes
from partwise.formatting import counted, size
from partwise.runs.documents import run_path
from partwise.runs.removal import Removal, Use, all_uses, measure, remove_run
from partwise.store.lease import check_nobody_works
from partwise.store.store import Store

MOST_USES = 10


def remove_runs(
    *run_ids: Annotated[RunId, Parameter(help="The IDs of the runs.")],
    yes: Yes = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Delete runs: their models, predictions, logs and reports.

    A run that a process works on is refused. Runs that use these are named first, and stay: what
    they have made is theirs, but they cannot be resumed or repeated any more. So are those that may
    use them, as they cannot be read. The run ID can be begun again, for the same kind of run and
    keys.

    Args:
        as_json: Print a JSON object per run; goes with --yes.
    """
    if not run_ids:
        raise InputError("Name the runs to delete: partwise runs rm RUN...")
    names = list(dict.fromkeys(run_ids))
    opened = Store.of(store)
    # All are looked at before the first is deleted.
    found = {name: measure(opened, name) for name in names}
    for name in names:
        check_nobody_works(opened, run_path(name))
    known = all_uses(opened)
    uses = {
        name: [use for use in known.of.get(name, ()) if use.run_id not in names] for name in names
    }
    unread = [each for each in known.unread if each not in names]
    if not as_json:
        _print(found, uses, unread)
    if not yes and not is_sure(names):
        output.tell("nothing was deleted")
        return FAILURE
    for name in names:
        removed = remove_run(opened, name, found[name])
        _print_removed(name, removed, uses[name], unread, as_json)
    return 0


def _print(
    found: Mapping[str, Removal], uses: Mapping[str, Sequence[Use]], unread: Sequence[str]
) -> None:
    for name, removal in found.items():
        files = f"{counted(removal.files, 'file')}, {size(removal.size_bytes)}"
        output.print_line(f"{name}: {files}")
        for use in uses[name][:MOST_USES]:
            state = ", at work" if use.is_at_work else ""
            how = "uses its models" if use.how == "its models" else "names it in its call"
            output.print_line(f"  {use.run_id} ({use.kind}{state}) {how}")
        if (more := len(uses[name]) - MOST_USES) > 0:
            output.print_line(f"  and {counted(more, 'more run')}")
    for name in unread[:MOST_USES]:
        output.print_line(f"{name} cannot be read, and may use any of them")
    if (more := len(unread) - MOST_USES) > 0:
        output.print_line(f"and {counted(more, 'more run')}")


def is_sure(names: Sequence[str]) -> bool:
    """Ask whoever sits there.

    Raises:
        InputError: Nobody does.
    """
    what = f"the run {names[0]}" if len(names) == 1 else f"these {len(names)} runs"
    if not sys.stdin.isatty():
        raise InputError(f"Deleting {what} cannot be undone: say --yes.")
    sys.stdout.flush()
    sys.stderr.write(f"Delete {what}? This cannot be undone. [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_removed(
    name: str, removed: Removal, uses: Sequence[Use], unread: Sequence[str], as_json: bool
) -> None:
    if as_json:
        used_by = [use.run_id for use in uses]
        record = {"run_id": name, "files": removed.files, "size_bytes": removed.size_bytes}
        output.print_json({**record, "used_by": used_by, "may_be_used_by": unread})
        return
    output.print_line(f"{name}: deleted")
