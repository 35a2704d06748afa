"""TorchDistributor: the group around a function, on two real gloo ranks."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.errors import FunctionError, InputError
from partwise.outcomes import Result
from partwise.ranks.context import RankContext
from partwise.ranks.current_context import get_context
from partwise.runs.bundle import CATEGORIES_FILENAME
from partwise.trainers.ranks.torch import TorchDistributor, _takes_context
from tests.gangs.local_ranks import ranks_that_have, run_ranks
from tests.lazily import Lazily
from tests.ranks.rank_threads import fragments_of

torch = Lazily("torch")


@dataclass
class Ended:
    """How a call on one rank ended."""

    returned: Any = None
    error: str = ""
    message: str = ""
    cause: str = ""


def group_variables() -> dict[str, str]:
    """What says how to join a group; torch sets other variables for good when it is first used."""
    of_groups = ("MASTER_", "GLOO_", "TORCHELASTIC_")
    return {name: value for name, value in os.environ.items() if name.startswith(of_groups)}


def end_of(call: Callable[[], Any]) -> Ended:
    """Call, and leave the rank as the next call is to find it."""
    import torch.distributed as dist

    context, environment, ended = get_context(), group_variables(), Ended()
    try:
        ended.returned = call()
    except Exception as error:
        ended.error, ended.message = type(error).__name__, str(error)
        ended.cause = type(error.__cause__).__name__
    assert not dist.is_initialized()
    assert group_variables() == environment
    assert get_context() is context
    return ended


# What users' functions do.


def sum_of_ranks():
    import torch.distributed as dist

    context = get_context()
    total = torch.tensor([float(context.rank + 1)], dtype=torch.float64)
    dist.all_reduce(total)
    return {
        "sum": total.item(),
        "backend": dist.get_backend(),
        "world": (dist.get_rank(), dist.get_world_size()),
        "address": (context.master_address, context.master_port),
        "environment": (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])),
        "params": dict(context.params),
        "threads": torch.get_num_threads(),
    }


class Unhappy(Exception):
    """What a user's function raises."""


def fail_on_rank_1(context):
    import torch.distributed as dist

    if context.rank == 1:
        raise Unhappy("no luck today")
    dist.all_reduce(torch.ones(1))


def open_twice():
    import torch.distributed as dist

    dist.init_process_group("gloo")


def raise_value_error():
    raise ValueError("learning rate -1")


def close_itself():
    import torch.distributed as dist

    dist.destroy_process_group()
    return "closed"


def reopen_by_environment(context):
    import torch.distributed as dist

    dist.destroy_process_group()
    dist.init_process_group("gloo", rank=context.rank, world_size=context.world_size)
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def open_as_scripts_do(context):
    """A script of torchrun, which finds all that it needs in the environment."""
    import torch.distributed as dist

    assert not dist.is_initialized()
    address = f"tcp://{context.master_address}:{context.master_port}"
    # Local ranks lack the variables RANK and WORLD_SIZE, which processes of a gang have.
    place = {"rank": context.rank, "world_size": context.world_size}
    method = {"address": address}.get(context.params["by"], context.params["by"])
    dist.init_process_group(context.default_backend, init_method=method, **place)
    total = torch.tensor([float(context.rank + 1)])
    dist.all_reduce(total)
    found = (total.item(), dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
    return found


def open_none():
    import torch.distributed as dist

    return dist.is_initialized()


def end_late_on_rank_1(context):
    """Rank 1 uses the store of the group long after rank 0's function has returned."""
    import torch.distributed as dist

    if context.rank == 1:
        time.sleep(0.5)
        dist.new_group([1], use_local_synchronization=True)
    return context.rank


def return_wrapped(context):
    return Result(fit(torch.float32, torch.ones(4, 3), torch.ones(4)), metrics={"loss": 0.5})


def fit_equal_shares(context):
    """Rows 0..10 of two ranks, in float64."""
    rows = context.data().to_numpy(["x0", "x1", "x2", "y"])
    assert rows.dtype == np.float64
    model = fit(torch.float64, torch.tensor(rows[:, :3]), torch.tensor(rows[:, 3]))
    return {name: values.numpy() for name, values in model.module.state_dict().items()}


def fit(dtype, x, y):
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(get_context().seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 8, dtype=dtype), torch.nn.Tanh(), torch.nn.Linear(8, 1, dtype=dtype)
    )
    return descend(DistributedDataParallel(model), x, y)


def descend(model, x, y):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        ((model(x)[:, 0] - y) ** 2).mean().backward()
        optimizer.step()
    return model


