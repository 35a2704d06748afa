"""Instructions of Pythons that are not here, made up."""

import types
from typing import NamedTuple

import pytest

from partwise.fingerprints import bytecode


class Step(NamedTuple):
    """An instruction as `dis` gives it, as far as it is looked at."""

    opname: str
    arg: int
    effect: int
    """What it leaves on the stack."""

    @property
    def opcode(self) -> int:
        """What `stack_effect` is asked by."""
        return self.effect


CLOSURE = [Step("LOAD_FAST", 0, 1), Step("BUILD_TUPLE", 1, 0)]
MAKE = [Step("LOAD_CONST", 0, 1), Step("MAKE_FUNCTION", 0, 0)]
CLOSES = Step("SET_FUNCTION_ATTRIBUTE", 0x8, -1)
DEFAULTS = Step("SET_FUNCTION_ATTRIBUTE", 0x1, -1)
VALUE, STORE = Step("LOAD_CONST", 1, 1), Step("STORE_FAST", 0, -1)
MAKES_NOTES = {
    "a tuple": (0x4, [VALUE, VALUE, Step("BUILD_TUPLE", 2, -1)]),
    "a function": (0x10, MAKE),
    "a closure": (0x10, [*CLOSURE, *MAKE, CLOSES]),
}


@pytest.mark.parametrize("notes", MAKES_NOTES)
@pytest.mark.parametrize("closes", [False, True])
def test_what_makes_annotations_does_not_count(monkeypatch, notes, closes) -> None:
    """Python 3.13 has them in a tuple, 3.14 a function that makes them."""
    flag, made = MAKES_NOTES[notes]
    noted = Step("SET_FUNCTION_ATTRIBUTE", flag, -1)
    before = CLOSURE if closes else []
    after = [CLOSES] if closes else []
    plain = [VALUE, *before, *MAKE, *after, DEFAULTS, STORE]
    steps = [VALUE, *made, *before, *MAKE, *after, noted, DEFAULTS, STORE]
    made_up = types.SimpleNamespace(
        get_instructions=lambda code: code, stack_effect=lambda opcode, arg, jump: opcode
    )
    monkeypatch.setattr(bytecode, "dis", made_up)
    assert bytecode.instructions(steps) == plain
    assert bytecode.instructions(steps, whole=True) == steps


def test_what_a_function_that_makes_annotations_reads_does_not_count() -> None:
    text = "def outer():\n    def __annotate__(form):\n        return Optional\n"
    (code,) = [each for each in compile(text, "", "exec").co_consts if hasattr(each, "co_code")]
    assert bytecode.global_loads(code) == set()
    assert bytecode.global_loads(code, whole=True) == {("Optional",)}
