"""Small modules of a user, made at random, each with an edit made at random.

A module is a list of pieces, most of which its function `fit` uses. A piece has knobs: words in its
text for which there are others. An edit turns one knob, or changes what nobody should notice.
"""

import random
from dataclasses import dataclass

TEXT = r'''
C# = <1|2|'1'|1.0>
=> C#
--
D# = {<'a': 1, 'b': 2|'b': 2, 'a': 1|'a': 1, 'b': 3>}
=> list(D#.items())
--
S# = {<'a', 'b'|'b', 'a'|'a', 'c'>}
=> sorted(S#)
--
class E#(enum.Enum):
    <A = 1|B = 1|A = 3>
    <C = 2|D = 2|C = 'c'>
=> list(E#)
--
class F#(enum.Enum):
    A = 1
    @classmethod
    def _missing_(cls, value):
        return cls.A if value > <3|4> else None
=> attempt(lambda: F#(4))
--
@dataclasses.dataclass(eq=<True|False>, frozen=<True|False>)
class P#:
    <x: int = 1|x: float = 1|y: int = 1>
    <z: int = 2|z: int = 3|w: int = 2>
=> [P#() == P#(), str(P#()), attempt(lambda: setattr(P#(), 'z', 1))]
--
@dataclasses.dataclass(<order=True|order=False>)
class O#:
    a: int = dataclasses.field(default=<1|2>, compare=<True|False>, repr=<True|False>)
=> [attempt(lambda: max(O#(1), O#(2))), repr(O#()), O#(1) == O#(3)]
--
class M#(BaseModel<|, extra='allow'|, frozen=True>):
    a: <int|str|float> = Field(<1|2>, le=<9|7>)
=> [attempt(lambda: M#(a=8)), vars(M#()), attempt(lambda: M#(b=1))]
--
def c#(value):
    return value + <1|2>


class V#(BaseModel):
    a: Annotated[int, AfterValidator(c#)]
    b: Annotated[int, Field(<le|lt>=5)] = 1
    @field_validator(<'a'|'b'>)
    @classmethod
    def check(cls, value):
        return value * <2|3>
=> [attempt(lambda: V#(a=1, b=5)), V#(a=1, b=2)]
--
class N#(NamedTuple):
    <x: int = 1|y: int = 1>
    <z: int = 2|z: int = 3>
=> N#()
--
def f#(value: <int|str> = <1|2>, *, more: float = <3|4>) -> int:
    """<One|Two>."""
    def inner(item: <int|float>) -> float:
        return item <+|*> 5
    return [inner(value), more, [item <-|+> 1 for item in range(<2|3>)]]
=> f#()
--
def g#():
    return [~, <1|2>]
=> g#()
--
def h#():
    return (lambda: [~, <1|2>])()
=> h#()
--
def m#(offset):
    def add(value):
        return value <+|-> offset
    return add


a# = m#(<1|2>)
=> a#(5)
--
p# = functools.partial(lambda x, y: (x, y), <1|2>, y=<3|4>)
=> p#()
--
@functools.lru_cache
def l#(value):
    return value + <1|2>
=> l#(1)
--
@contextlib.contextmanager
def s#():
    yield <1|2>
=> s#().__enter__()
--
class B#:
    rate = <1|2>
    def run(self):
        return self.rate <+|*> 3


class K#(B#):
    @property
    def width(self):
        return <4|5>
    @staticmethod
    def start(x=<6|7>):
        return x
=> [K#().run(), K#().width, K#.start()]
--
class B#:
    pass


class K#(B#):
    value = <1|2>
=> [kind.value for kind in B#.__subclasses__()]
--
def x#():
    return <1|2>
=> globals()['x' + '#']()
--
def x#():
    return <1|2>
=> eval('x' + '#()')
--
def x#():
    return <1|2>
=> getattr(sys.modules[__name__], 'x' + '#')()
--
def x#():
    return <1|2>
=> f_globals(attempt)['x' + '#']()
--
def x#():
    """<One|Two>."""
=> x#.__doc__
--
def x#(value: <int|str>):
    pass
=> str(inspect.signature(x#))
--
def x#(value: <int|str>):
    pass
=> typing.get_type_hints(x#)
--
class K#:
    <def one(self): ...|def won(self): ...>
    def two(self): ...
=> [name for name in vars(K#) if name[0] != '_']
--
class K#:
    one: <int|str>
    two: int
=> [kind.__name__ for kind in typing.get_type_hints(K#).values()]
--
decimal.getcontext().prec = <5|6>
=> str(decimal.Decimal(1) / 3)
--
kept# = decimal.getcontext().__setattr__('prec', <5|6>)
=> str(decimal.Decimal(1) / 3)
--
def set#():
    decimal.getcontext().prec = <5|6>


if True:
    set#()
=> str(decimal.Decimal(1) / 3)
--
def x#():
    return <1|2>


statistics.x# = x#
=> statistics.x#()
--
TABLE# = {}


def keep#(function):
    TABLE#[function.__name__] = function


@keep#
def x#():
    return <1|2>
=> TABLE#['x' + '#']()
--
class B#:
    table = []
    def __init_subclass__(cls):
        B#.table.append(cls)


class K#(B#):
    value = <1|2>
=> [kind.value for kind in B#.table]
--
text# = f'{<1|2>:>{<3|4>}}'
=> text#
--
def d#(*, table={'a': <1|2>}):
    return table
=> d#()
'''
PIECES = [tuple(piece.strip().split("\n=> ")) for piece in TEXT.split("\n--\n")]
"""Pieces, and an expression that uses each. # is its number, ~ the expression of another."""

