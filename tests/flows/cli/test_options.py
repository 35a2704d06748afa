"""What the words of a command line become, before anything is started."""

from typing import Any

import pytest
from cyclopts import App, CycloptsError
from rich.console import Console

from partwise.blocks import CudaCluster, CustomCluster, LocalCluster, RemoteCluster
from partwise.calls.exports import ExportCall
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError
from partwise.evaluation import Backtest, CrossValidation, HoldoutByTime, HoldoutFraction
from partwise.flows.cli.command import EXPORT, command_of
from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.options import (
    ClusterOptions,
    TrainerOptions,
)
from partwise.flows.cli.parsing import (
    COMMON,
    describe_wrong_option,
    in_words_of_the_shell,
    parse_condition,
    parse_parameter,
    split_names,
)
from partwise.flows.cli.train_distributed import DistributedTrainerOptions
from partwise.flows.cli.tuning_options import parse_tune
from partwise.models.export_options import ExportOptions, ValidationOptions
from partwise.trainers import (
    Best,
    LightGBMTrainer,
    SeasonalNaive,
    StatsForecast,
    XGBoostTrainer,
)

TWICE = ("a=1", "b=2", " a = 3")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("price > 0", ("price", ">", 0)),
        ("price>=-1.5", ("price", ">=", -1.5)),
        ("a==b", ("a", "==", "b")),
        ("name = New York", ("name", "=", "New York")),
        ('zip = "01234"', ("zip", "=", "01234")),
        ("zip = 01234", ("zip", "=", "01234")),
        ('name != ""', ("name", "!=", "")),
        ("day < 2026-01-01", ("day", "<", "2026-01-01")),
        ("open = true", ("open", "=", True)),
        ('"unit price" <= 3', ("unit price", "<=", 3)),
        ("store in a, b", ("store", "in", ["a", "b"])),
        ('store not  in "a,b", c', ("store", "not in", ["a,b", "c"])),
        ("store in [1, 2]", ("store", "in", [1, 2])),
        ("store in 7", ("store", "in", [7])),
        ("incoming > 3", ("incoming", ">", 3)),
        ("größe = ü=1", ("größe", "=", "ü=1")),
    ],
)
def test_a_condition_is_read_as_written(text, condition) -> None:
    assert parse_condition(text) == condition


DEEP = "[" * 200_000


@pytest.mark.parametrize("text", ["", "price", "price >", "= 3", "price is 3", "store in "])
def test_what_is_no_condition_is_refused(text) -> None:
    with pytest.raises(InputError, match=r"^--filter '.*' is not of the form"):
        parse_condition(text)


def test_parameters_have_the_types_of_json_and_else_are_text() -> None:
    texts = ["num_leaves=15", "eta=0.1", "boosting=dart", "metric=[1,2]", "x==3", "n=null", 'v="1"']
    assert dict(map(parse_parameter, texts)) == {
        "num_leaves": 15,
        "eta": 0.1,
        "boosting": "dart",
        "metric": [1, 2],
        "x": "=3",
        "n": None,
        "v": "1",
    }
    assert parse_parameter(f"deep={DEEP}") == ("deep", DEEP)
    for text in ("num_leaves", "=3"):
        with pytest.raises(InputError, match="not of the form name=value"):
            parse_parameter(text)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (TrainerOptions(trainer="lightgbm", label="y", param=TWICE).build, "--param 'a'"),
        (
            TrainerOptions(
                trainer="best", candidate=("mean",), label="y", param=("mean.a=1", "mean.a=1")
            ).build,
            r"--param 'mean\.a'",
        ),
        (
            DistributedTrainerOptions(trainer="xgboost", label="y", param=TWICE).arguments,
            "--param 'a'",
        ),
        (ClusterOptions(cluster_class="x.Y", cluster_argument=TWICE).build, "--cluster-arg.* 'a'"),
        (lambda: parse_tune(TWICE), "--tune 'a'"),
        (lambda: FileOptions(types=("a=int8,b=int8", "a=string")).of(["x.csv"]), "--types 'a'"),
    ],
)
def test_a_name_that_is_given_twice_is_refused(read, what) -> None:
    with pytest.raises(InputError, match=rf"^{what} is given twice: leave one out\.$"):
        read()


