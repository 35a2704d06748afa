"""What a resume compares: which changes of a call are other code, and which other inputs."""

import hashlib
import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.calls.call import Role
from partwise.calls.intent import describe_intent
from partwise.calls.one_model import DistributedCall
from partwise.calls.partitions import TrainCall
from partwise.calls.reading import read_arguments
from partwise.calls.written import CannotRepeatError, to_plain
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.engine.trained_models import models_fingerprint
from partwise.gangs.options import GangOptions
from partwise.models.serdes import LightGBMSerde, PickleSerde
from partwise.runs.claim import Intent
from partwise.runs.documents import to_json
from partwise.runs.stored_models import MODELS, ModelSet
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn
from partwise.trainers import LightGBMTrainer, XGBoostTrainer
from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from partwise.trainers.ranks.torch import TorchDistributor
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from tests.flows.distributed_functions import sleep_while_told

SCALE = 1.0
TABLE = pa.table({"key": ["a", "b"], "y": [1.0, 2.0]})
KEY = KeyColumn(name="key", key_class=KeyClass.STRING)


def intent(models: str | None = None, **changes) -> Intent:
    given = {
        "data": TABLE,
        "partition_by": ["key"],
        "trainer": LightGBMTrainer(label="y"),
        "serde": None,
        "params": None,
    }
    call = TrainCall(**given | changes)
    return describe_intent(call, open_source(call.data).description(), models)


def with_helper(factor: float):
    def helper(value: float) -> float:
        return value * factor

    def fit(data, context):
        return helper(1.0) * SCALE

    return fit


def with_constant(constant: float):
    return (lambda data, context: 1.0) if constant == 1 else (lambda data, context: 2.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"trainer": with_constant(1)}, {"trainer": with_constant(2)}),
        ({"trainer": with_helper(1)}, {"trainer": with_helper(2)}),
        ({"trainer": with_helper(1)}, {"trainer": LightGBMTrainer(label="y")}),
        ({}, {"trainer": LightGBMTrainer(label="y", rounds=7)}),
        ({}, {"trainer": XGBoostTrainer(label="y")}),
        ({}, {"seed": 1}),
        ({}, {"serde": LightGBMSerde()}),
        ({"serde": PickleSerde()}, {"serde": PickleSerde(filename="other.pkl")}),
    ],
)
def test_other_code_settings_serde_or_seed(before, after) -> None:
    first, second = intent(**before), intent(**before | after)
    assert first.code_fingerprint == intent(**before).code_fingerprint
    assert first.code_fingerprint != second.code_fingerprint
    assert None not in (first.code_fingerprint, second.code_fingerprint)
    assert first.inputs_fingerprint == second.inputs_fingerprint


def test_another_global(monkeypatch) -> None:
    before = intent(trainer=with_helper(1)).code_fingerprint
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert intent(trainer=with_helper(1)).code_fingerprint != before


@pytest.mark.parametrize(
    "change",
    [
        {"params": {"a": {"depth": 1}}},
        {"params": pa.table({"key": ["a"], "depth": [1]})},
        {"null_keys": "drop"},
        {"models": "other"},
        {"data": TABLE.slice(1)},
    ],
)
def test_other_inputs(change) -> None:
    first, second = intent(models="these"), intent(**{"models": "these", **change})
    assert first.inputs_fingerprint == intent(models="these").inputs_fingerprint
    assert first.inputs_fingerprint != second.inputs_fingerprint
    assert None not in (first.inputs_fingerprint, second.inputs_fingerprint)
    assert first.code_fingerprint == second.code_fingerprint


def test_how_partitions_are_executed_is_neither() -> None:
    first, second = intent(), intent(execution=ExecutionOptions(max_retries=5))
    assert (first.code_fingerprint, first.inputs_fingerprint) == (
        second.code_fingerprint,
        second.inputs_fingerprint,
    )


