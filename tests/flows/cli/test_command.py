"""Commands are made of calls: each field is an option, and nothing is said a second time."""

import dataclasses
import inspect
import re
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
from cyclopts import App
from rich.console import Console

from partwise.calls.descriptions import descriptions
from partwise.calls.every import CALLS
from partwise.calls.exports import TransformersCall
from partwise.calls.partitions import MapCall
from partwise.calls.pipeline import PipelineCall
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import Environment
from partwise.flows.cli import (
    export,
    flow_calls,
    run_script,
    train,
    train_distributed,
    tune,
)
from partwise.flows.cli.command import command_of
from partwise.flows.cli.main import main
from partwise.flows.cli.options import ClusterOptions
from partwise.flows.cli.parsing import COMMON
from partwise.models.serdes import PickleSerde
from partwise.renamed import RENAMED

if TYPE_CHECKING:
    from partwise.calls.call import Call

COMMANDS = {
    "train_models": train.train,
    "run_inference": train.infer,
    "compare_models": train.compare,
    "evaluate_predictions": train.evaluate,
    "map_partitions": train.map_,
    "find_portfolio": train.find_portfolio,
    "train_distributed": train_distributed.train_distributed,
    "tune_model": tune.tune,
    "export_models": export.export,
    "validate_exports": export.validate,
    "model_pipeline": export.pipeline,
    "run_script": run_script.run_script,
}
ROWS = ("rows.parquet", "-p", "store,day")
MAP = ("map", *ROWS, "--function", "mine:rows")


@pytest.fixture
def asked(monkeypatch) -> Any:
    """Carry out a command up to its call, and return that."""
    calls: list[Call] = []
    monkeypatch.setattr(flow_calls, "call_and_print", lambda call: calls.append(call) or 0)

    def ask(*words: str) -> Any:
        assert main(words) == 0
        return calls.pop()

    return ask


@pytest.mark.parametrize("flow", COMMANDS)
def test_each_field_of_a_call_is_typed_or_follows_from_what_is_typed(flow):
    kind = {**CALLS, "model_pipeline": PipelineCall}[flow]
    typed = inspect.signature(COMMANDS[flow]).parameters
    fields = {each.name for each in dataclasses.fields(kind)}
    # What trains says by which metric and on which rows, and what a function's params are.
    follow = {"metric", "holdout", "label", "params", "scaling"}
    assert fields - set(typed) <= follow
    assert set(typed) - fields <= {"reading", "to"}
    assert CALLS.keys() - COMMANDS.keys() == {TransformersCall.flow()}


def test_what_is_not_typed_is_the_default_of_the_call(asked):
    call = asked(*MAP)
    assert call.run_id.startswith("map-")
    expected = MapCall(["rows.parquet"], ["store", "day"], "mine:rows", run_id=call.run_id)
    assert call == expected


def test_options_become_an_environment(asked, capsys) -> None:
    words = [*MAP, "--package", "shop>=1,<2", "--package", "till", "--requirements", "r.txt"]
    words += ["--constraints", "c.txt", "--extra-index-url", "https://a.example"]
    assert asked(*words).environment == Environment(
        packages=("shop>=1,<2", "till"),
        requirements_file="r.txt",
        constraints_file="c.txt",
        extra_index_urls=("https://a.example",),
    )
    assert type(asked(*words).environment) is Environment
    assert asked(*MAP).environment == Environment()
    assert main([*MAP, "--package", "shop", "--user-managed"]) == 2
    assert "do not go together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--requirement", "r.txt", "--no-index"], "Unknown option: --requirement."),
        (["--max-retires", "3", "--max-failed-fraction", "2"], "Did you mean --max-retries?"),
        (["--where=x > 1", "--no-index"], "--where is called --filter now."),
    ],
)
def test_an_option_that_there_is_not_is_told_before_values_that_are_wrong(
    words, told, capsys
) -> None:
    assert main([*MAP, *words]) == 2
    assert told in capsys.readouterr().err


