"""What a work's own code names: modules, classes, words, and what it imports."""

import dis
import functools
import importlib
import json
import pickle
import re
import subprocess
import sys
import textwrap
from typing import Any

import cloudpickle
import numpy as np
import numpy.random  # NumPy loads it when it is first used
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_imports_are_seen_where_python_loads_their_level_by_another_instruction(
    monkeypatch,
) -> None:
    """As Python 3.14 does."""
    known = dis.get_instructions

    def of_3_14(code):
        for step in known(code):
            is_small = step.opname == "LOAD_CONST" and type(step.argval) is int
            yield step._replace(opname="LOAD_SMALL_INT") if is_small else step

    monkeypatch.setattr(dis, "get_instructions", of_3_14)
    named = NamedCode([sent(by_name)])
    assert {(name, level) for name, level, *_ in named._imports} == {("importlib", 0)}


BLOCKS = {
    "if": "if data:\n    pass\nelse:\n    {}",
    "try": "try:\n    {}\nexcept ImportError:\n    pass",
    "except": "try:\n    pass\nexcept ValueError:\n    {}",
    "finally": "try:\n    pass\nfinally:\n    {}",
    "for": "for each in data:\n    {}",
    "while": "while data:\n    {}\n    break",
    "with": "with data:\n    {}",
    "match": "match data:\n    case 1:\n        {}",
    "def": "def inner():\n    {}",
    "async": "async def inner():\n    {}",
    "generator": "def inner():\n    yield\n    {}",
    "class": "class Inner:\n    {}",
    "method": "class Inner:\n    def method(self):\n        {}",
}
HOLDERS = {
    "global": "def work(*given):\n    return use(*given)",
    "default": "def work(*given, used=use):\n    return used(*given)",
    "closure": "def make(used):\n    return lambda *given: used(*given)\nwork = make(use)",
    "partial": "work = functools.partial(use, context=None)",
    "in a partial": "work = functools.partial(lambda used, *given: used(*given), use)",
    "decorated": "def make(used):\n    @functools.wraps(used)\n    def inner(*given):\n"
    "        return used(*given)\n    return inner\nwork = make(use)",
    "cached": "work = functools.cache(use)",
    "list": "held = [use]\ndef work(*given):\n    return held[0](*given)",
    "dict": "held = {'a': (use,)}\ndef work(*given):\n    return held['a'][0](*given)",
    "method": "class Holder:\n    used = staticmethod(use)\n    def call(self, *given):\n"
    "        return self.used(*given)\nwork = Holder().call",
    "class method": "class Holder:\n    used = classmethod(use)\ndef work(*given):\n"
    "    return Holder.used(*given)",
    "property": "class Holder:\n    used = property(use)\ndef work(*given):\n"
    "    return Holder().used",
    "inherited": "class Base:\n    used = use\nclass Holder(Base):\n    pass\n"
    "def work(*given):\n    return Holder().used()",
    "attribute": "class Holder:\n    def __init__(self, used):\n        self.used = used\n"
    "    def __call__(self, *given):\n        return self.used(*given)\nwork = Holder(use)",
    "slot": "class Holder:\n    __slots__ = ('used',)\nheld = Holder()\nheld.used = use\n"
    "def work(*given):\n    return held.used(*given)",
}
STATEMENTS = ["import {}", "import {}.part as p", "from {} import part", "from {}.part import a, b"]


@st.composite
def importing_functions(draw) -> tuple[Any, set[str]]:
    """Draw a function that imports modules, with what holds it, and the names of these."""
    names, body = set(), ""
    for place, statement in enumerate(draw(st.lists(st.sampled_from(STATEMENTS), min_size=1))):
        module = f"module_{place}"
        names.add(f"{module}.part" if ".part" in statement else module)
        line = statement.format(module)
        for block in draw(st.lists(st.sampled_from(sorted(BLOCKS)), max_size=3)):
            before, _, after = BLOCKS[block].partition("{}")
            line = before + textwrap.indent(line, before.rpartition("\n")[2]).lstrip() + after
        body += f"{line}\n"
    source = f"import functools\ndef held_0(data=None, *_):\n{textwrap.indent(body, '    ')}"
    holders = draw(st.lists(st.sampled_from(sorted(HOLDERS)), max_size=3))
    for place, name in enumerate(holders):
        # Each has names of its own.
        changed = re.sub(r"\buse\b", f"held_{place}", HOLDERS[name])
        changed = re.sub(r"\bwork\b", f"held_{place + 1}", changed)
        source += re.sub(r"\b(held|make|Base|Holder)\b", rf"\1_of_{place}", changed) + "\n"
    scope: dict[str, Any] = {"__name__": "of_a_user"}
    exec(source, scope)
    return scope[f"held_{len(holders)}"], names


@given(importing_functions())
@settings(max_examples=40)
def test_whatever_holds_a_function_its_imports_are_made_ahead(drawn) -> None:
    function, names = drawn
    imported: set[str] = set()

    def note(name: str, *_: Any) -> None:
        imported.add(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib, "__import__", note)
        NamedCode([MapWork(function=function, key_columns=("key",))]).import_all()
    assert names <= imported


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
