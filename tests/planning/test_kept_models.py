"""A function that says it returns a PyTorch class of its own, which the serde does not know."""

from typing import Any

import pytest

from partwise import PickleSerde, Result, TorchDistributor, TorchSerde, UnkeptModelError
from partwise.calls.one_model import DistributedCall, TuneCall
from partwise.calls.partitions import TrainCall
from partwise.planning.gang import prepare_gang
from partwise.planning.kept_models import refuse_unkept
from partwise.planning.partitions import prepare_training
from partwise.planning.study import prepare_study
from partwise.sources.opening import open_source
from tests.lazily import Lazily
from tests.planning.test_gangs import ROWS

nets, torch = Lazily("tests.models.torch_nets"), Lazily("torch")


def returning(kind: Any) -> Any:
    def train(data, context):
        raise AssertionError("it is not called")

    train.__annotations__["return"] = kind
    return train


def test_it_is_refused_before_the_work_by_each_flow() -> None:
    train, source = returning(nets.Net), open_source(ROWS)
    expected = r"returns a Net, by its annotation: pass serde=TorchSerde\(classes=\(Net,\)\)"
    with pytest.raises(UnkeptModelError, match=expected):
        prepare_training(TrainCall(ROWS, "x", train, run_id="run"), source)
    tuning = TuneCall(ROWS, train, {"x": [1]}, metric="loss", run_id="run", serde="torch")
    with pytest.raises(UnkeptModelError, match=expected):
        prepare_study(tuning, source)
    for trainer in (of_ranks, TorchDistributor(of_ranks)):
        with pytest.raises(UnkeptModelError, match=expected):
            prepare_gang(DistributedCall(ROWS, trainer, run_id="run"), source, {})


def of_ranks(context) -> "nets.Net | None":
    raise AssertionError("it is not called")


@pytest.mark.parametrize("kind", [Any, None, Result, "Unknown", "nets.Net("])
def test_of_others_nobody_knows_before_they_return(kind) -> None:
    refuse_unkept(returning(kind), None)


def test_what_can_be_kept_is_taken() -> None:
    refuse_unkept(returning(torch.nn.Linear), None)
    refuse_unkept(lambda data, context: None, None)
    for serde in (
        PickleSerde(),
        TorchSerde(classes=(nets.Net,)),
        TorchSerde(mode="state", factory=nets.Net),
    ):
        refuse_unkept(returning(nets.Net), serde)
