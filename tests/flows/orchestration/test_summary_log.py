"""The end of a run, as a caller from Python and the UI of Prefect read it."""

import logging

import pyarrow as pa

from partwise.flows import map_partitions
from partwise.flows.cli.main import main
from partwise.flows.orchestration.summary_log import BEGINNING, is_summary
from partwise.outcomes import Skip
from partwise.runs.run import Run


def test_a_call_ends_with_what_the_command_line_prints(cluster, tmp_path, caplog, capsys) -> None:
    def decline(data, context):
        return Skip("\x1b[2Jfor a test") if context.key == "a" else None

    caplog.set_level(logging.INFO, logger="prefect.flow_runs")
    table = pa.table({"k": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    run = map_partitions(table, "k", decline, run_id="said", store=str(tmp_path), cluster=cluster)
    (summary,) = [record for record in caplog.records if is_summary(record)]
    first, *lines = summary.getMessage().removeprefix(BEGINNING).splitlines()
    assert first.startswith("said  SUCCESS in ")
    assert "  partitions  3: 2 DONE, 1 SKIPPED" in lines
    assert f"  report      {run.report()}" in lines
    assert "\x1b" not in summary.getMessage()
    assert "\u241b[2Jfor a test" in summary.getMessage()

    assert main(["runs", "show", "said", "--store", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line not in printed] == []
    assert isinstance(run, Run)
