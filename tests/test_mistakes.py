"""What pydantic refuses is said in one line, with what was meant and without secrets."""

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, Field, field_validator

import partwise
from partwise.errors import InputError
from partwise.mistakes import MOST_MISTAKES
from partwise.settings import Settings

PUBLIC = [getattr(partwise, name) for name in partwise.__all__]
KINDS = [kind for kind in PUBLIC if isinstance(kind, type) and issubclass(kind, Settings)]
NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
ONE_VALUE = "it is one value where a list is needed: put it in [ ]."
TOO_SMALL = "Input should be greater than or equal to 1"


class Inner(Settings):
    model_config = ConfigDict(extra="forbid")

    depth: Annotated[int, Field(ge=1)] = 1


class Outer(Settings):
    model_config = ConfigDict(extra="forbid")

    rounds: int
    inner: Inner = Inner()
    names: tuple[str, ...] = ()
    values: Sequence[str] = ()
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
        (Outer, {"rounds": 1, "names": "date"}, f"names 'date': {ONE_VALUE}"),
        (
            Outer,
            {"rounds": 1, "names": 7, "values": "x"},
            f"names 7: {ONE_VALUE[:-1]}; values 'x': {ONE_VALUE}",
        ),
        (Outer, {"rounds": 1, "roun-ds": 2}, "there is no 'roun-ds' (did you mean rounds?)."),
        (Outer, {"rounds": 1, "inner": {"de-pth": 2}}, "there is no inner.'de-pth'."),
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


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_whatever_settings_are_given_one_line_says_what_is_wrong(data) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    names = st.sampled_from(sorted(kind.model_fields)) | st.text()
    given_values = data.draw(st.dictionaries(names, ANYTHING, max_size=4))
    # Python itself refuses what is called as its own argument is.
    given_values.pop("self", None)
    said = refusal(kind, given_values)
    assert said.isprintable()
    unknown = [name for name in given_values if name not in kind.model_fields]
    if unknown and "has settings" in said:
        assert "there is no" in said or said.count("; ") >= MOST_MISTAKES - 1


def refusal(kind: type[Settings], values: dict[str, Any]) -> str:
    """Return what an InputError says; empty: the settings are taken."""
    try:
        kind(**values)
    except InputError as error:
        return str(error)
    return ""


def test_of_very_many_mistakes_a_few_are_named() -> None:
    with pytest.raises(InputError) as caught:
        Hidden(**{f"name{number}": 1 for number in range(50)})
    assert str(caught.value).count("there is no") == MOST_MISTAKES


def test_a_value_that_is_very_long_is_cut() -> None:
    with pytest.raises(InputError) as caught:
        Outer(rounds="x" * 1000)
    assert len(str(caught.value)) < 250