def read_epochs(context):
    """The rows that a loader gives in two epochs, and the meaning of each code."""
    from torch.utils.data import DataLoader

    data = context.data("letters")
    dataset = data.to_torch_dataset(batch_size=2, shuffle=True)
    epochs = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        batches = list(DataLoader(dataset, batch_size=None))
        epochs.append(
            [pair for batch in batches for pair in zip(*map(list, batch.values()), strict=True)]
        )
    every = context.data("letters", equal=False)
    categories = pa.ipc.open_stream(context.files[CATEGORIES_FILENAME]).read_all()
    return {
        "epochs": [[(int(number), int(code)) for number, code in epoch] for epoch in epochs],
        "categories": data.categories("letter").to_pylist(),
        "categories of all rows": every.categories("letter").to_pylist(),
        "categories of more": context.data("more").categories("letter").to_pylist(),
        "kept": categories["letter"].to_pylist(),
        "rows": (data.num_rows, every.num_rows),
        "whole": context.data("letters", whole=True).to_arrow()["letter"].to_pylist(),
    }


WAYS = (None, "env://", "address")

CALLS = {
    "sum": TorchDistributor(sum_of_ranks, params={"lr": 0.1, "epochs": 1}),
    "sum again": TorchDistributor(sum_of_ranks),
    "one fails": TorchDistributor(fail_on_rank_1),
    "sum after a failure": TorchDistributor(f"{__name__}:sum_of_ranks"),
    "opened twice": TorchDistributor(open_twice),
    "value error": TorchDistributor(raise_value_error),
    "closed by the function": TorchDistributor(close_itself),
    "reopened": TorchDistributor(reopen_by_environment),
    **{
        f"by {way}": TorchDistributor(
            open_as_scripts_do, params={"by": way}, process_group="function"
        )
        for way in WAYS
    },
    "opened by nobody": TorchDistributor(open_none, process_group="function"),
    "late": TorchDistributor(end_late_on_rank_1),
    "nccl without GPUs": TorchDistributor(sum_of_ranks, backend="nccl"),
    "wrapped": TorchDistributor(return_wrapped),
    "equal shares": TorchDistributor(fit_equal_shares),
    "epochs": TorchDistributor(read_epochs),
}


def make_all_calls(context: RankContext) -> dict[str, Ended]:
    torch.set_num_threads(2)
    return {name: end_of(partial(call, context)) for name, call in CALLS.items()}


def wrap_often(context: RankContext) -> list[str]:
    torch.set_num_threads(1)
    return [type(CALLS["wrapped"](context).model).__name__ for _ in range(30)]


def numbers() -> pa.Table:
    """11 rows: one more than two equal shares have."""
    random = np.random.default_rng(1)
    return pa.table({name: random.normal(size=11) for name in ("x0", "x1", "x2", "y")})


LETTERS = ["c", "a", "c", None, "c", "d", "b", "d", "e"]


def letters(values: list[str | None]) -> pa.Table:
    """Rank 0 of two sees other letters than rank 1."""
    return pa.table({"number": range(len(values)), "letter": pa.array(values).dictionary_encode()})


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Ended]]:
    """What became of all calls, one after the other, on each of two ranks."""
    tables = {"train": numbers(), "letters": letters(LETTERS), "more": letters(list("zaeay"))}
    sources = {name: fragments_of(table, [3, 4]) for name, table in tables.items()}
    # DistributedDataParallel imports the second one.
    with ranks_that_have("torch.nn.parallel", "torch._dynamo", __name__):
        return run_ranks(2, make_all_calls, sources, params={"epochs": 5}, seed=7)


def both(ranks: list[dict[str, Ended]], name: str) -> list[Any]:
    assert [rank[name].message for rank in ranks] == ["", ""]
    return [rank[name].returned for rank in ranks]


def test_the_group_is_open_in_the_function_each_time_anew(ranks):
    ports = set()
    for name in ("sum", "sum again", "sum after a failure"):
        for number, found in enumerate(both(ranks, name)):
            assert (found["sum"], found["backend"], found["world"]) == (3, "gloo", (number, 2))
            assert found["address"] == found["environment"]
            assert found["threads"] == 1
            ports.add(found["address"])
    assert len(ports) == 3


def test_params_of_the_call_come_first(ranks):
    assert both(ranks, "sum")[1]["params"] == {"lr": 0.1, "epochs": 5}
    assert both(ranks, "sum again")[0]["params"] == {"epochs": 5}


def test_the_users_exception_comes_back_and_the_other_rank_is_set_free(ranks):
    waiting, failed = (rank["one fails"] for rank in ranks)
    assert (failed.error, failed.message, failed.cause) == ("Unhappy", "no luck today", "NoneType")
    # The words by which a gang tells that a rank only died of another.
    assert re.search(r"Connection (closed|reset) by (remote )?peer", waiting.message)


def test_a_function_that_opens_the_group_itself_is_told_who_does(ranks):
    for rank in ranks:
        refused = rank["opened twice"]
        assert (refused.error, refused.cause) == ("InputError", "ValueError")
        assert "TorchDistributor has opened the process group" in refused.message
        assert "take that call out" in refused.message
        assert 'process_group="function"' in refused.message


def test_other_errors_stay_what_they_are(ranks):
    for rank in ranks:
        refused = rank["value error"]
        assert (refused.error, refused.message) == ("ValueError", "learning rate -1")


def test_a_function_may_close_the_group_and_open_it_by_the_environment(ranks):
    assert both(ranks, "closed by the function") == ["closed", "closed"]
    assert both(ranks, "reopened") == [2.0, 2.0]