OTHERS = [
    ("import more", "more.~"),
    ("from more import *", "~"),
    ("", "importlib.import_module('more').~"),
    ("", "__import__('more').~"),
    ("import more", "getattr(more, '~'.partition('(')[0])~("),
    ("def late#():\n    from more import ~!\n    return ~", "late#()"),
]
HEAD = """
import contextlib
import dataclasses
import decimal
import enum
import functools
import importlib
import inspect
import statistics
import sys
import typing
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, field_validator


def attempt(work):
    try:
        return str(work())
    except Exception as error:
        return str(error)


def f_globals(function):
    return function.__globals__


"""
FIT = "\n\n\ndef fit(data, context):\n    return repr([{}])\n"


@dataclass(frozen=True)
class Edit:
    """A module before and after, as the texts of its files by name."""

    what: str
    before: dict[str, str]
    after: dict[str, str]


def make_edit(draw: random.Random) -> Edit:
    """Make a module and an edit of it."""
    pieces = [_piece(draw, number) for number in range(draw.randint(2, 5))]
    more = [_piece(draw, number) for number in range(10, 10 + draw.randint(0, 2))]
    texts, uses = [], []
    for text, use in pieces:
        filled = text.replace("~", uses[-1] if uses else "0")
        texts.append(filled)
        uses.append(use.replace("~", "0"))
    more_texts = [text.replace("~", "0") for text, _ in more]
    for number, (_, use) in enumerate(more, 20):
        name = use.partition("(")[0]
        if use.removeprefix(name) not in ("", "()") or not name.isidentifier():
            texts.append("import more")
            continue
        text, way = draw.choice(OTHERS)
        call = use.removeprefix(name)
        way = way.replace("~(", call).replace("~", name if "'~'" in way else use)
        texts.append(text.replace("~!", name).replace("~", use).replace("#", str(number)))
        uses.append(way.replace("#", str(number)))
    used = [use for use in uses if draw.random() < 0.8]
    shape = [HEAD + "\n\n\n".join(texts) + FIT.format(", ".join(used))]
    shape.append(HEAD + "\n\n\n".join(more_texts) + "\n")
    knobs = [(file, place) for file, text in enumerate(shape) for place in _knobs(text)]
    settings = {knob: draw.choice(_choices(shape, knob)) for knob in knobs}
    changed = dict(settings)
    before = _turned(shape, settings)
    if knobs and draw.random() < 0.85:
        knob = draw.choice(knobs)
        changed[knob] = draw.choice(
            [word for word in _choices(shape, knob) if word != settings[knob]]
        )
        what = f"{settings[knob]!r} became {changed[knob]!r}"
        return Edit(what, before, _turned(shape, changed))
    after = dict(before)
    what = draw.choice(["a comment", "a function that nobody uses", "annotations as text"])
    new = {
        "a comment": lambda text: f"# A word.\n\n{text}",
        "a function that nobody uses": lambda text: f"{text}\n\ndef nobody():\n    return 1\n",
        "annotations as text": lambda text: f"from __future__ import annotations\n{text}",
    }[what]
    name = draw.choice(sorted(after))
    after[name] = new(after[name])
    return Edit(what, before, after)


def _piece(draw: random.Random, number: int) -> tuple[str, str]:
    text, use = draw.choice(PIECES)
    return text.replace("#", str(number)), use.replace("#", str(number))


def _knobs(text: str) -> list[tuple[int, int]]:
    found, start = [], text.find("<")
    while start >= 0:
        stop = text.find(">", start)
        words = text[start + 1 : stop]
        if "|" in words and "\n" not in words:
            found.append((start, stop + 1))
        start = text.find("<", start + 1)
    return found


def _choices(shape: list[str], knob: tuple[int, tuple[int, int]]) -> list[str]:
    file, (start, stop) = knob
    return shape[file][start + 1 : stop - 1].split("|")


def _turned(shape: list[str], settings: dict[tuple[int, tuple[int, int]], str]) -> dict[str, str]:
    texts = list(shape)
    for (file, (start, stop)), word in sorted(settings.items(), reverse=True):
        texts[file] = texts[file][:start] + word + texts[file][stop:]
    return {"prog.py": texts[0], "more.py": texts[1]}
