"""A script that was sent to a run, and its driver, in this process, by the parts that flows use."""

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from partwise.calls.script import ScriptCall
from partwise.gangs.ledger import commit_ranks
from partwise.planning.script import prepare_script, store_source, take_code
from partwise.reports.report import write_report
from partwise.runs.claim import Claim
from partwise.runs.completion import settle_unchanged
from partwise.runs.run import Run
from partwise.scripts.inputs import find_input, find_path, send_input
from partwise.store.store import Store
from tests.one_model import rank_end

RUN_ID = "script"
CALL = ScriptCall(
    run_id=RUN_ID,
    entry_script="main.py",
    timeout_s=1.0,
    grace_s=1.0,
    join_timeout_s=1.0,
    max_retries=0,
    outputs=(),
    resume_argument="",
    on_existing_artifacts="resume",
)


def send(store: Store, text: str) -> tuple[ScriptCall, dict[str, str]]:
    """Send a source directory and an input, each with a file of this text."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.py").write_text(f"print({text!r})")
        (folder / "rows.csv").write_text(text)
        found = find_path(str(folder / "rows.csv"))
        assert found is not None
        inputs = {"rows": send_input(found, store, RUN_ID)}
        local = replace(CALL, source_directory=name)
        source = store_source(local, take_code(local, store), store)
        return replace(CALL, source_directory=source), inputs


def drive_script(store: Store, text: str = "first") -> Run:
    """Send a script, and carry it out; its only rank leaves nothing."""
    call, inputs = send(store, text)
    started_at = datetime.now(UTC)
    plan = prepare_script(call, inputs, store, inputs)
    with Claim(store, plan.identity, plan.on_existing) as claim:
        if claim.is_settled(plan.intent):
            claim.begin(n_shards=0, intent=plan.intent)
            run = settle_unchanged(claim, started_at)
        else:
            claim.begin(n_shards=1, intent=plan.intent, partitions=1)
            run = commit_ranks(claim, [rank_end(0)], 1, started_at=started_at)
        write_report(run)
        return run


def check_script(run: Run) -> None:
    """See that a run is complete, and that all is there which it was sent."""
    assert run.counts == {"DONE": 1}, f"counts are {run.counts}"
    call = run.read_generation_document().call
    assert call is not None
    arguments = call["arguments"]
    assert take_code(replace(CALL, source_directory=arguments["source_directory"]), run.store).names
    with tempfile.TemporaryDirectory() as folder:
        found = find_input("rows", arguments["inputs"]["rows"], run.store)
        found.bring("rows", Path(folder), run.store)
