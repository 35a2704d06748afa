"""How many ranks there are where nobody says so: one for few rows on one machine."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from partwise import DistributedLightGBM, DistributedXGBoost, ScalingConfig, choice
from partwise.calls.one_model import DistributedCall, TuneCall
from partwise.engine.scaling import ClusterWorker
from partwise.gangs.placement import Placement, place_ranks
from partwise.planning import gang
from partwise.planning.gang import prepare_gang
from partwise.planning.study import prepare_study
from partwise.sources.opening import open_source

ROWS = pa.table({"x": np.arange(90.0), "kind": np.arange(90) % 3, "y": np.arange(90.0) % 2})
WORKERS = [
    ClusterWorker(address=f"tcp://{place}", host="a", name=str(place), threads=place + 1)
    for place in range(3)
]
XGBOOST, LIGHTGBM = DistributedXGBoost(label="y"), DistributedLightGBM(label="y")


SPACE = {"max_depth": choice([1, 2])}
MORE_IS_BETTER = ["auc", "aucpr", "average_precision", "ndcg@3", "ndcg@3-", "map"]
LESS_IS_BETTER = ["rmse", "mape", "logloss", "l2", "precision_loss", "auc_of"]


@pytest.mark.parametrize("metric", MORE_IS_BETTER + LESS_IS_BETTER)
def test_what_is_better_of_a_metric_of_a_library_says_its_name(metric):
    for trainer in (XGBOOST, LIGHTGBM):
        own = trainer.model_copy(update={"metric_function": f"mine:{metric}"})
        for function, wanted in ((trainer, metric in MORE_IS_BETTER), (own, False)):
            call = TuneCall(ROWS, function, SPACE, metric=f"late_{metric}")
            plan = prepare_study(call, open_source(ROWS), {"late": open_source(ROWS)})
            assert plan.search.maximized is wanted


def of_function(context):
    return None


def placed(trainer=XGBOOST, workers=WORKERS, rows=ROWS, **changes) -> Placement:
    call = DistributedCall(rows, trainer, **{"run_id": "run", **changes})
    return prepare_gang(call, open_source(rows), {}).place(workers)


@pytest.mark.parametrize(("seed", "wanted"), [(5, 5), (2**40 + 5, 5), (-1, 2**31 - 1)])
def test_ranks_have_a_seed_that_libraries_take(seed, wanted):
    call = DistributedCall(ROWS, XGBOOST, run_id="run", seed=seed)
    assert prepare_gang(call, open_source(ROWS), {}).seed == wanted


def test_ranks_are_forked_from_what_has_loaded_what_they_import():
    def trains(context):
        import torch

        return torch.ones(1)

    modules = []
    for trainer in (of_function, trains, XGBOOST, LIGHTGBM):
        call = DistributedCall(ROWS, trainer, run_id="run")
        modules.append(prepare_gang(call, open_source(ROWS), {}).modules)
    assert modules[0] == ()
    assert modules[1] == ("torch",)
    assert "xgboost" in modules[2]
    assert "lightgbm" in modules[3]


@pytest.mark.parametrize("trainer", [XGBOOST, LIGHTGBM])
def test_few_rows_on_one_machine_are_for_one_rank_with_all_threads(trainer):
    placement = placed(trainer)
    assert sum(node.ranks for node in placement.nodes) == 1
    assert placement.threads == 6
    # Nobody else uses the threads of the other workers meanwhile.
    assert {node.worker for node in placement.nodes} == {worker.address for worker in WORKERS}


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer": of_function},
        {"workers": [*WORKERS[:2], replace(WORKERS[2], host="b")]},
        {"workers": [replace(worker, gpus=(worker.name,)) for worker in WORKERS]},
        {"scaling": ScalingConfig(ranks=3)},
        {"scaling": ScalingConfig(ranks=2)},
        {"scaling": ScalingConfig(cpus=1)},
        {"scaling": ScalingConfig(cpus=2)},
        {"scaling": ScalingConfig(gpus=0)},
    ],
)
def test_else_ranks_are_where_the_scaling_says(changes):
    scaling = changes.get("scaling", ScalingConfig())
    workers = changes.get("workers", WORKERS)
    assert placed(**changes) == place_ranks(workers, scaling)
    assert sum(node.ranks for node in placed(**changes).nodes) > 1


@pytest.mark.parametrize(
    ("trainer", "meetings"),
    [
        (XGBOOST, 100 * 6),
        (DistributedXGBoost(label="y", rounds=7, params={"max_depth": 3}), 7 * 3),
        (DistributedXGBoost(label="y", params={"max_depth": 0}), 100),
        (DistributedXGBoost(label="y", params={"objective": "binary:logistic"}), 100 * 6),
        (
            DistributedXGBoost(
                label="kind", params={"objective": "multi:softprob", "num_class": 3}, rounds=10
            ),
            10 * 3 * 6,
        ),
        (LIGHTGBM, 100 * 30),
        (DistributedLightGBM(label="y", params={"max_leaves": 8}, rounds=5), 5 * 7),
        (
            DistributedLightGBM(
                label="kind", classes=("0", "1", "2"), params={"objective": "multiclass"}
            ),
            100 * 3 * 30,
        ),
    ],
)
def test_the_more_often_ranks_would_meet_the_more_rows_are_few(monkeypatch, trainer, meetings):
    assert trainer.meetings() == meetings
    columns = len(ROWS.column_names)
    for more, ranks in ((0, 3), (1, 1)):
        # Exactly as many values as are too many, and one fewer.
        each = ROWS.num_rows * columns / meetings * (1 + more * 1e-9)
        monkeypatch.setattr(gang, "VALUES_A_MEETING", each)
        assert sum(node.ranks for node in placed(trainer).nodes) == ranks


def test_of_rows_that_nobody_has_counted_each_worker_has_a_share(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    assert sum(node.ranks for node in placed(rows=str(tmp_path / "rows.csv")).nodes) == 3


def test_who_names_a_class_that_the_serde_does_not_know_hears_so_before_the_work():
    from partwise import PickleSerde, TorchDistributor, TorchSerde
    from tests.models import torch_nets

    def of_script(context):
        return torch_nets.Net()

    def warned(trainer, serde=""):
        call = DistributedCall(ROWS, trainer, run_id="run", serde=serde)
        return prepare_gang(call, open_source(ROWS), {}).warnings

    (sentence,) = warned(TorchDistributor(of_script))
    assert "serde=TorchSerde(classes=(Net,))" in sentence
    assert warned(of_script, TorchSerde())
    assert not warned(of_script, TorchSerde(classes=(torch_nets.Net,)))
    assert not warned(of_script, TorchSerde(mode="state", factory=torch_nets.Net))
    assert not warned(of_script, PickleSerde())
    assert not warned(of_function)
    assert not warned(XGBOOST)
