import dataclasses
import functools
import importlib.util
import json
import operator
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from partwise.fingerprints.functions import CodeFingerprint, code_fingerprint

HELPERS = """
RATE = 0.5

def scale(value):
    return value * RATE

def unused(value):
    return value
"""

# Every line that a test changes stands here once.
SHOP = '''
"""Models of a shop."""

import contextlib
import dataclasses
import enum
import functools
import logging
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import BaseModel, Field

from shop import helpers
from shop.helpers import scale

logger = logging.getLogger(__name__)
THRESHOLD = 3
NAMES = {"price", "promotion", "weather", "holiday"}
SETTINGS = {"depth": 4, "leaves": [7, 15]}
WEIGHTS = np.array([1.0, 2.0, 3.0])
HOLIDAYS = pd.DataFrame({"day": ["easter", "whitsun"], "factor": [1.5, 1.25]})
CODES = pa.array([1, 2, None])


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


class Window(NamedTuple):
    days: int = 28


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    rounds: int = 100
    columns: list = dataclasses.field(default_factory=lambda: ["price"])

    def half(self):
        return self.rounds // 2


class Base:
    penalty = 0.1

    def loss(self, value):
        return value + self.penalty


class Net(Base):
    @staticmethod
    def activate(value):
        return max(value, 0)

    @property
    def width(self):
        return 64

    def loss(self, value):
        return super().loss(value) * 2


class Trainer(BaseModel):
    label: str
    rounds: int = Field(default=10, ge=1)

    def train(self, data, context):
        return Net().loss(self.rounds)


def even(value):
    return value == 0 or odd(value - 1)


def odd(value):
    return value != 0 and even(value - 1)


@functools.lru_cache
def cached(value):
    return value + 11


def twice(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments) * 2

    return wrapper


@twice
def decorated(value):
    return value + 13


@contextlib.contextmanager
def session():
    yield 41


def managed(data, context):
    with session() as number:
        return number


def make(offset):
    def fit(data, context):
        return data.num_rows + offset

    return fit


def fit(data, context, alpha=0.01, *, beta=0.02):
    """Train one model."""
    logger.info("training")
    parts = [part for part in data if part in NAMES]
    total = sum(value + 17 for value in parts)

    def inner(value):
        return value - 19

    if total in {23, 29}:
        total += WEIGHTS.sum() + HOLIDAYS["factor"].sum() + len(CODES)
    total += scale(total) + helpers.RATE + inner(total) + cached(total) + decorated(total)
    total += Net().loss(total) + Options().half() + Window().days + even(total)
    return total > THRESHOLD, SETTINGS, Mode.FAST, alpha, beta


def lazy(data, context):
    from shop.later import model

    return model(data)


fit_offset = make(5)
fit_lambda = lambda data, context: data.num_rows * 31
fit_partial = functools.partial(fit, alpha=0.5)
trainer = Trainer(label="sales")
'''

LATER = """
import shop.deeper

def model(data):
    return shop.deeper.value()
"""

DEEPER = '''
"""Not imported by anyone yet."""

def value():
    return 37
'''