def test_texts_become_values(asked):
    words = [*MAP, "--filter", "price > 0", "--filter", "store in a,b", "--columns", "price,store"]
    words += ["--files", "a.txt", "--files", "b.txt", "--workers", "2", "--package", "shop<2"]
    words += ["--max-retries", "0", "--params", "params.parquet", "--version", "7"]
    call = asked(*words, "--run-id", "r", "--output", "dataset://found")
    assert call == MapCall(
        ["rows.parquet"],
        ["store", "day"],
        "mine:rows",
        filter=[("price", ">", 0), ("store", "in", ["a", "b"])],
        columns=["price", "store"],
        files=["a.txt", "b.txt"],
        cluster=ClusterOptions(workers=2),
        environment=Environment(packages=("shop<2",)),
        execution=ExecutionOptions(max_retries=0),
        params="params.parquet",
        version="7",
        run_id="r",
        output="dataset://found",
    )
    assert asked("train", *ROWS, "--trainer", "mine:fit", "--pickle").serde == PickleSerde()
    assert asked(*MAP, "--cluster", "cuda-cluster/big").cluster == "cuda-cluster/big"


def test_values_by_name_are_pairs(asked, capsys):
    words = ("train-distributed", "rows.parquet", "--trainer", "mine:fit")
    call = asked(*words, "--eval-data", "held=held.parquet", "--param", "lr=0.1", "--ranks", "2")
    assert (call.eval_data, call.params) == ({"held": "held.parquet"}, {"lr": 0.1})
    assert call.scaling == ScalingConfig(ranks=2)
    assert main([*words, "--eval-data", "held"]) == 2
    assert "--eval-data 'held' is not of the form NAME=PATH" in capsys.readouterr().err
    assert main([*words, "--eval-data", "held=a", "--eval-data", "held=b"]) == 2
    assert "--eval-data 'held' is given twice: leave one out." in capsys.readouterr().err


def test_cpus_of_a_study_are_those_of_a_trial_or_of_each_of_its_ranks(asked):
    words = ("tune", "rows.parquet", "--trainer", "mine:fit", "--space", "a=1", "--cpus", "2")
    call = asked(*words, "--max-retries", "0")
    assert (call.execution, call.scaling) == (
        ExecutionOptions(cpus=2, max_retries=0),
        ScalingConfig(),
    )
    assert asked(*MAP, "--gpus", "0.25").execution == ExecutionOptions(gpus=0.25)
    call = asked(*words, "--ranks", "3", "--gpus", "1", "--max-retries", "0")
    assert call.execution == ExecutionOptions(max_retries=0)
    assert call.scaling == ScalingConfig(ranks=3, cpus=2, gpus=1)


def test_words_behind_two_dashes_are_those_of_the_script(asked, capsys):
    call = asked("run-script", "x.py", "-n", "2", "--inputs", "a=b.csv", "--", "--epochs", "3")
    assert (call.entry_script, call.nodes, call.inputs) == ("x.py", 2, {"a": "b.csv"})
    assert call.arguments == ["--epochs", "3"]
    # Before them, a mistake would have been an argument of the script.
    assert main(["run-script", "x.py", "--node", "2"]) == 2
    assert "Unknown option: --node. Did you mean --nodes?" in capsys.readouterr().err


def test_variables_of_a_script_are_as_they_were_typed(asked):
    words = ("--environment-variables", "EMPTY=", "--environment-variables", "FLAGS= -x=1 ")
    call = asked("run-script", "x.py", *words)
    assert call.environment_variables == {"EMPTY": "", "FLAGS": " -x=1 "}


@pytest.mark.parametrize("word", ["--debug", "--prefect"])
def test_options_of_all_commands_may_be_words_of_a_script(word, asked):
    assert asked("run-script", "x.py", "--", word).arguments == [word]


@pytest.mark.parametrize("flow", COMMANDS)
def test_no_option_is_there_twice(flow):
    app = App(default_parameter=COMMON)
    app.default(COMMANDS[flow])
    typed = [each for each in app.assemble_argument_collection() if each.parse]
    names = [name for each in typed for name in each.names if name != "*"]
    assert len(set(names)) == len(names)


