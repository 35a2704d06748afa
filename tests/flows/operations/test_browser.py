"""Both of Prefect's UIs in a real browser: fill in a form, start a run, look at what it left."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
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
from prefect.client.schemas.objects import StateType

from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from tests.flows.operations.project import Production, processes_of, wait_until
from tests.lazily import Lazily

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

sync_api = Lazily("playwright.sync_api")

TIMEOUT_MS = 60_000

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chromium")]

STILL = """addEventListener("DOMContentLoaded", () => {
    const still = "animation: none !important; transition: none !important";
    document.head.append(Object.assign(document.createElement("style"), {
        textContent: `*, *::before, *::after {${still}}`,
    }));
});"""
"""Nothing moves: to draw what turns while a flow run is at work takes more than the flow run."""

Show = Callable[["Page", str], None]


@pytest.fixture(scope="module")
def profile(chromium: str, production: Production) -> "Iterator[BrowserContext]":
    """A browser of somebody who has told Prefect's UI the password, which it remembers.

    Each test has a page of its own in it: nothing else is kept from one to the next, but that the
    browser has read the UI's scripts, of several MB.
    """
    with sync_api.sync_playwright() as playwright:
        # As root there is no sandbox to be had; and it would play a GPU, for a third of its time.
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        made = browser.new_context(viewport={"width": 1280, "height": 1400})
        made.add_init_script(STILL)
        made.set_default_timeout(TIMEOUT_MS)
        page = made.new_page()
        page.goto(f"{production.ui_url}/v2/deployments")
        page.locator("input[type=password]").fill(production.project.password)
        page.get_by_role("button", name="Login").click()
        page.get_by_text("Automations").first.wait_for()
        page.close()
        yield made
        browser.close()


@pytest.fixture
def page(profile: "BrowserContext") -> "Iterator[Page]":
    """An empty page in the browser of somebody who is logged in."""
    opened = profile.new_page()
    yield opened
    opened.close()


@pytest.fixture
def show() -> Show:
    """Keep a picture of a page in the folder of PARTWISE_SCREENSHOTS, where somebody named one."""
    folder = os.environ.get("PARTWISE_SCREENSHOTS")

    def keep(page: "Page", name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    return keep


def form_of(production: Production, deployment: str, *, version: str) -> str:
    found = production.client.read_deployment_by_name(deployment)
    return f"{production.ui_url}{version}/deployments/deployment/{found.id}/run"


def leave(page: "Page") -> None:
    """Go away: while somebody looks at a flow run, browser and server have work with it."""
    page.goto("about:blank")


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
            leave(page)
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
    with page.expect_response(lambda response: response.url.endswith(SENT)):
        dialog.get_by_role("button").filter(has_text=label).last.click()


SENT = ("/set_state", "/resume")
"""How the addresses end to which the UI sends what was chosen."""


def test_a_run_is_suspended_resumed_and_retried_by_clicks(
    production: Production, page: "Page", show: Show
) -> None:
    production.forget_words()
    parameters = production.small("paused", function="mine:wait_for_word")
    run_id = production.run("map-partitions/map", parameters)
    production.await_words(2)
    at = f"{production.ui_url}/v2/runs/flow-run/{run_id}"
    page.goto(at)
    sync_api.expect(page.get_by_text("paused").first).to_be_visible()
    choose(page, "Pause")
    leave(page)

    # It ends in order, and what was done is kept.
    wait_until(lambda: not processes_of(run_id), "its processes to end", timeout_s=60)
    assert production.state(run_id) == "Suspended"
    run = Run.open("paused", production.store)
    assert (run.status, run.counts) == (RunStatus.CANCELLED, {"DONE": 1, "CANCELLED": 7})

    # It goes on where it was.
    (production.folder / "go").touch()
    page.goto(at)
    show(page, "suspended")
    choose(page, "Resume")
    leave(page)
    assert production.wait(run_id).state_name == "Completed"
    run = Run.open("paused", production.store)
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": 8})
    assert (run.generation, run.kept, run.executed) == (2, 1, 7)
    lines = production.lines_of(run_id)
    assert "suspended: what is done is kept, and Resume goes on with the rest" in lines
    assert not [line for line in lines if "Traceback" in line or "Error" in line]

    # Of a run that is complete there is nothing left to do.
    before = production.client.read_flow_run(run_id).run_count
    page.goto(at)
    choose(page, "Retry")
    leave(page)
    wait_until(
        lambda: production.client.read_flow_run(run_id).run_count > before, "a retry to begin"
    )
    retried = production.wait(run_id).state
    assert retried is not None
    assert retried.message == "All 8 partitions were done already."
    production.forget_words()


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


def test_cancelling_by_a_click_keeps_what_was_committed_and_leaves_no_process(
    production: Production, page: "Page"
) -> None:
    production.forget_words()
    parameters = production.small("clicked", function="mine:wait_for_word")
    run_id = production.run("map-partitions/map", parameters)
    production.await_words(2)
    page.goto(f"{production.ui_url}/v2/runs/flow-run/{run_id}")
    sync_api.expect(page.get_by_text("clicked").first).to_be_visible()
    choose(page, "Cancel")
    leave(page)
    ended = production.wait(run_id)
    assert ended.state is not None
    assert ended.state.name == "Cancelled", ended.state
    states = production.client.read_flow_run_states(run_id)
    [asked] = [state.timestamp for state in states if state.type is StateType.CANCELLING]
    assert ended.state.timestamp - asked < timedelta(seconds=10)
    run = Run.open("clicked", production.store)
    assert (run.status, run.counts) == (RunStatus.CANCELLED, {"DONE": 1, "CANCELLED": 7})
    wait_until(lambda: not processes_of(run_id), "its processes to end", timeout_s=10)