MODULES = {"helpers": HELPERS, "later": LATER, "deeper": DEEPER}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Import a version of the package `shop` and return it; the one before is forgotten."""
    number = 0

    def load(*changes: tuple[str, str], **modules: str):
        nonlocal number
        number += 1
        texts = MODULES | modules
        source = SHOP
        for old, new in changes:
            holder = [name for name, text in {"": source, **texts}.items() if old in text]
            assert len(holder) == 1, (old, holder)
            if holder == [""]:
                assert source.count(old) == 1, old
                source = source.replace(old, new)
            else:
                texts[holder[0]] = texts[holder[0]].replace(old, new)
        folder = tmp_path / str(number) / "shop"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(source)
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(str(folder.parent))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        module = importlib.import_module("shop")
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            monkeypatch.setitem(sys.modules, name, sys.modules[name])
        return module

    return load


def digest(obj) -> str:
    found = code_fingerprint(obj)
    assert found.unknown == ()
    assert found.digest is not None
    return found.digest


@pytest.fixture
def base(load) -> str:
    return digest(load().fit)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def even", "\n\n\ndef even"),
        ("RATE = 0.5", "\n\nRATE = 0.5"),
        ("def fit(data, context, alpha", "# A comment\ndef fit(data, context, alpha"),
        ("Train one model.", "Train one model, and say so."),
        ('    """Train one model."""\n', ""),
        ("Models of a shop.", "Models of the shop."),
        ("def even(value):", 'def even(value: int) -> "bool":'),
        ("def unused(value):\n    return value", "def unused(value):\n    return -value"),
        ('"weather", "holiday"}', '"holiday", "weather"}'),
        ("def make(offset):", "def other():\n    return 1\n\ndef make(offset):"),
    ],
)
def test_what_does_not_matter_does_not_count(load, base, old, new):
    assert digest(load((old, new)).fit) == base


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("value + 17", "value + 18", id="constant in a comprehension"),
        pytest.param("value - 19", "value - 20", id="constant in an inner function"),
        pytest.param("{23, 29}", "{23, 31}", id="constant in a set"),
        pytest.param("total > THRESHOLD", "total < THRESHOLD", id="operator"),
        pytest.param("THRESHOLD = 3", "THRESHOLD = 4", id="global number"),
        pytest.param("THRESHOLD = 3", "THRESHOLD = 3.0", id="global's type"),
        pytest.param('"weather", "holiday"', '"weather"', id="global set"),
        pytest.param("[7, 15]", "[7, 16]", id="global dict"),
        pytest.param(
            '{"depth": 4, "leaves": [7, 15]}',
            '{"leaves": [7, 15], "depth": 4}',
            id="order of a dict",
        ),
        pytest.param("rounds: int = 100", "rounds: float = 100", id="type of a field"),
        pytest.param("[1.0, 2.0, 3.0]", "[1.0, 2.0, 3.5]", id="global array"),
        pytest.param("[1.5, 1.25]", "[1.5, 1.26]", id="global frame"),
        pytest.param("[1, 2, None]", "[1, None, 2]", id="global Arrow array"),
        pytest.param("alpha=0.01", "alpha=0.02", id="default"),
        pytest.param("beta=0.02", "beta=0.01", id="keyword default"),
        pytest.param("return value * RATE", "return value / RATE", id="imported helper"),
        pytest.param("RATE = 0.5", "RATE = 0.6", id="constant of a module, and of its helper"),
        pytest.param("value + 11", "value + 12", id="cached helper"),
        pytest.param("value + 13", "value + 14", id="decorated helper"),
        pytest.param("(*arguments) * 2", "(*arguments) * 3", id="decorator"),
        pytest.param("value != 0 and even", "value != 1 and even", id="mutual recursion"),
        pytest.param('FAST = "fast"', 'FAST = "faster"', id="enum member"),
        pytest.param("days: int = 28", "days: int = 27", id="named tuple's default"),
        pytest.param("rounds: int = 100", "rounds: int = 101", id="dataclass default"),
        pytest.param('lambda: ["price"]', 'lambda: ["prices"]', id="default factory"),
        pytest.param("self.rounds // 2", "self.rounds // 3", id="dataclass method"),
        pytest.param("penalty = 0.1", "penalty = 0.2", id="attribute of a base class"),
        pytest.param("value + self.penalty", "value - self.penalty", id="method of a base class"),
        pytest.param("max(value, 0)", "max(value, 1)", id="static method"),
        pytest.param("return 64", "return 65", id="property"),
        pytest.param("loss(value) * 2", "loss(value) * 3", id="overridden method"),
        pytest.param("class Net(Base):", "class Net(Base, dict):", id="base class"),
        pytest.param("getLogger(__name__)", 'getLogger("another")', id="logger"),
    ],
)
def test_what_matters_counts(load, base, old, new):
    assert digest(load((old, new)).fit) != base


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("fit_offset", "make(5)", "make(6)"),
        ("fit_offset", "num_rows + offset", "num_rows - offset"),
        ("fit_lambda", "num_rows * 31", "num_rows * 32"),
        ("fit_partial", "alpha=0.5", "alpha=0.6"),
        ("fit_partial", "THRESHOLD = 3", "THRESHOLD = 4"),
        ("trainer", 'label="sales"', 'label="price"'),
        ("trainer", "Field(default=10,", "Field(default=11,"),
        ("trainer", "loss(self.rounds)", "loss(-self.rounds)"),
        ("trainer", "loss(value) * 2", "loss(value) * 3"),
        ("managed", "yield 41", "yield 42"),  # behind a decorator of the standard library
        ("lazy", "return model(data)", "return model(-data)"),
        ("lazy", "shop.deeper.value()", "-shop.deeper.value()"),
        ("lazy", "return 37", "return 38"),
    ],
)
def test_closures_partials_trainers_and_late_imports(load, name, old, new):
    before, again = digest(getattr(load(), name)), digest(getattr(load(), name))
    assert before == again
    assert digest(getattr(load((old, new)), name)) != before


def test_late_imports_are_not_run(load):
    module = load(later="raise SystemExit\n")
    before = digest(module.lazy)
    assert "shop.later" not in sys.modules
    assert digest(load(later="# Moved.\n\nraise SystemExit\n").lazy) == before


def test_settings_of_a_trainer_count(load):
    trainer = load().trainer
    assert digest(trainer.model_copy()) == digest(trainer)
    assert digest(trainer.model_copy(update={"rounds": 11})) != digest(trainer)
    assert digest(trainer.train) != digest(trainer.model_copy(update={"rounds": 11}).train)


def test_methods_of_a_dataclass_count_also_where_exec_runs_its_code():
    def trained(code: str) -> str:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(code, "<string>", "exec"), namespace)
        return digest(namespace["Trainer"]())

    code = """
