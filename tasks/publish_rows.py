"""The step after a complete run: its rows, appended to a table, or made a version of a dataset."""

from partwise.engine.options import ExecutionOptions
from partwise.errors import OutputError, PartwiseError
from partwise.formatting import counted
from partwise.outcomes import RunStatus
from partwise.publishing.dataset_output import register_output
from partwise.publishing.output import Output
from partwise.publishing.sql_output import Table, publish
from partwise.runs.outputs import has_rows
from partwise.runs.run import Run
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import run_logger, run_step, step


@step("publish-rows", "publish rows to {output}")
def publish_rows(run: Run, output: Output) -> str:
    """Publish the rows of a run, each partition exactly once; returns what was done.

    Raises:
        OutputError: They could not be; the run stays as it is, and the message says how to repeat
            only this.
    """
    try:
        if isinstance(output, Table):
            # Of a run without rows, too: what an earlier generation wrote is taken out.
            published = str(publish(run, output))
        elif not has_rows(run):
            published = f"no new version of {output}, since there are no rows"
        else:
            made = register_output(output.name, run)
            rows, name = counted(made.dataset.rows, "row"), made.dataset.reference
            published = f"{rows} registered as {name}" if made.is_new else f"{rows} are {name}"
    except PartwiseError as error:
        raise OutputError(
            f"The run {run.run_id!r} is complete ({run.status.value}), but not all of its rows are "
            f"in {output}: {error} The same call with on_existing_artifacts='resume' runs "
            "nothing again, and publishes what is missing."
        ) from error
    run_logger().info("Run %s: %s.", run.run_id, published)
    if not is_direct():
        from prefect.artifacts import create_markdown_artifact
        from prefect.runtime import flow_run

        create_markdown_artifact(
            key=f"{flow_run.flow_name}-output",
            markdown=f"{published}.",
            description=f"What the run {run.run_id} published.",
        )
    return published


def with_output(run: Run, output: Output | None, options: ExecutionOptions) -> Run:
    """Return a run whose rows are where they are wanted, if anywhere, and the run has ended well.

    Those of a dry run are published nowhere.

    Raises:
        OutputError: They could not be published.
    """
    if output is not None and options.sample is not None:
        run_logger().info("Run %s: a dry run, nothing goes to %s.", run.run_id, output)
    elif output is not None and run.status not in (RunStatus.FAILURE, RunStatus.CANCELLED):
        run_step(publish_rows, run, output)
    return run
