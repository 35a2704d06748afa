"""The step after a complete run: its rows, appended to a table of a database."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from partwise.tasks.errors import InputError, OutputError
from partwise.tasks.partitions.outcomes import RunStatus
from partwise.tasks.runs import Run
from partwise.tasks.runs.sql_output import Published, Table, publish


@task(
    name="publish-rows",
    task_run_name="append rows to {table.name}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def publish_rows(run: Run, table: Table) -> Published:
    """Append the rows of a run to a table, each partition exactly once.

    Args:
        run: A run that has ended.
        table: Where to.

    Raises:
        OutputError: They could not be; the run stays as it is, and the message says how to repeat
            only this.
    """
    try:
        published = publish(run, table)
    except (OutputError, InputError) as error:
        raise OutputError(
            f"The run {run.run_id!r} is complete ({run.status.value}), but not all of its rows are "
            f"in {table.name}: {error} The same call with on_existing_artifacts='resume' runs "
            "nothing again, and appends what is missing."
        ) from error
    get_run_logger().info("Run %s: %s.", run.run_id, published)
    create_markdown_artifact(
        key=f"{flow_run.flow_name}-output",
        markdown=f"{published}.",
        description=f"What the run {run.run_id} appended to a table.",
    )
    return published


def with_output(run: Run, table: Table | None) -> Run:
    """Return a run whose rows are in the table, where one is wanted and the run has ended well.

    Raises:
        OutputError: They could not be appended.
    """
    if table is not None and run.status in (RunStatus.SUCCESS, RunStatus.PARTIAL_FAILURE):
        publish_rows(run, table)
    return run
