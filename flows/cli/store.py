"""`partwise store`: tidy up all that lies in a store."""

from typing import TYPE_CHECKING

from cyclopts import App

from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import FAILURE
from partwise.flows.cli.moments import moment_of
from partwise.flows.cli.options import AnyStore, Count, Json, Yes
from partwise.flows.cli.parsing import COMMON
from partwise.formatting import size

if TYPE_CHECKING:
    from partwise.planning.tidying import Tidied, Tidying

stores = App(
    name="store",
    help="Tidy up a store: old runs that nothing holds or uses, and what nothing refers to.",
    default_parameter=COMMON,
)


@stores.command(name="gc")
def collect(
    *,
    keep_last: Count = 30,
    older_than: str = "30d",
    name: str = "*",
    dry_run: bool = False,
    yes: Yes = False,
    store: AnyStore = "artifacts",
    as_json: Json = False,
) -> int:
    """Delete old versions of catalogs, old runs, and files that nothing refers to.

    These are files of other runs, of registrations of datasets that died, rows that runs handed to
    workers, and environments on this machine. Versions of datasets stay. A run stays that a process
    works on, that a version of a catalog draws on, or that another run uses which stays; it is said
    which. What readers could see of a run stays for a day after it was replaced.

    Args:
        keep_last: How many of the newest runs of each kind, and of the newest versions of each
            catalog, stay in any case.
        older_than: Only those go that are older: 30d, 12h, 2w, or a moment such as 2026-11-20.
        name: Only runs go whose ID is of this pattern, such as "nightly-*".
        dry_run: Only say what would go, what stays and why, and what waits for its day to pass.
        as_json: Print a JSON object for each run and file, for what could not be looked into, and
            one with the number of environments; goes with --yes or --dry-run.
    """
    from partwise.flows.cli.run_removal import is_sure
    from partwise.planning.tidying import plan_tidying, tidy
    from partwise.store.store import Store

    opened, before = Store.of(store), moment_of(older_than, "--older-than")
    planned = plan_tidying(opened, keep=keep_last, before=before, pattern=name)
    if not as_json:
        _print_old(planned)
    if planned.sizes and not dry_run and not yes and not is_sure([*planned.sizes]):
        output.tell("nothing was deleted")
        return FAILURE
    done = tidy(opened, planned, dry_run=dry_run)
    for run_id in planned.sizes:
        if run_id in done.kept:
            output.tell(f"{run_id} stays: {done.kept[run_id]}")
    if as_json:
        _print_json(planned, done)
    else:
        for line in done.lines:
            output.print_line(line)
    return 0


def _print_old(planned: "Tidying") -> None:
    for each in planned.old:
        if each.kept_by:
            output.print_line(f"{'stays':>10}  {each.run_id}: {each.kept_by}")
        else:
            about = f"{each.kind}, {each.at:%Y-%m-%d}"
            freed = size(planned.sizes[each.run_id])
            output.print_line(f"{freed:>10}  {each.run_id} ({about})")


def _print_json(planned: "Tidying", done: "Tidied") -> None:
    """Print an object for each old run, each other file, what was not read, and environments."""
    for run_id, size_bytes in planned.sizes.items():
        record = {"run_id": run_id, "size_bytes": size_bytes}
        output.print_json({**record, "deleted": not done.dry_run and run_id not in done.kept})
    for run_id, why in done.kept.items():
        output.print_json({"run_id": run_id, "deleted": False, "kept_by": why})
    found = [each for run in done.rest if run.garbage for each in run.garbage.files]
    waiting = [each for run in done.rest if run.garbage for each in run.garbage.waiting]
    output.print_garbage(
        [*done.versions, *found, *done.data.files],
        "",
        dry_run=done.dry_run,
        as_json=True,
        waiting=waiting,
    )
    unread = [("run_id", run.run_id, run.why) for run in done.rest if run.why]
    unread += [("dataset", name, why) for name, why in done.data.why.items()]
    for what, name, why in unread:
        output.print_json({what: name, "status": "UNREADABLE", "error": why})
    output.print_json({"environments": done.environments, "deleted": not done.dry_run})
