"""Both of Prefect's UIs in a real browser: fill in a form, start a run, look at what it left."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterName,
)

from partwise.runs.run import Run
from tests.flows.operations.project import Production, processes_of, wait_until
from tests.lazily import Lazily

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

sync_api = Lazily("playwright.sync_api")

TIMEOUT_MS = 60_000

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]

Show = Callable[["Page", str], None]


@pytest.fixture(scope="module")
def browser(chromium: str) -> "Iterator[Browser]":
    with sync_api.sync_playwright() as playwright:
        # As root there is no sandbox to be had.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: "Browser", production: Production) -> "Iterator[Page]":
    """A page of somebody who has told Prefect's UI the password."""
    opened = browser.new_page(viewport={"width": 1280, "height": 1400})
    opened.set_default_timeout(TIMEOUT_MS)
    opened.goto(f"{production.ui_url}/v2/deployments")
    opened.locator("input[type=password]").fill(production.project.password)
    opened.get_by_role("button", name="Login").click()
    opened.get_by_text("Automations").first.wait_for()
    yield opened
    opened.close()


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """Keep a picture of a page, in the folder of PARTWISE_SCREENSHOTS or that of the test."""
    folder = Path(os.environ.get("PARTWISE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def keep(page: "Page", name: str) -> None:
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    return keep


def form_of(production: Production, deployment: str, *, version: str) -> str:
    found = production.client.read_deployment_by_name(deployment)
    return f"{production.ui_url}{version}/deployments/deployment/{found.id}/run"


def submit(page: "Page") -> None:
    """Press the button until a flow run is made.

    After a refusal, Prefect's form uses the first press to look whether all is well now.
    """
    for _ in range(6):
        with suppress(sync_api.TimeoutError):
            with page.expect_response(
                lambda response: "create_flow_run" in response.url, timeout=5_000
            ) as made:
                page.get_by_role("button", name="Submit").click()
            assert made.value.status == 201, made.value.text()
            return
    pytest.fail("no flow run was made")


def flow_run_named(production: Production, run_id: str) -> UUID:
    chosen = FlowRunFilter(name=FlowRunFilterName(any_=[run_id]))
    [found] = wait_until(
        lambda: production.client.read_flow_runs(flow_run_filter=chosen), f"{run_id} to begin"
    )
    return found.id


def area(page: "Page", label: str) -> "Locator":
    """The text field below a label."""
    return page.get_by_text(label, exact=True).first.locator("xpath=following::textarea[1]")


def test_a_person_trains_from_the_form(production: Production, page: "Page", show: Show) -> None:
    page.goto(form_of(production, "train-models/train", version="/v2"))
    sync_api.expect(page.get_by_text("The key column, or a list of them.")).to_be_visible()
    for tab in ("Path", "Columns", "LightGBM", "XGBoost", "Function", "Random holdout"):
        sync_api.expect(page.get_by_role("tab", name=tab, exact=True)).to_be_visible()
    for title in ("Time limit of a partition (s)", "Failed partitions allowed"):
        sync_api.expect(page.get_by_text(f"{title} (Optional)", exact=True)).to_be_visible()
    assert 'type "None"' not in page.inner_text("body")
    # No form can hold a table in memory, and none speaks of one.
    assert "pandas" not in page.inner_text("body")

    # What is missing is named, where it is missing.
    page.get_by_role("button", name="Submit").click()
    sync_api.expect(page.get_by_text("'data' is a required property").first).to_be_visible()
    sync_api.expect(page.get_by_text("'partition_by' is a required property")).to_be_visible()
    show(page, "form-refused")

    area(page, "data").fill(str(production.folder / "rows.parquet"))
    area(page, "partition_by").fill("k")
    area(page, "Label (Optional)").fill("y")
    area(page, "run_id (Optional)").fill("from-form")
    area(page, "store (Optional)").fill(str(production.folder / "form-store"))
    show(page, "form-filled")
    submit(page)

    run_id = flow_run_named(production, "from-form")
    ended = production.wait(run_id)
    assert ended.state is not None
    assert ended.state.name == "Completed", ended.state
    run = Run.open("from-form", production.folder / "form-store")
    assert run.counts == {"DONE": 8}

    page.goto(f"{production.ui_url}/v2/runs/flow-run/{run_id}")
    sync_api.expect(page.get_by_text("from-form").first).to_be_visible()
    sync_api.expect(page.get_by_text("Completed").first).to_be_visible()
    page.get_by_role("tab", name="Artifacts").click()
    sync_api.expect(page.get_by_text("8 of 8 partitions")).to_be_visible()
    show(page, "artifacts")
    chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    artifacts = production.client.read_artifacts(artifact_filter=chosen)
    [summary] = [each for each in artifacts if each.key == "train-models-summary"]
    page.goto(f"{production.ui_url}/v2/artifacts/artifact/{summary.id}")
    sync_api.expect(page.get_by_role("heading", name="from-form: SUCCESS")).to_be_visible()
    sync_api.expect(page.get_by_text("holdout_rmse").first).to_be_visible()
    show(page, "summary")
    page.get_by_role("link", name="Open the report").click()
    sync_api.expect(page).to_have_title("from-form · SUCCESS · partwise")
    sync_api.expect(page.get_by_role("heading", name="Metrics", exact=True)).to_be_visible()
    show(page, "report")
    # In a tab of its own from the older UI.
    page.goto(f"{production.ui_url}/artifacts/artifact/{summary.id}")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open the report").click()
    sync_api.expect(opened.value).to_have_title("from-form · SUCCESS · partwise")


def test_the_older_form_works_as_well(production: Production, page: "Page", show: Show) -> None:
    page.goto(form_of(production, "map-partitions/map", version=""))
    sync_api.expect(page.get_by_text("The key column, or a list of them.")).to_be_visible()
    areas = page.locator("textarea")
    areas.nth(0).fill(str(production.folder / "rows.parquet"))
    areas.nth(1).fill("k")
    areas.nth(2).fill("mine:first_row")
    area(page, "run_id (Optional)").fill("from-older-form")
    show(page, "older-form")
    submit(page)
    ended = production.wait(flow_run_named(production, "from-older-form"))
    assert ended.state is not None
    assert ended.state.name == "Completed", ended.state


def choose(page: "Page", label: str) -> None:
    """Choose something from the menu of a flow run, and confirm it."""
    page.get_by_role("button").filter(
        has=page.locator("svg.lucide-ellipsis-vertical")
    ).first.click()
    page.get_by_role("menuitem", name=label).click()
    dialog = page.get_by_role("dialog").or_(page.get_by_role("alertdialog"))
    dialog.get_by_role("button").filter(has_text=label).last.click()


def test_a_run_is_suspended_resumed_and_retried_by_clicks(
    production: Production, page: "Page", show: Show
) -> None:
    production.forget_words()
    parameters = production.small("paused", function="mine:wait_for_word")
    run_id = production.run("map-partitions/map", parameters)
    production.await_words(2)
    page.goto(f"{production.ui_url}/v2/runs/flow-run/{run_id}")
    sync_api.expect(page.get_by_text("paused").first).to_be_visible()
    choose(page, "Pause")

    def stands(status: str) -> Callable[[], bool]:
        return lambda: Run.open("paused", production.store).status.value == status

    wait_until(stands("CANCELLED"), "the run to be given up")
    wait_until(lambda: not processes_of(run_id), "its processes to end")
    assert production.state(run_id) == "Suspended"
    show(page, "suspended")

    (production.folder / "go").touch()
    page.reload()
    choose(page, "Resume")
    wait_until(stands("SUCCESS"), "the run to go on")
    assert production.wait(run_id).state_name == "Completed"
    run = Run.open("paused", production.store)
    assert (run.counts, run.kept) == ({"DONE": 8}, 1)

    # Of a run that is complete there is nothing left to do.
    before = production.client.read_flow_run(run_id).run_count
    page.reload()
    choose(page, "Retry")
    wait_until(
        lambda: production.client.read_flow_run(run_id).run_count > before, "a retry to begin"
    )
    retried = production.wait(run_id).state
    assert retried is not None
    assert retried.message == "All 8 partitions were done already."


def test_a_schedule_is_switched_by_a_click(
    production: Production, page: "Page", show: Show
) -> None:
    deployment = production.client.read_deployment_by_name("model-pipeline/nightly-pipeline").id

    def is_on() -> bool:
        [schedule] = production.client.read_deployment_schedules(deployment)
        return schedule.active

    page.goto(f"{production.ui_url}/v2/deployments/deployment/{deployment}")
    switch = page.get_by_role("switch").first
    sync_api.expect(switch).not_to_be_checked()
    assert not is_on()
    switch.click()
    wait_until(is_on, "the schedule to be on")
    show(page, "schedule-on")
    sync_api.expect(switch).to_be_checked()
    switch.click()
    wait_until(lambda: not is_on(), "the schedule to be off")


def test_a_run_is_cancelled_by_a_click(production: Production, page: "Page") -> None:
    production.forget_words()
    parameters = production.small("clicked", function="mine:wait_for_word")
    run_id = production.run("map-partitions/map", parameters)
    production.await_words(2)
    page.goto(f"{production.ui_url}/v2/runs/flow-run/{run_id}")
    sync_api.expect(page.get_by_text("clicked").first).to_be_visible()
    choose(page, "Cancel")
    ended = production.wait(run_id)
    assert ended.state is not None
    assert ended.state.name == "Cancelled", ended.state
    run = Run.open("clicked", production.store)
    assert run.status.value == "CANCELLED"
    assert run.counts["DONE"] >= 1
