"""The last step of a pipeline: its stages as one table in Prefect's UI."""

from partwise.formatting import duration
from partwise.runs.documents import REPORT_FILE
from partwise.runs.pipeline import Pipeline
from partwise.tasks.flow_run import is_direct
from partwise.tasks.publish_report import link_of
from partwise.tasks.steps import step


@step("publish-pipeline", "publish pipeline")
def publish_pipeline(pipeline: Pipeline) -> None:
    """Create an artifact of the flow run that shows how each stage ended."""
    if is_direct():
        return
    from prefect.artifacts import create_markdown_artifact
    from prefect.runtime import flow_run

    create_markdown_artifact(
        key=f"{flow_run.flow_name}-summary",
        markdown=describe_pipeline(pipeline),
        description=f"How the pipeline {pipeline.run_id} ended.",
    )


def describe_pipeline(pipeline: Pipeline) -> str:
    """Return how a pipeline ended, as Markdown: a row for each stage."""
    lines = [
        f"# {pipeline.run_id}: {pipeline.status.value}",
        "",
        pipeline.message,
        "",
        "| run | status | partitions | took | report |",
        "|---|---|---|---|---|",
    ]
    for run in pipeline.runs:
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(run.counts.items()))
        took = "" if run.summary is None else duration(sum(run.summary.stages.values()))
        link = link_of(run)
        report = f"[open]({link})" if link else f"{run.path}/{REPORT_FILE}"
        lines.append(f"| {run.run_id} | {run.status.value} | {counts} | {took} | {report} |")
    return "\n".join(lines) + "\n"
