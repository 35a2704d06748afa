"""The step that runs a study on the cluster: one task for all of its trials."""

from partwise.studies.driver import StudyDriver, StudyEnd
from partwise.tasks.steps import step


@step("run-study", "work on {trials} trials")
def run_study_step(driver: StudyDriver, trials: int) -> StudyEnd:  # noqa: ARG001 (names the task run)
    """Run a study to its end, and return how it ended."""
    return driver.run()
