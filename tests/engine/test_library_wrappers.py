"""A library that wraps its own functions when it is first used has left nothing behind."""

import functools
import importlib
import sys
import types
from collections.abc import Callable

import numpy as np
import pytest

from partwise.engine.child.leftovers import Leftovers
from partwise.engine.child.named_code import NamedCode
from tests.engine.shards import ShardOfRun, table_of

LIBRARY = {
    "__init__": "",
    "base": """
import functools

def hooked(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

class Base:
    def __init__(self):
        kind = type(self)
        if not hasattr(kind.step, "__wrapped__"):
            kind.step = hooked(kind.step)

    def step(self):
        return 1
""",
    "sgd": """
from lib_of_wrappers.base import Base
from lib_of_wrappers.tools import quiet

class Sgd(Base):
    def step(self):
        return 2

GENERATORS = ()

def seed(number):
    return number

def init():
    global GENERATORS
    GENERATORS = (1,)

def warm_up():
    global seed
    seed = quiet(seed)
""",
    "tools": """
import functools

def quiet(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper
""",
}


@pytest.fixture
def library(tmp_path, monkeypatch) -> types.ModuleType:
    """An installed package: its files lie in a folder of that name."""
    folder = tmp_path / "site-packages" / "lib_of_wrappers"
    folder.mkdir(parents=True)
    for name, text in LIBRARY.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder.parent))
    importlib.invalidate_caches()
    yield importlib.import_module("lib_of_wrappers.sgd")
    for name in [name for name in sys.modules if name.startswith("lib_of_wrappers")]:
        del sys.modules[name]


def left_by(function: Callable[[], object]) -> list[str]:
    named = NamedCode([function])
    named.import_all()
    leftovers = Leftovers(named)
    function()
    return leftovers.look(1.0)


def test_what_a_library_wraps_of_its_own_is_no_leftover(library):
    def function():
        import lib_of_wrappers.sgd as sgd

        sgd.Sgd().step()
        sgd.warm_up()
        sgd.seed(1)

    assert left_by(function) == []
    assert hasattr(library.Sgd.step, "__wrapped__")
    assert hasattr(library.seed, "__wrapped__")


def test_nor_what_it_fills_when_it_is_first_used(library):
    """As torch.cuda does: each partition on a GPU would have cost its process."""

    def function():
        import lib_of_wrappers.sgd as sgd

        assert sgd.GENERATORS is not None
        sgd.init()

    assert left_by(function) == []
    assert library.GENERATORS == (1,)

    def replace():
        import lib_of_wrappers.sgd as sgd

        sgd.TABLE = [sgd.TABLE, 1]

    library.TABLE = np.zeros(3)
    assert left_by(replace) == ["it replaced lib_of_wrappers.sgd.TABLE"]


def test_nor_what_it_wraps_of_a_class_derived_from_its_own(library):
    import lib_of_wrappers.base as base

    class Own(base.Base):
        pass

    class Stepping(base.Base):
        def step(self):
            return 3

    def function():
        Own()
        Stepping()

    assert left_by(function) == []
    assert "step" in vars(Own)


def assign(sgd, base, tools):
    sgd.Sgd.step = lambda self: 0


def assign_wrapped(sgd, base, tools):
    sgd.Sgd.step = functools.wraps(sgd.Sgd.step)(lambda self: 0)


def assign_what_the_library_wraps(sgd, base, tools):
    sgd.Sgd.step = tools.quiet(sgd.Sgd.step)


def assign_as_the_library_does(sgd, base, tools):
    sgd.Sgd.step = base.hooked(sgd.Sgd.step)


def set_what_the_library_wraps(sgd, base, tools):
    setattr(sgd.Sgd, "st" + "ep"[:2], tools.quiet(sgd.Sgd.step))


def set_by_name(sgd, base, tools):
    setattr(sgd, "se" + "ed", functools.wraps(sgd.seed)(lambda number: 0))


def assign_another_function_of_the_library(sgd, base, tools):
    sgd.seed = sgd.warm_up


@pytest.mark.parametrize(
    "patch",
    [
        assign,
        assign_wrapped,
        assign_what_the_library_wraps,
        assign_as_the_library_does,
        set_what_the_library_wraps,
        set_by_name,
        assign_another_function_of_the_library,
    ],
    ids=lambda patch: patch.__name__,
)
@pytest.mark.parametrize("is_warm", [False, True])
def test_what_a_user_replaces_of_a_library_is_a_leftover(library, patch, is_warm):
    def function():
        import lib_of_wrappers.base as base
        import lib_of_wrappers.sgd as sgd
        import lib_of_wrappers.tools as tools

        sgd.Sgd()
        patch(sgd, base, tools)

    if is_warm:
        library.Sgd()
    (left,) = left_by(function)
    assert left in (
        "it replaced lib_of_wrappers.sgd.Sgd.step",
        "it replaced lib_of_wrappers.sgd.seed",
    )


@pytest.mark.slow  # torch is imported in each process
def test_optimizers_of_torch_keep_their_process(tmp_path):
    """Each wraps what is its own when it is first used, whatever others have wrapped before it."""

    def function(data, context):
        import os

        import torch

        kind = context.key.partition(" ")[0]
        model = torch.nn.Linear(1, 1)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        rows = torch.utils.data.TensorDataset(torch.ones(8, 1))
        for (batch,) in torch.utils.data.DataLoader(rows, batch_size=4):

            def closure(batch=batch):
                optimizer.zero_grad()
                loss = model(batch).pow(2).mean()
                loss.backward()
                return loss

            optimizer.step(closure)
        schedule.step()
        return {"pid": [os.getpid()]}

    kinds = ("SGD", "Adam", "AdamW", "LBFGS")
    table = table_of(**{f"{kind} {place}": place for kind in kinds for place in range(3)})
    shard = ShardOfRun(tmp_path / "r")
    try:
        _, run = shard.run(function, table)
    finally:
        shard.host.close()
    assert [left for news in shard.host.events for left in news.remarks] == []
    pids = run.predictions()["pid"].to_pylist()
    assert len(pids) == table.num_rows
    assert len(set(pids)) == 1
