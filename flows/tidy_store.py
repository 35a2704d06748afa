"""The flow that tidies up a store: what `partwise store gc` does, on a schedule."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from partwise.flows.orchestration.block_parameters import StoreParameter
from partwise.flows.orchestration.plain_flow import plain_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.orchestration.summary_log import BEGINNING
from partwise.planning.tidying import Tidied, plan_tidying, tidy
from partwise.tasks.steps import run_logger


@plain_flow("tidy-store")
def tidy_store(
    *,
    keep_last: Annotated[int, Field(ge=1)] = 30,
    older_than_days: Annotated[float, Field(ge=0, le=36_500)] = 30.0,
    name: str = "*",
    dry_run: bool = False,
    store: StoreParameter = "artifacts",
) -> Tidied:
    """Delete old versions of catalogs, old runs, and files that nothing refers to.

    These are files of other runs, of registrations of datasets that died, rows that runs handed to
    workers, and environments of the machine that this runs on. Versions of datasets stay. A run
    stays that a process works on, that a version of a catalog draws on, or that another run uses
    which stays. What readers could see of a run stays for a day after it was replaced.

    Example:
        >>> tidy_store(keep_last=30, older_than_days=60, dry_run=True)  # doctest: +SKIP

    Args:
        keep_last: How many of the newest runs of each kind, and of the newest versions of each
            catalog, stay in any case.
        older_than_days: Only those go that are older.
        name: Only runs go whose ID is of this pattern, such as nightly-*.
        dry_run: Only say what would go, and delete nothing.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, or the name of a
            StoreBlock that is saved, such as store-block/prod. Or a StoreBlock.

    Returns:
        What went, or would go: bytes by run, and why other old runs stay.
    """
    opened = open_store(store)
    before = datetime.now(UTC) - timedelta(days=older_than_days)
    planned = plan_tidying(opened, keep=keep_last, before=before, pattern=name)
    done = tidy(opened, planned, dry_run=dry_run)
    stays = [f"{run_id} stays: {why}" for run_id, why in done.kept.items()]
    run_logger().info("%s%s", BEGINNING, "\n".join([*stays, *done.lines]))
    return done