import dataclasses

@dataclasses.dataclass(frozen=True, order=True)
class Trainer:
    rounds: int = 3

    def train(self, data):
        return 1

    def __call__(self, data):
        return 2
"""
    assert trained(code) == trained(code + "\n")
    assert trained(code) != trained(code.replace("return 1", "return 7"))
    assert trained(code) != trained(code.replace("return 2", "return 7"))


SEEDS_SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import shop
from partwise.fingerprints.functions import code_fingerprint
names = ["fit", "fit_offset", "fit_lambda", "fit_partial", "trainer", "lazy", "Net", "Trainer"]
print(json.dumps([code_fingerprint(getattr(shop, name)).digest for name in names]))
"""


def test_the_same_under_every_hash_seed(load, start_python):
    folder = Path(load().__file__).parents[1]
    processes = [start_python(SEEDS_SCRIPT, folder, PYTHONHASHSEED=seed) for seed in "012"]
    first, second, third = (json.loads(process.communicate()[0]) for process in processes)
    assert first == second == third
    assert len(set(first)) == len(first)
    assert None not in first


SCRIPT = """
import json, sys, cloudpickle, numpy as np
from partwise.fingerprints.functions import code_fingerprint
if len(sys.argv) > 2:
    fit = cloudpickle.load(open(sys.argv[2], "rb"))
else:
    LIMIT = 3
    class Model:
        def __init__(self):
            super().__init__()
            self.limit = LIMIT
    def helper(x):
        return np.sum(x) + LIMIT
    def fit(data, context):
        return Model(), helper(data)
    cloudpickle.dump(fit, open(sys.argv[1], "wb"))
found = code_fingerprint(fit)
print(json.dumps([found.digest, found.unknown]))
"""


