"""The step that runs a study on the cluster: one task for all of its trials."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from partwise.studies.driver import StudyDriver, StudyEnd


@task(
    name="run-study",
    task_run_name="work on {trials} trials",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def run_study_step(driver: StudyDriver, trials: int) -> StudyEnd:  # noqa: ARG001 (names the task run)
    """Run a study to its end, and return how it ended."""
    return driver.run()