def test_names_are_given_one_by_one_or_with_commas() -> None:
    assert split_names(["store,date", " region ", '"a,b",c']) == [
        "store",
        "date",
        "region",
        "a,b",
        "c",
    ]
    assert split_names([]) == []
    assert split_names(['"a,\nb"']) == ["a,\nb"]


@pytest.mark.parametrize("text", ['"store', '"store"x', "store\nday", "store\rday"])
def test_what_is_no_list_of_names_is_refused_for_itself(text):
    with pytest.raises(InputError, match=r"is not a list of names .*: write commas between th"):
        split_names([text, 'day"'])


def test_trainers_get_what_was_said_and_their_own_defaults_else() -> None:
    assert TrainerOptions(trainer="lightgbm", label="y").build() == LightGBMTrainer(label="y")
    options = TrainerOptions(
        trainer="xgboost",
        label="y",
        features=("a,b",),
        categorical=("b",),
        calendar=("day,at",),
        param=("max_depth=3",),
        rounds=7,
        holdout_by_time="day",
        holdout_start="2026-01-01",
        early_stopping_rounds=2,
        min_rows=3,
        threads=2,
    )
    assert options.build() == XGBoostTrainer(
        label="y",
        features=("a", "b"),
        categorical=("b",),
        calendar=("day", "at"),
        params={"max_depth": 3},
        rounds=7,
        holdout=HoldoutByTime(column="day", start="2026-01-01"),
        early_stopping_rounds=2,
        min_rows=3,
        threads=2,
    )
    assert TrainerOptions(trainer="mine:fit").build() == "mine:fit"


def test_candidates_get_the_settings_that_they_have() -> None:
    options = TrainerOptions(
        trainer="best",
        candidate=("lightgbm,seasonal_naive", "AutoARIMA", "mine:fit"),
        label="y",
        features=("a",),
        param=("lightgbm.num_leaves=3",),
        rounds=7,
        season=7,
        metric="mae",
        backtest_time="day",
        backtest_horizon="7D",
    )
    assert options.build() == Best(
        [
            LightGBMTrainer(label="y", features=("a",), params={"num_leaves": 3}, rounds=7),
            SeasonalNaive(label="y", season=7),
            StatsForecast("AutoARIMA", label="y", season=7),
            "mine:fit",
        ],
        label="y",
        metric="mae",
        holdout=Backtest(time="day", horizon="7D", season=7),
    )


