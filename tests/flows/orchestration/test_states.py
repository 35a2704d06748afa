"""How the end of a run becomes an error that explains itself."""

import logging
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pyarrow as pa
import pytest

from partwise.errors import RunFailedError
from partwise.flows.cli.exit_codes import FAILURE, INTERRUPTED, PARTIAL_FAILURE, SUCCESS
from partwise.flows.orchestration.endings import Masking, result_of
from partwise.flows.orchestration.states import state_of
from partwise.outcomes import RunStatus
from partwise.runs.run import Run

LEDGER = {
    "status": ["INTERNAL_ERROR", "CANCELLED"],
    "reason": [None, "stopped"],
    "error_message": ["The Dask worker tcp://127.0.0.1:1 ended, or is out of reach.", None],
}


@pytest.mark.parametrize(
    ("row", "said"),
    [({}, "The Dask worker"), ({"reason": "lost"}, "lost"), ({"error_message": None}, "nobody")],
)
def test_a_lost_worker_is_told_wherever_the_ledger_has_it(row, said) -> None:
    """The ledger has it as a reason of a shard, and as the error of a rank."""
    ledger = {name: [row.get(name, values[0]), values[1]] for name, values in LEDGER.items()}
    run = create_autospec(Run, instance=True, run_id="gang", status=RunStatus.FAILURE, cause=None)
    run.summary = SimpleNamespace(message="FAILURE: 2 partitions.")
    run.ledger = pa.table(ledger)
    run.failures.return_value = pa.table({"count": [], "error_type": [], "error_message": []})
    with pytest.raises(RunFailedError, match=f"1 x INTERNAL_ERROR: {said}"):
        result_of(run)
    assert said in state_of(run).message


def test_the_docs_have_each_status_with_its_state_and_exit_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    documented = {row[0]: row for row in rows if row[0] in {*RunStatus}}
    assert {*documented} == {*RunStatus}
    codes = {"SUCCESS": SUCCESS, "PARTIAL_FAILURE": PARTIAL_FAILURE, "SKIPPED": SUCCESS}
    codes |= {"FAILURE": FAILURE, "CANCELLED": INTERRUPTED}
    for status, code in codes.items():
        run = create_autospec(Run, instance=True, run_id="r", cause=None)
        run.status, run.summary = RunStatus(status), None
        run.ledger = pa.table({"status": pa.array([], pa.string())})
        run.ledger = run.ledger.append_column("reason", pa.array([], pa.string()))
        run.ledger = run.ledger.append_column("error_message", pa.array([], pa.string()))
        run.failures.return_value = pa.table({"count": [], "error_type": [], "error_message": []})
        state = state_of(run)
        _, _, shown, exit_code = documented[status]
        kind = f", of the type {state.type.value.capitalize()}"
        plain = state.name.lower() == state.type.value.lower()
        assert (shown, int(exit_code)) == (f"{state.name}{'' if plain else kind}", code)


def test_a_message_that_does_not_fit_its_arguments_ends_no_flow(caplog) -> None:
    log = logging.getLogger("a-flow")
    log.addFilter(masking := Masking())
    try:
        log.error("%d keys", "password=hunter2hunter")
    finally:
        log.removeFilter(masking)
    assert f"what {__file__}:" in caplog.text
    assert "cannot be said: TypeError: %d format" in caplog.text
    assert "hunter2" not in caplog.text
