"""Names that were others once."""

import dataclasses
import subprocess
import sys

import pytest

import partwise
from partwise import (
    Best,
    ExecutionOptions,
    ExportOptions,
    FunctionError,
    GangOptions,
    InputError,
    LightGBMTrainer,
    Mean,
    RankContext,
    ScalingConfig,
    TorchDistributor,
    Tuned,
    randint,
)
from partwise.calls.every import CALLS
from partwise.calls.pipeline import PipelineCall
from partwise.calls.reading import function_names, read_arguments
from partwise.fingerprints import canonical
from partwise.fingerprints.functions import canonical_bytes
from partwise.renamed import RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED["partwise"].items())
def test_an_old_name_of_the_package_is_told_the_new_one(old, new):
    assert hasattr(partwise, new)
    asked = f"from partwise import {old}"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == f"ImportError: {old} is called {new} now."


def test_no_name_of_today_is_an_old_one():
    for names in RENAMED.values():
        assert not names.keys() & set(names.values())


SETTINGS = [
    (ExecutionOptions, "partition_cpus", 2),
    (ScalingConfig, "num_workers", 2),
    (GangOptions, "time_limit_s", 2),
    (ExportOptions, "inputs", "columns"),
]


@pytest.mark.parametrize(("kind", "old", "value"), SETTINGS)
def test_an_old_setting_is_told_the_new_one(kind, old, value):
    new = RENAMED[kind.__name__][old]
    with pytest.raises(ValueError, match=f"{old} is called {new} now"):
        kind(**{old: value})
    assert getattr(kind(**{new: value}), new) == value


def test_an_old_name_in_the_code_of_a_rank_is_told_the_new_one():
    with pytest.raises(AttributeError, match="hyperparameters is called params now"):
        _ = RankContext(rank=0, world_size=1).hyperparameters
    with pytest.raises(AttributeError, match="'RankContext' object has no attribute 'hyper'"):
        _ = RankContext(rank=0, world_size=1).hyper
    with pytest.raises(InputError, match="hyperparameters is called params now"):
        TorchDistributor("os:getcwd", hyperparameters={})


@pytest.mark.parametrize("owner", [name for name in RENAMED if name in partwise.__all__])
def test_every_new_name_is_one_of_today(owner):
    """A table that names what is not there would send people round in circles."""
    calls = {**CALLS, "model_pipeline": PipelineCall}
    kind = calls.get(owner) or getattr(partwise, owner)
    of_today = getattr(kind, "model_fields", None) or kind.__dataclass_fields__
    assert set(RENAMED[owner].values()) <= set(of_today)
    # Who gave one of these would be refused what is there.
    assert not RENAMED[owner].keys() & set(of_today)


@pytest.mark.parametrize(("old", "new"), RENAMED["run_inference"].items())
def test_an_old_argument_of_a_flow_is_told_the_new_one(old, new):
    with pytest.raises(InputError, match=f"run_inference: the argument {old} is called {new} now"):
        partwise.run_inference("rows.csv", "k", "run", **{old: "onnx"})
    with pytest.raises(InputError, match=f"{old} is called {new} now"):
        partwise.run_inference.validate_parameters({"data": "rows.csv", old: "onnx"})


@pytest.mark.parametrize(("owner", "old", "value"), [
    ("run_inference", "model_format", "onnx"),
    ("train_models", "inputs", ["a.txt"]),
    ("train_distributed", "hyperparameters", {"lr": 0.1}),
    ("tune_model", "timeout_s", 9.0),
    ("export_models", "inputs", "shop.models:inputs"),
    ("run_script", "node_count", 2),
    ("run_script", "params", {"epochs": 3}),
])  # fmt: skip
def test_a_call_that_was_written_with_old_names_is_read(owner, old, value):
    arguments = {old: value, **({"arguments": []} if old == "params" else {})}
    call = {"flow": owner, "data": None, "version": None, "arguments": arguments}
    _, read = read_arguments(call, is_own=True)
    new = RENAMED[owner][old]
    assert read[new] == value
    assert old == new or old not in read


def test_old_names_of_settings_in_a_call_are_read():
    tuned = Tuned(LightGBMTrainer(label="y"), {"rounds": randint(1, 9)}, max_duration_s=3.0)
    trainer = Best([tuned, Mean(label="y")]).model_dump(mode="json")
    searched = trainer["candidates"][0]
    searched["timeout_s"] = searched.pop("max_duration_s")
    execution = {"partition_timeout_s": 2.0, "worker_attempts": 5, "max_retries": 3}
    arguments = {"execution": execution, "trainer": trainer}
    call = {"flow": "train_models", "data": None, "version": None, "arguments": arguments}
    _, read = read_arguments(call)
    wanted = ExecutionOptions(timeout_s=2.0, max_shard_starts=5, max_retries=3)
    assert read["execution"] == wanted
    assert read["trainer"].candidates[0].max_duration_s == 3.0


def test_words_and_arguments_by_name_of_an_old_script_are_one_list():
    arguments = {"params": {"epochs": 3, "quick": True}, "arguments": ["--data", "{inputs.sales}"]}
    call = {"flow": "run_script", "data": None, "version": None, "arguments": arguments}
    _, read = read_arguments(call)
    assert read["arguments"] == ["--epochs", "3", "--quick", "--data", "{inputs.sales}"]


def test_saved_blocks_of_an_old_call_are_found_by_their_kinds_of_today():
    recipe = {"sources": [{"block": "sql-source/shop"}, {"paths": ["sql-source/a.csv"]}]}
    call = {"flow": "map_partitions", "data": recipe | {"columns": None, "filter": None}}
    call |= {"version": None, "arguments": {"output": "sql-table/prod"}}
    _, read = read_arguments(call)
    assert read["data"] == ["query-block/shop", ["sql-source/a.csv"]]
    assert read["output"] == "table-block/prod"


def test_an_old_name_is_no_way_around_the_check_of_functions():
    call = {"flow": "export_models", "data": None, "version": None}
    call["arguments"] = {"training_run_id": "r", "inputs": "os:system"}
    assert function_names(call) == ["os:system"]
    with pytest.raises(FunctionError, match="os:system"):
        read_arguments(call)


def test_a_name_changes_no_fingerprint():
    """Runs of earlier versions are known by the names that these had."""

    @dataclasses.dataclass
    class Options:
        max_duration_s: float

    settings = Tuned(LightGBMTrainer(label="y"), {"rounds": randint(1, 9)}, max_duration_s=3.0)
    assert b"timeout_s" in _frames(settings)
    Options.__name__ = "Tuned"
    assert b"max_duration_s" in _frames(Options(3.0))


def _frames(value: object) -> bytes:
    """Return all that is hashed of a value, as one text."""
    seen: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        known = canonical.frame

        def frame(name, *parts):
            seen.append(str(name).encode())
            return known(name, *parts)

        patch.setattr(canonical, "frame", frame)
        canonical_bytes(value)
    return b" ".join(seen)