def test_params_of_keys_in_another_order_are_the_same_and_those_of_one_key_are_not() -> None:
    one = {"a": {"depth": 1, "rate": 0.5}, "b": {"depth": 2}}
    other = {"b": {"depth": 2}, "a": {"depth": 1, "rate": 0.5}}
    turned = {"a": {"rate": 0.5, "depth": 1}, "b": {"depth": 2}}
    assert intent(params=one).inputs_fingerprint == intent(params=other).inputs_fingerprint
    assert intent(params=one).inputs_fingerprint != intent(params=turned).inputs_fingerprint


def test_the_parts_of_a_fingerprint_have_the_names_of_what_was_given() -> None:
    parts = intent(trainer=with_helper(2), seed=3).code_parts
    assert {"trainer=", "seed=", "serde=", "partition_by=", "python"} <= parts.keys()
    assert "library lightgbm" not in parts
    parts = intent().code_parts
    assert parts["library lightgbm"].count(".") == parts["library partwise"].count(".") == 2


def test_params_that_cannot_be_compared_are_never_the_same() -> None:
    assert intent(params={"a": {"loss": lambda value: value}}).inputs_fingerprint is None


def test_code_that_cannot_be_compared_is_named() -> None:
    numbers = itertools.count()

    def fit(data, context):
        return next(numbers)

    found = intent(trainer=fit)
    assert found.code_fingerprint is None
    assert "numbers" in " ".join(found.code_unknown)
    assert intent(trainer=fit, version="1").code_fingerprint is not None


@dataclass(frozen=True)
class OwnSerde:
    filename: str = "model.bin"

    def write(self, model, file_path):
        raise NotImplementedError

    def read(self, file_path):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"trainer": with_constant(2)}, True),
        ({"version": "2"}, False),
        ({"seed": 1}, False),
        ({"serde": OwnSerde(filename="other.bin")}, False),
        ({"serde": PickleSerde(filename="model.bin")}, False),
    ],
)
def test_a_version_stands_for_the_code_but_not_for_settings(change, same) -> None:
    call = {"trainer": with_constant(1), "serde": OwnSerde(), "version": "1"}
    first, second = intent(**call), intent(**call | change)
    assert (first.code_fingerprint == second.code_fingerprint) is same


def test_a_version_does_not_hide_the_settings_of_a_trainer() -> None:
    first = intent(version="1")
    assert first.code_fingerprint == intent(version="1").code_fingerprint
    changed = intent(version="1", trainer=LightGBMTrainer(label="y", rounds=7))
    assert first.code_fingerprint != changed.code_fingerprint


def test_models_are_compared_by_content_wherever_they_lie() -> None:
    def models(*rows: tuple[str, str, str], keyed: bool = True) -> ModelSet:
        def artifact(sha256: str, bundle: str = "bundles/x.zip") -> dict[str, Any]:
            return {"sha256": sha256, "bundle": bundle}

        table = pa.Table.from_pylist(
            [
                {
                    "owner": name,
                    "model": artifact(sha256, bundle),
                    "categories": artifact(f"of {sha256}") if name == "c" else None,
                }
                for name, sha256, bundle in rows
            ],
            MODELS,
        )
        return ModelSet(name="run://r", key_columns=(KEY,) if keyed else (), models=table)

    one = [models(("a", "1", "x"), ("b", "2", "x"), ("c", "3", "y"))]
    other = [models(("c", "3", "z"), ("b", "2", "z"), ("a", "1", "x"))]
    changed = [models(("a", "1", "x"), ("b", "2", "x"), ("c", "4", "y"))]
    assert models_fingerprint(one) == models_fingerprint(other) != models_fingerprint(changed)
    # Of runs that were begun by releases before this one.
    pairs = [("a", "1"), ("b", "2"), ("c", "3:of 3")]
    assert models_fingerprint(one) == hashlib.sha256(repr(pairs).encode()).hexdigest()
    of_all = [models(("a", "1", "x"), keyed=False)]
    assert models_fingerprint(of_all) == hashlib.sha256(repr([("", "1")]).encode()).hexdigest()
    assert models_fingerprint([*one, *changed]) != models_fingerprint([*changed, *one])


