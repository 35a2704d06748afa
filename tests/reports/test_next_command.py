"""What to type after a run: it can be typed as it stands."""

import shlex
import sys
from pathlib import Path

import pytest

from partwise.flows.cli.main import app
from partwise.flows.cli.parsing import parse_condition
from partwise.reports import next_command as module
from partwise.reports.next_command import next_command, program, store_option


@pytest.fixture
def trained(make_runs):
    """A run of training with a call, as a function of what the call says of its rows."""
    from dataclasses import replace

    from partwise.runs.claim import Claim, Intent

    def make(data, kind="train", **arguments):
        maker = make_runs()
        maker.serde = "plain"
        maker.identity = replace(maker.identity, kind=kind)
        maker._claim = claim = Claim(maker.store, maker.identity, "error")
        claim.__enter__()
        intent = Intent(
            source_fingerprint="s",
            inputs_fingerprint="i",
            code_fingerprint="c",
            call={"flow": "train_models", "data": data, "arguments": arguments, "version": None},
        )
        claim.begin(n_shards=1, intent=intent)
        maker.commit(("a", "DONE", 1.0))
        return maker.end(1)

    return make


CONDITIONS = [["unit price", ">=", 1.5], ["städte", "in", ["a b", "c"]], ["day", "<", "2026-01-01"]]


def test_the_command_names_the_rows_and_which_of_them(trained) -> None:
    data = {"paths": ["/data/my rows.parquet"], "columns": None, "filter": [CONDITIONS]}
    run = trained(data)
    words = shlex.split(next_command(run)[0])
    assert words[:3] == ["partwise", "infer", "/data/my rows.parquet"]
    texts = [words[i + 1] for i, word in enumerate(words) if word == "--filter"]
    assert [list(parse_condition(text)) for text in texts] == CONDITIONS
    assert words[-6:] == [
        *("--partition-by", "key", "--training-run-id", "run", "--store", run.store.url)
    ]
    app.parse_args(words[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"query": "select 1"},
        {"paths": ["a", "b", "c", "d"]},
        {"paths": ["a.csv"], "format": "csv"},
        {"paths": ["a"], "filter": [[["x", "=", 1]], [["x", "=", 2]]]},
        {"paths": ["a"], "filter": [[["x", "=", {"date": "2026"}]]]},
        {"paths": ["a"], "filter": [[['"', "=", 1]]]},
        # What somebody else wrote into a run.
        {"paths": ["a"], "filter": [[["x"]]]},
        {"paths": ["a"], "filter": [[[1, "=", 1]]]},
        {"paths": ["a"], "filter": [5]},
    ],
)
def test_where_no_command_can_name_the_rows_the_report_is_shown(trained, data) -> None:
    command, why = next_command(trained(data))
    assert command.startswith("partwise runs show run --open --store ")
    assert why == "its report; partwise infer can use the models"


def test_a_model_that_forecasts_is_not_tried_on_the_rows_before_its_forecast(trained) -> None:
    lagged = {"kind": "best", "candidates": [{"kind": "lagged"}, {"kind": "linear"}]}
    command, why = next_command(trained({"paths": ["/x"]}, trainer=lagged))
    assert command.startswith("partwise runs show run --open --store ")
    assert why == "its report; partwise infer can use the models on later rows"


def test_a_portfolio_is_tried_with_the_trainer_that_it_was_found_for(trained, monkeypatch) -> None:
    monkeypatch.setattr(module, "has_portfolio", lambda *_run: True)
    trainer = {"kind": "lightgbm", "label": "y", "features": ["a", "unit price"]}
    words = shlex.split(next_command(trained({"paths": ["/x"]}, "map", trainer=trainer))[0])
    assert words[1:11] == [
        *("train", "/x", "--partition-by", "key", "--trainer", "lightgbm", "--label", "y"),
        *("--features", "a,unit price"),
    ]
    assert words[11:13] == ["--portfolio", "run"]
    app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_paths_below_the_current_folder_are_relative(trained, monkeypatch) -> None:
    run = trained({"paths": ["/data/rows.parquet"]})
    monkeypatch.chdir(Path(run.store.url).parent)
    assert store_option(run) == f" --store {Path(run.store.url).name}"


def test_a_default_that_is_no_store_keeps_nobody_from_reading_another(trained, monkeypatch) -> None:
    run = trained({"paths": ["/data/rows.parquet"]})
    monkeypatch.setenv("PARTWISE_STORE", "")
    assert store_option(run) == f" --store {run.store.url}"


def test_the_program_is_named_as_the_shell_finds_it(tmp_path, monkeypatch) -> None:
    script = tmp_path / "bin" / "partwise"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert program() == str(script)
    monkeypatch.chdir(tmp_path)
    assert program() == "bin/partwise"
    monkeypatch.chdir(script.parent)
    assert program() == "./partwise"
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "partwise"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert program() == "partwise"
    module_file = tmp_path / "partwise" / "__main__.py"
    monkeypatch.setattr(sys, "argv", [str(module_file)])
    assert program() == f"{sys.executable} -m partwise"