@pytest.mark.parametrize(
    ("options", "holdout"),
    [
        ({"no_holdout": True}, None),
        ({"holdout_fraction": 0.5}, HoldoutFraction(fraction=0.5)),
        ({"holdout_by_time": "t"}, HoldoutByTime(column="t")),
        (
            {"holdout_by_time": "t", "holdout_fraction": 0.1},
            HoldoutByTime(column="t", fraction=0.1),
        ),
        ({"holdout_by_time": "t", "holdout_start": "7"}, HoldoutByTime(column="t", start=7)),
        (
            {"backtest_time": "t", "backtest_horizon": "28D", "backtest_windows": 3},
            Backtest(time="t", horizon="28D", windows=3),
        ),
        (
            {"backtest_time": "t", "backtest_horizon": "2.5", "backtest_step": "1", "season": 7},
            Backtest(time="t", horizon=2.5, step=1, season=7),
        ),
        ({"folds": 4, "fold_group": "g"}, CrossValidation(folds=4, group="g")),
    ],
)
def test_the_rows_scored_on_are_chosen(options, holdout) -> None:
    trainer = TrainerOptions(trainer="lightgbm", label="y", **options).build()
    assert trainer.holdout == holdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trainer": "lgbm", "label": "y"}, "--trainer 'lgbm' is not known: give lightgbm"),
        ({"trainer": "mine:fit", "rounds": 3}, "--rounds is a setting of partwise's own"),
        ({"trainer": "lightgbm", "label": "y", "rounds": 0}, r"^--rounds: .*\(it is 0\)\.$"),
        ({"trainer": "lightgbm", "label": "y", "holdout_fraction": 1.5}, "^--holdout-fraction: "),
        (
            {"trainer": "lightgbm", "label": "y", "holdout_start": "1"},
            "goes with --holdout-by",
        ),
        (
            {"trainer": "lightgbm", "label": "y", "no_holdout": True, "early_stopping_rounds": 3},
            "^early_stopping_rounds needs a holdout.$",
        ),
        (
            {"trainer": "lightgbm", "label": "y", "no_holdout": True, "holdout_fraction": 0.1},
            "--no-holdout does not go with",
        ),
        ({"trainer": "mean", "backtest_time": "t"}, "goes with --backtest-horizon, such as 28D"),
        ({"trainer": "mean", "backtest_windows": 2}, "--backtest-windows goes with --backtest-t"),
        ({"trainer": "mean", "folds": 2, "holdout_by_time": "t"}, "exclude each other"),
        ({"trainer": "mean", "folds": 1}, r"^--folds: .*\(it is 1\)\.$"),
        ({"trainer": "mean", "rounds": 3}, "--rounds is not a setting of the trainer mean"),
        ({"trainer": "mean", "metric": "mae"}, "--metric goes with --trainer best"),
        ({"trainer": "best", "label": "y"}, "--trainer best goes with --candidate"),
        ({"trainer": "best", "candidate": ("lgbm",)}, "--candidate 'lgbm' is not known"),
        (
            {"trainer": "best", "candidate": ("mean",), "param": ("num_leaves=3",)},
            "names no candidate: write mean.name=value",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(options, message) -> None:
    with pytest.raises(InputError, match=message) as error:
        TrainerOptions(**options).build()
    assert "\n" not in str(error.value)


PLACES = {"training_run_id": "RUN"}


def keep(asked: ExportCall) -> Any:
    return asked


app = App(name="partwise", default_parameter=COMMON, result_action="return_value")
app.default(command_of(ExportCall, "Export.", group=EXPORT, carry_out=keep, places=PLACES))


def options_of(*words: str):
    asked = app(("trained", *words), exit_on_error=False, print_error=False)
    return asked.execution, asked.options, asked.validation


def test_options_that_were_not_typed_are_the_defaults_and_zero_is_a_value() -> None:
    assert options_of() == (ExecutionOptions(), ExportOptions(), ValidationOptions())
    words = ["--max-retries", "0", "--max-failed", "0", "--fail-fast", "--atol", "0"]
    assert options_of(*words, "--input-layout", "columns", "--example-inputs", "mine:inputs") == (
        ExecutionOptions(max_retries=0, max_failed=0, fail_fast=True),
        ExportOptions(input_layout="columns"),
        ValidationOptions(atol=0),
    )
    _, export, _ = options_of("--model-features", "a,x", "--model-features", "b c")
    assert export == ExportOptions(features=("a", "x", "b c"))


def test_each_field_of_an_option_model_is_an_option_with_its_description(capsys) -> None:
    app("--help", console=Console(width=1000))
    out = capsys.readouterr().out
    for model in (ExecutionOptions, ExportOptions, ValidationOptions):
        for name, field in model.model_fields.items():
            is_of_model = model is ExportOptions and name == "features"
            option = f"--{'model-' if is_of_model else ''}{name.replace('_', '-')}"
            (line,) = (line for line in out.splitlines() if f" {option} " in line)
            assert field.description in line
            shown = f"[default: {field.default}]"
            assert (shown in line) == (field.default is not None and field.default is not False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-failed-fraction", "2"], "--max-failed-fraction: Input should be less than or "),
        (["--max-retries", "two"], "--max-retries: Input should be a valid integer, "),
        (["--sample", "none"], "--sample: Input should be a valid integer, "),
        (["--input-layout", "x"], "--input-layout: Input should be 'tensor' or 'columns'"),
    ],
)
def test_a_value_that_a_model_refuses_is_named_with_its_option(words, message) -> None:
    with pytest.raises(CycloptsError) as error:
        options_of(*words)
    described = describe_wrong_option(error.value)
    assert described is not None
    assert described.startswith(message)
    assert described.endswith(f" (it is {words[1]!r}).")
    assert "\n" not in described
    with pytest.raises(CycloptsError, match="Did you mean --max-retries") as error:
        options_of("--max-retry", "2")
    assert describe_wrong_option(error.value) is None