def test_another_release_of_a_trainers_library_is_other_code(monkeypatch) -> None:
    before = intent()
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} of tomorrow")
    assert intent().code_fingerprint != before.code_fingerprint
    assert intent(trainer=with_helper(2.0)).code_fingerprint is not None


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (DistributedXGBoost, {"label": "y", "rounds": 3}),
        (DistributedLightGBM, {"label": "y", "params": {"num_leaves": 7}}),
        (
            partial(TorchDistributor, sleep_while_told),
            {"backend": "gloo", "params": {"lr": 0.1}},
        ),
    ],
    ids=["xgboost", "lightgbm", "torch"],
)
def test_a_call_of_one_model_can_be_repeated(kind, settings, tmp_path) -> None:
    trainer = kind(**settings)
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    about = open_source(tmp_path / "rows.parquet").description()
    call = DistributedCall(
        tmp_path / "rows.parquet",
        trainer,
        serde=None,
        eval_data={"late": about.recipe},
        scaling=ScalingConfig(ranks=2),
        gang=GangOptions(max_retries=3),
        params={"depth": 3},
        seed=1,
    )
    made = describe_intent(call, about, "eval sets")
    assert made.call is not None
    found, read = read_arguments(to_json(made.call))
    assert found is DistributedCall
    assert read["trainer"] == trainer
    assert read["eval_data"] == {"late": [str(tmp_path / "rows.parquet")]}
    assert (read["scaling"], read["gang"]) == (call.scaling, call.gang)
    # How many ranks there are, and how they are started, is no other code; eval sets are inputs.
    other = replace(call, scaling=ScalingConfig(), gang=GangOptions())
    again = describe_intent(other, about, "other eval sets")
    assert again.code_fingerprint == made.code_fingerprint
    assert again.inputs_fingerprint != made.inputs_fingerprint
    in_memory = describe_intent(replace(call, eval_data={"late": None}), about)
    assert (in_memory.call, "eval_data=" in str(in_memory.call_obstacle)) == (None, True)


def one_model(params: dict[Any, Any], of_trainer: dict[Any, Any] | None = None) -> Intent:
    trainer = TorchDistributor(sleep_while_told, params=of_trainer or {})
    source = open_source(TABLE)
    return describe_intent(DistributedCall(source, trainer, params=params), source.description())


def test_params_of_one_model_are_compared_as_they_are_written_down() -> None:
    made = one_model({"hidden": (64, {"then": (32,)})}, {"steps": (1, 2)})
    assert made.call_known is not None
    read = read_arguments(made.call_known)[1]
    assert read["params"] == {"hidden": [64, {"then": [32]}]}
    again = one_model(read["params"], dict(read["trainer"].params))
    assert again.code_fingerprint == made.code_fingerprint is not None
    assert one_model({"hidden": (64,)}).code_fingerprint != made.code_fingerprint


@pytest.mark.parametrize("params", [{"weights": {1: 2.0}}, {"a": [{None: 1}]}, {"a": {1, 2}}])
def test_params_that_json_would_change_are_not_written_down(params) -> None:
    for made, name in ((one_model(params), "params"), (one_model({}, params), "trainer")):
        assert made.call_known is not None
        assert name not in made.call_known["arguments"]
    # The rows in memory are named first.
    with pytest.raises(CannotRepeatError, match="params= cannot be written as JSON"):
        to_plain("params", params, Role())


def test_a_trainer_with_a_number_that_json_lacks_is_not_written_down() -> None:
    # Parameters are refused that are not finite; a trainer of somebody's own may have others.
    trainer = XGBoostTrainer(label="y")
    trainer.params["max_delta_step"] = float("inf")
    made = intent(trainer=trainer)
    assert made.call_known is not None
    assert "trainer" not in made.call_known["arguments"]