def test_the_same_for_a_function_that_was_sent(tmp_path, run_python):
    sent = tmp_path / "fit.pickle"
    here, unknown = run_python(SCRIPT, sent)
    there = run_python(SCRIPT, sent, sent)
    assert unknown == []
    assert there == [here, []]


class TestUnknown:
    """What cannot be compared is named, so that a person can do something about it."""

    LOCK = threading.Lock()

    def test_global(self, load):
        found = code_fingerprint(load(("THRESHOLD = 3", "THRESHOLD = iter([])")).fit)
        assert found == CodeFingerprint(
            digest=None, unknown=("shop.fit: global THRESHOLD (list_iterator)",)
        )

    def test_closure(self, load):
        found = code_fingerprint(load().make(threading.Lock()))
        assert found.digest is None
        assert found.unknown == ("shop.make.<locals>.fit: closure offset (_thread.lock)",)

    def test_default_argument_and_attribute(self):
        def fit(data, context, lock=self.LOCK):
            return lock

        fit.stream = sys.__stdout__
        assert [text.partition(": ")[2] for text in code_fingerprint(fit).unknown] == [
            "default (_thread.lock)",
            "stream (_io.TextIOWrapper)",
        ]

    def test_partial_and_nested(self, load):
        found = code_fingerprint(functools.partial(load().fit, {"deep": [self.LOCK]}))
        assert found.unknown == ("shop.fit (_thread.lock)",)

    def test_setting_of_a_trainer(self):
        @dataclasses.dataclass
        class Trainer:
            callbacks: list

        assert (
            "Trainer: callbacks (_thread.lock)" in code_fingerprint(Trainer([self.LOCK])).unknown[0]
        )

    def test_objects_of_other_packages_as_a_whole(self, load):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            (unknown,) = code_fingerprint(load().make(pool)).unknown
        assert unknown.endswith("closure offset (concurrent.futures.thread.ThreadPoolExecutor)")

    def test_all_of_them(self, load):
        module = load(("THRESHOLD = 3", "THRESHOLD = iter([])"), ("RATE = 0.5", "RATE = iter([])"))
        found = code_fingerprint(module.fit)
        assert found.unknown == (
            "shop.fit: global THRESHOLD (list_iterator)",
            "shop.fit: global helpers.RATE (list_iterator)",
            "shop.helpers.scale: global RATE (list_iterator)",
        )

    def test_endless_nesting(self):
        nested = []
        for _ in range(5000):
            nested = [nested]
        assert "nested too deeply" in code_fingerprint(lambda: nested).unknown[0]


class TestVersion:
    def test_is_taken_in_place_of_the_code(self, load):
        lock = load().make(threading.Lock())
        first = code_fingerprint(lock, version="1")
        assert first.digest is not None
        assert first.unknown == ()
        assert code_fingerprint(lock, version="1") == first
        assert code_fingerprint(lock, version="2") != first


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (operator.itemgetter("a"), operator.itemgetter("b")),
        (str.lower, str.upper),
        (len, max),
        ([].append, [1].append),
        (json.dumps, json.loads),
    ],
)
def test_code_of_others_goes_by_its_name(one, other):
    assert digest(one) == digest(one) != digest(other)


def test_numpy_functions_go_by_their_names():
    import numpy as np

    def fit(function):
        return lambda data: function(data)

    functions = [np.exp, np.log, np.mean, np.float32, np.random.default_rng(0), np.linalg.norm]
    assert len({digest(fit(function)) for function in functions}) == len(functions)


def test_the_trainers_of_the_house_have_one():
    from partwise.trainers import LightGBMTrainer, XGBoostTrainer

    first = LightGBMTrainer(label="a", params={"max_depth": 3, "eta": 0.1})
    assert digest(first) == digest(LightGBMTrainer(label="a", params={"max_depth": 3, "eta": 0.1}))
    assert digest(first) != digest(LightGBMTrainer(label="a", params={"eta": 0.2, "max_depth": 3}))
    assert digest(first) != digest(XGBoostTrainer(label="a"))
