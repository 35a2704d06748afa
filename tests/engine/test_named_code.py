"""What a work's own code names: modules, classes, words, and what it imports."""

import functools
import json
import pickle
import subprocess
import sys

import cloudpickle
import numpy as np
import pytest

from partwise.engine.child.leftovers import Leftovers
from partwise.engine.child.named_code import NamedCode
from partwise.engine.works import MapWork, TrainWork
from partwise.trainers import LightGBMTrainer


class Model:
    rate = 1

    def fit(self):
        return helper(self.rate)


def helper(value):
    return json.dumps(np.random.rand() + value)


def plain(data, context):
    return None


def through_a_class(data, context):
    return Model().fit()


def by_name(data, context):
    import importlib

    return importlib.import_module("statistics")


def sent(function):
    """Return work with this function as a child gets it."""
    return pickle.loads(cloudpickle.dumps(MapWork(function=function, key_columns=("key",))))


@pytest.mark.parametrize(
    "function",
    [
        through_a_class,
        functools.partial(through_a_class),
        Model().fit,
        functools.wraps(plain)(through_a_class),
        [through_a_class],
        {"a": (through_a_class,)},
    ],
)
def test_helpers_and_classes_are_followed(function) -> None:
    named = NamedCode([sent(function)])
    assert {"json", "numpy", "numpy.random", "builtins"} <= named.scopes.keys()
    assert {"dumps", "rand", "rate"} <= named.words
    assert any(name.endswith("test_named_code.Model") for name in named.own)
    assert "numpy" not in named.own


def test_a_function_that_names_nothing_has_nothing_to_watch() -> None:
    named = NamedCode([sent(plain)])
    assert not named.sets_attributes
    assert {name for name in named.scopes if "test_named_code" not in name} == {"builtins"}


def test_a_module_named_in_a_text_counts_when_it_is_imported() -> None:
    named = NamedCode([sent(by_name)])
    import statistics  # noqa: F401

    named.follow()
    assert "statistics" in named.scopes


IMPORTING = """
import pickle, sys
from partwise.engine.child.named_code import NamedCode
named = NamedCode([pickle.load(open(sys.argv[1], "rb"))])
assert "colorsys" not in sys.modules
named.import_all()
assert {"colorsys", "xml.dom.minidom"} <= sys.modules.keys()
assert "colorsys" in named.scopes
"""


def test_imports_in_bodies_are_made_ahead_and_those_that_fail_are_left(tmp_path) -> None:
    def function(data, context):
        import colorsys
        from xml.dom import minidom

        import no_such_library

        return colorsys, minidom, no_such_library

    path = tmp_path / "work.pkl"
    path.write_bytes(cloudpickle.dumps(MapWork(function=function, key_columns=("key",))))
    command = [sys.executable, "-c", IMPORTING, str(path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_library_of_a_trainer_is_imported_ahead_and_no_other() -> None:
    named = NamedCode([TrainWork(function=LightGBMTrainer(label="y"), serde=None)])
    assert {name for name, *_ in named._imports} == {"lightgbm"}


class Odd:
    """An object that fails whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError("not this")

    def __eq__(self, other):
        raise RuntimeError("nor this")

    __hash__ = None


def test_objects_that_cannot_be_looked_at_are_passed_over() -> None:
    def function(data, context):
        return odd, helper

    odd = Odd()
    assert "json" in NamedCode([MapWork(function=function, key_columns=())]).scopes


def test_what_a_library_keeps_for_itself_is_not_taken_for_dirt(monkeypatch) -> None:
    def function(data, context):
        np.mean = json.loads = None

    leftovers = Leftovers(NamedCode([MapWork(function=function, key_columns=())]))
    monkeypatch.setattr(np, "_cache_of_its_own", {}, raising=False)
    monkeypatch.setattr(np, "added_submodule", json, raising=False)
    assert leftovers.look(1.0) == []
    monkeypatch.setattr(np, "pi", 3)
    monkeypatch.setattr(json, "detect_encoding", None)
    monkeypatch.delattr(json, "load")
    assert sorted(leftovers.look(1.0)) == [
        "it removed json.load",
        "it replaced json.detect_encoding",
        "it replaced numpy.pi",
    ]
