"""What pydantic refuses is said in one line, with what was meant and without secrets."""

from typing import Annotated

import pytest
from pydantic import ConfigDict, Field, field_validator

from partwise.errors import InputError
from partwise.mistakes import MOST_MISTAKES
from partwise.settings import Settings

NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
TOO_SMALL = "Input should be greater than or equal to 1"


class Inner(Settings):
    model_config = ConfigDict(extra="forbid")

    depth: Annotated[int, Field(ge=1)] = 1


class Outer(Settings):
    model_config = ConfigDict(extra="forbid")

    rounds: int
    inner: Inner = Inner()
    registry: str = ""

    @field_validator("registry")
    @classmethod
    def _is_a_block(cls, value: str) -> str:
        if value:
            raise ValueError("it is the name of a block, and no password.")
        return value


class Hidden(Settings):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    address: int = 0


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (Outer, {}, "rounds: Field required."),
        (Outer, {"rounds": 1, "Inner": 2}, "there is no Inner (did you mean inner?)."),
        (Outer, {"rounds": 1, "zzz": 2}, "there is no zzz."),
        (
            Outer,
            {"rounds": "many", "inner": {"depth": 0, "dpth": 2}},
            f"rounds 'many': {NO_INTEGER}; inner.depth 0: {TOO_SMALL}; there is no inner.dpth.",
        ),
        (
            Outer,
            {"rounds": 1, "registry": "hunter2"},
            "registry: it is the name of a block, and no password.",
        ),
        (
            Hidden,
            {"address": "http://ann:hunter2@host"},
            f"address: {NO_INTEGER}.",
        ),
    ],
)
def test_settings_say_in_one_line_what_they_cannot_use(kind, given, sentence) -> None:
    with pytest.raises(InputError) as caught:
        kind(**given)
    assert str(caught.value) == f"{kind.__name__} has settings that it cannot use: {sentence}"
    # No text of pydantic's stands above it.
    assert caught.value.__suppress_context__


def test_of_very_many_mistakes_a_few_are_named() -> None:
    with pytest.raises(InputError) as caught:
        Hidden(**{f"name{number}": 1 for number in range(50)})
    assert str(caught.value).count("there is no") == MOST_MISTAKES


def test_a_value_that_is_very_long_is_cut() -> None:
    with pytest.raises(InputError) as caught:
        Outer(rounds="x" * 1000)
    assert len(str(caught.value)) < 250