def test_a_function_opens_the_group_as_a_script_does(ranks):
    for way in WAYS:
        assert both(ranks, f"by {way}") == [(3.0, 0, 2), (3.0, 1, 2)]
    assert both(ranks, "opened by nobody") == [False, False]


def test_the_store_of_the_group_stays_until_all_ranks_have_ended(ranks):
    assert both(ranks, "late") == [0, 1]


def test_nccl_is_refused_where_a_rank_has_no_gpu(ranks):
    for number, rank in enumerate(ranks):
        refused = rank["nccl without GPUs"]
        assert refused.error == "InputError"
        assert f"needs a GPU for each rank, and rank {number} has none" in refused.message


def test_the_model_is_what_the_wrapper_holds(ranks):
    for result in both(ranks, "wrapped"):
        assert type(result.model) is torch.nn.Sequential
        assert result.metrics == {"loss": 0.5}


@pytest.mark.slow
def test_a_wrapper_is_let_go_without_waiting_for_a_thread():
    """On one busy processor a rank hung in one call of ten."""
    with ranks_that_have("torch.nn.parallel", "torch._dynamo", __name__):
        assert run_ranks(2, wrap_often, {}, seed=7) == [["Sequential"] * 30] * 2


def test_two_ranks_make_the_parameters_of_one_process(ranks):
    rows = numbers().to_pandas().to_numpy()[:10]
    torch.manual_seed(7)
    alone = torch.nn.Sequential(
        torch.nn.Linear(3, 8, dtype=torch.float64),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 1, dtype=torch.float64),
    )
    descend(alone, torch.tensor(rows[:, :3]), torch.tensor(rows[:, 3]))
    first, second = both(ranks, "equal shares")
    for name, values in alone.state_dict().items():
        np.testing.assert_allclose(first[name], values.numpy(), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(first[name], second[name])


def test_shares_are_equal_unless_all_rows_are_asked_for(ranks):
    assert [found["rows"] for found in both(ranks, "epochs")] == [(4, 4), (4, 5)]
    assert [found["whole"] for found in both(ranks, "epochs")] == [LETTERS] * 2


def test_a_code_means_the_same_on_every_rank(ranks):
    for number, found in enumerate(both(ranks, "epochs")):
        assert found["categories"] == ["a", "b", "c", "d"]
        assert found["categories of all rows"] == ["a", "b", "c", "d", "e"]
        assert found["kept"] == [["a", "b", "c", "d", "e"]]
        assert found["categories of more"] == ["a", "b", "c", "d", "e", "z"]
        meanings = {None: -1} | {letter: code for code, letter in enumerate("abcd")}
        expected = [(row, meanings[LETTERS[row]]) for row in range(number * 4, number * 4 + 4)]
        for epoch in found["epochs"]:
            assert sorted(epoch) == expected
        assert found["epochs"][0] != found["epochs"][1]


# What is refused where it is written, before any work.


def of_two(context, rows): ...
def of_keyword(*, rows): ...
def of_named_default(context=None): ...
def of_other_default(lr=0.1): ...


@pytest.mark.parametrize("function", [of_two, of_keyword])
def test_a_function_that_needs_more_is_refused(function):
    with pytest.raises(FunctionError, match="takes the context, or nothing"):
        TorchDistributor(function)


def test_a_name_stands_for_its_function_from_the_start():
    assert TorchDistributor(f"{__name__}:sum_of_ranks").train_func is sum_of_ranks
    with pytest.raises(FunctionError, match="has no 'no_such_function'"):
        TorchDistributor(f"{__name__}:no_such_function")


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"backend": "mpi"}, "backend='mpi'"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"timeout_s": -1.0}, "timeout_s=-1.0"),
        ({"process_group": "script"}, "process_group='script'"),
        ({"process_group": "function", "backend": "gloo"}, "backend and timeout_s are what the"),
        ({"process_group": "function", "timeout_s": 9}, "leave them out here"),
    ],
)
def test_settings_out_of_range_are_refused(settings, shown):
    with pytest.raises(InputError, match=shown):
        TorchDistributor(sum_of_ranks, **settings)


@pytest.mark.parametrize(
    ("function", "takes"),
    [(sum_of_ranks, ()), (of_other_default, ()), (of_named_default, ("context",))],
)
def test_a_function_is_given_the_context_where_it_asks_for_it(function, takes):
    assert _takes_context(function) == bool(takes)


@pytest.mark.parametrize(
    ("visible", "gpus", "device"),
    [
        (None, (), "cpu"),
        ("0", ("0",), "cuda:0"),
        ("3", ("3",), "cuda:0"),
        ("2,3", ("3",), "cuda:1"),
        ("GPU-a,GPU-b", ("GPU-b",), "cuda:1"),
        (None, ("1",), "cuda:1"),
    ],
)
def test_the_device_is_counted_as_libraries_count(monkeypatch, visible, gpus, device):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    context = RankContext(rank=0, world_size=1, gpus=gpus)
    assert context.device == device
    assert context.default_backend == ("nccl" if gpus else "gloo")