def test_the_sample_of_a_portfolio_is_no_dry_run(asked):
    words = ("--trainer", "mean", "--label", "y", "--space", "a=1", "--max-failed", "0")
    call = asked("find-portfolio", *ROWS, *words, "--sample", "4")
    assert (call.sample, call.execution) == (4, ExecutionOptions(max_failed=0))


def test_a_command_without_rows_has_no_options_of_their_files():
    assert "reading" in inspect.signature(train.train).parameters
    assert "reading" not in inspect.signature(run_script.run_script).parameters


@dataclass(frozen=True)
class ImaginedCall(MapCall):
    """A call with one more field."""

    kind: ClassVar[Any] = "map"

    _: KW_ONLY
    haste: Literal["slow", "fast"] = "slow"
    """How fast. See null_keys. From Python also a number.

    Of this the shell knows nothing."""


def test_an_option_is_written_in_the_call_alone(capsys):
    kept: list[Call] = []

    def keep(asked: ImaginedCall) -> int:
        kept.append(asked)
        return 0

    app = App(default_parameter=COMMON, result_action="return_value")
    app.default(command_of(ImaginedCall, "Imagine.", carry_out=keep))
    app([*MAP[1:], "--haste", "fast"], exit_on_error=False)
    assert [call.haste for call in kept] == ["fast"]
    app("--help", console=Console(width=1000))
    [line] = [each for each in capsys.readouterr().out.splitlines() if "--haste" in each]
    assert "How fast. See --null-keys. [choices: slow, fast] [default: slow]" in line
    assert descriptions(ImaginedCall)["haste"].endswith("the shell knows nothing.")


OLD = [
    ((*MAP, "--where", "a > 0"), "--where is called --filter now"),
    ((*MAP, "--inputs", "a"), "--inputs is called --files now"),
    ((*MAP, "--partition-cpus=2"), "--partition-cpus is called --cpus now"),
    (("export", "run", "--inputs", "a:b"), "--inputs is called --example-inputs now"),
    (("pipeline", *ROWS, "--trainer", "mean", "--inputs", "a:b"), "called --example-inputs now"),
    (("export", "run", "--model-inputs", "tensor"), "--model-inputs is called --input-layout now"),
    (("validate", "run", "--model-format", "onnx"), "--model-format is called --format now"),
    (("runs", "resume", "run", "--gpus", "0"), "--gpus is called --devices now"),
    ((*MAP, "--gpus", "0,1"), "It says how many; which GPUs of this machine"),
    (("run", "x.py"), "partwise run is called partwise run-script now"),
    (("run-script", "x.py", "--node-count", "2"), "--node-count is called --nodes now"),
    (("run-script", "x.py", "--env", "A=1"), "--env is called --environment-variables now"),
    (("run-script", "x.py", "--param", "a=1"), 'Arguments of a script stand behind "--" now'),
    (("find-portfolio", *ROWS, "--trainer", "mean", "--tune", "a=1"), "--tune is called --space"),
    (("data", "register", "a", "b", "--where", "a > 0"), "--where is called --filter now"),
]


@pytest.mark.parametrize(("words", "message"), OLD)
def test_an_old_option_is_told_its_new_name(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


OLD_BLOCKS = [
    (("file-source/a", *ROWS[1:]), "file-source are of the kind files-block now; .* files-block/a"),
    (("sql-source/a", *ROWS[1:]), "sql-source are of the kind query-block now"),
    ((*ROWS, "--store", "artifact-store/a"), "of the kind store-block now; .* store-block/a"),
    (("file-source/a", *ROWS[1:], "--types", "a=string"), "'file-source/a' says itself how"),
]


@pytest.mark.parametrize(("words", "message"), OLD_BLOCKS)
def test_a_block_by_an_old_name_is_no_path(words, message, capsys):
    assert main(("train", *words, "--trainer", "mean", "--label", "y")) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("flow", COMMANDS)
def test_no_old_name_of_an_argument_is_an_option(flow):
    # `inputs` of a script are files by name, as they always were.
    assert not RENAMED.get(flow, {}).keys() & inspect.signature(COMMANDS[flow]).parameters.keys()
