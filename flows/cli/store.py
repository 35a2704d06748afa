"""`partwise store`: tidy up all that lies in a store."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import FAILURE
from partwise.flows.cli.moments import moment_of
from partwise.flows.cli.options import Json, StoreUrl
from partwise.flows.cli.parsing import COMMON
from partwise.formatting import counted, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from partwise.catalogs.retention import OldRun, RunGarbage

stores = App(
    name="store",
    help="Tidy up a store: old runs that nothing holds or uses, and what nothing refers to.",
    default_parameter=COMMON,
)


@stores.command(name="gc")
def collect(
    *,
    keep_last: Annotated[int, Parameter(validator=Number(gte=1))] = 30,
    older_than: str = "30d",
    name: str = "*",
    dry_run: bool = False,
    yes: Annotated[bool, Parameter(name="--yes", alias="-y")] = False,
    store: StoreUrl = "artifacts",
    as_json: Json = False,
) -> int:
    """Delete old versions of catalogs, old runs, and files of other runs that nothing refers to.

    A run stays that a process works on, that a version of a catalog draws on, or that another run
    uses which stays; it is said which. What readers could see of a run stays for a day after it was
    replaced.

    Args:
        keep_last: How many of the newest runs of each kind, and of the newest versions of each
            catalog, stay in any case.
        older_than: Only those go that are older: 30d, 12h, 2w, or a moment such as 2026-11-20.
        name: Only runs go whose ID is of this pattern, such as "nightly-*".
        dry_run: Only say what would go, what stays and why, and what waits for its day to pass.
        yes: Do not ask.
        store: A folder, or a URL such as s3://bucket/folder.
        as_json: Print a JSON object for each run and file; goes with --yes or --dry-run.
    """
    from partwise.catalogs import retention
    from partwise.flows.cli.run_removal import is_sure
    from partwise.runs.contents import list_runs
    from partwise.store.store import Store

    opened, before = Store.parse(store), moment_of(older_than, "--older-than")
    versions = retention.collect_catalogs(opened, keep=keep_last, before=before, dry_run=True)
    freed = {path for path, _ in versions}
    old = retention.old_runs(opened, keep=keep_last, before=before, pattern=name, freed=freed)
    going = retention.in_order_of_removal(opened, old)
    sizes = {each: retention.size_of(opened, each, freed) for each in going}
    if not as_json:
        _print_old(old, sizes)
    if not dry_run:
        if going and not yes and not is_sure(going):
            output.tell("nothing was deleted")
            return FAILURE
        versions = retention.collect_catalogs(opened, keep=keep_last, before=before, dry_run=False)
    said = {each.run_id: each.kept_by for each in old if each.kept_by}
    for run_id in [] if dry_run else going:
        removed = retention.remove_old(opened, run_id)
        if isinstance(removed, str):
            said[run_id] = removed
            output.tell(f"{run_id} stays: {removed}")
    others = [each for each in list_runs(opened) if each not in sizes]
    rest = retention.collect_rest(opened, others, dry_run=dry_run)
    if as_json:
        for run_id in going:
            record = {"run_id": run_id, "size_bytes": sizes[run_id]}
            output.print_json({**record, "deleted": not dry_run and run_id not in said})
        for run_id, why in said.items():
            output.print_json({"run_id": run_id, "deleted": False, "kept_by": why})
    gone = [each for each in going if each not in said]
    _print_rest(versions, gone, sum(sizes[each] for each in gone), rest, dry_run, as_json)
    return 0


def _print_old(old: "Sequence[OldRun]", sizes: dict[str, int]) -> None:
    out = output.console()
    for each in old:
        if each.kept_by:
            out.print(f"{'stays':>10}  {each.run_id}: {each.kept_by}", markup=False)
        else:
            about = f"{each.kind}, {each.at:%Y-%m-%d}"
            out.print(f"{size(sizes[each.run_id]):>10}  {each.run_id} ({about})", markup=False)


def _print_rest(
    versions: "Sequence[tuple[str, int]]",
    gone: "Sequence[str]",
    size_bytes: int,
    rest: "Sequence[RunGarbage]",
    dry_run: bool,
    as_json: bool,
) -> None:
    """Print what else goes, or would: each file as JSON, else how many there are."""
    found = [each for run in rest if run.garbage for each in run.garbage.files]
    waiting = [each for run in rest if run.garbage for each in run.garbage.waiting]
    if as_json:
        output.print_garbage(
            [*versions, *found], "", dry_run=dry_run, as_json=True, waiting=waiting
        )
        return
    out, verb = output.console(), "would be deleted" if dry_run else "deleted"
    out.print(f"{counted(len(gone), 'run')} {verb}, {size(size_bytes)}", markup=False)
    for files, what in ((versions, "of old versions of catalogs"), (found, "of other runs")):
        total = size(sum(each for _, each in files))
        out.print(f"{counted(len(files), 'file')} {what} {verb}, {total}", markup=False)
    for run in rest:
        if run.why:
            out.print(f"not looked into: {run.run_id}: {run.why}", markup=False)
    if waiting:
        total = size(sum(each for _, each in waiting))
        them = counted(len(waiting), "more file")
        out.print(f"{them} of other runs, {total}: once readers have had their day", markup=False)