def test_a_cluster_is_local_or_gpus_or_an_address() -> None:
    assert ClusterOptions().build() == LocalCluster()
    assert ClusterOptions(workers=3).build() == LocalCluster(workers=3)
    assert ClusterOptions(devices="all").build() == CudaCluster()
    assert ClusterOptions(devices="0,1").build() == CudaCluster(devices="0,1")
    address = "tcp://127.0.0.1:8786"
    assert ClusterOptions(address=address, shares_filesystem=True).build() == RemoteCluster(
        address=address, shares_filesystem=True
    )
    named = ClusterOptions(
        cluster_class="dask_jobqueue.SLURMCluster",
        cluster_argument=("cores=8", "memory=64GB", "security=true"),
        workers=2,
        max_workers=9,
        allow_plaintext=True,
    )
    assert named.build() == CustomCluster(
        cluster_class="dask_jobqueue.SLURMCluster",
        arguments={"cores": 8, "memory": "64GB", "security": True},
        workers=2,
        max_workers=9,
        allow_plaintext=True,
    )
    assert ClusterOptions(max_workers=2).build() == LocalCluster(max_workers=2)
    assert ClusterOptions(cluster="cuda-cluster/big").checked() == "cuda-cluster/big"
    # As `doctor` looks at it.
    local = "tcp://127.0.0.1:8786"
    assert ClusterOptions(cluster=local).build() == RemoteCluster(address=local)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 2, "address": "tcp://127.0.0.1:1"}, "--workers and --address name different"),
        ({"shares_filesystem": True}, "--shares-filesystem goes with --address"),
        ({"tls_key_file": "key.pem", "workers": 2}, "--tls-key-file goes with --address"),
        ({"address": "tcp://192.0.2.1:8786"}, "is in plaintext"),
        ({"address": "tls://192.0.2.1:8786"}, "needs tls_ca_file, tls_cert_file, tls_key_file"),
        ({"address": "localhost"}, "is not an address of a Dask scheduler"),
        ({"devices": "first one"}, "^--devices: "),
        ({"cluster": "a", "workers": 2}, "--workers and --cluster name different"),
        ({"devices": "0", "cluster_class": "a.B"}, "--devices and --cluster-class name different"),
        ({"cluster_argument": ("a=1",)}, "--cluster-argument goes with --cluster-class"),
        ({"cluster_class": "B"}, "^--cluster-class: 'B' does not|'B' does not name a class"),
        ({"cluster_class": "a.B", "cluster_argument": ("x",)}, "--cluster-argument 'x' is not of"),
    ],
)
def test_clusters_that_cannot_be_are_refused(options, message) -> None:
    with pytest.raises(InputError, match=message):
        ClusterOptions(**options).build()


def test_a_hint_is_in_the_words_of_the_shell() -> None:
    said = in_words_of_the_shell("pass training_run_id='a', null_keys=drop or n_shards.")
    assert said == "pass --training-run-id a, --null-keys drop or --n-shards."
    # A call in Python, a quoted name and a path are left as they are.
    for text in ("map_partitions(data, run_id='m')", "the column 'run_id'", "lies in /run_id/x"):
        assert in_words_of_the_shell(text) == text
