"""Spaces: what they refuse, and that whatever a study tries lies in them."""

import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator

from partwise.errors import InputError
from partwise.tuning.sampler import check_sampler, make_sampler
from partwise.tuning.search import Search
from partwise.tuning.space import (
    Choice,
    LogUniform,
    RandInt,
    Uniform,
    choice,
    grid,
    loguniform,
    parse_space,
    randint,
    suggest,
    uniform,
)
from tests.lazily import Lazily

optuna = Lazily("optuna")


class Document(BaseModel):
    space: Annotated[Any, BeforeValidator(parse_space)]


_numbers = st.floats(-1e6, 1e6)
_json = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3)
_values = st.one_of(
    st.tuples(_numbers, _numbers).filter(lambda ends: ends[0] < ends[1]).map(lambda e: uniform(*e)),
    st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
    .filter(lambda ends: ends[0] < ends[1])
    .map(lambda e: loguniform(*e)),
    st.tuples(st.integers(-50, 50), st.integers(1, 50)).map(lambda e: randint(e[0], e[0] + e[1])),
    st.lists(_json | st.lists(_json, max_size=2), min_size=1, max_size=4, unique_by=json.dumps).map(
        choice
    ),
    _json,
)
_spaces = st.dictionaries(st.text(min_size=1, max_size=5), _values, max_size=4)


def lies_in(value, part):
    match part:
        case RandInt():
            return isinstance(value, int) and part.low <= value < part.high
        case Uniform() | LogUniform():
            return part.low <= value <= part.high
        case Choice():
            return json.dumps(value) in [json.dumps(each) for each in part.values]
    return value == part


@given(space=_spaces, sampler=st.sampled_from(["tpe", "random"]), seed=st.integers(0, 2**31 - 1))
def test_what_is_tried_lies_in_the_space(space, sampler, seed):
    study = optuna.create_study(sampler=make_sampler(sampler, seed, space))
    for value in range(3):
        trial = study.ask()
        settings = suggest(trial, space)
        assert list(settings) == list(space)
        assert all(lies_in(settings[name], part) for name, part in space.items())
        study.tell(trial, value)


@given(space=_spaces)
def test_a_document_can_have_it(space):
    written = Document(space=space).model_dump_json()
    assert Document.model_validate_json(written).space == parse_space(space)


@given(seed=st.integers(0, 2**31 - 1))
def test_the_same_seed_tries_the_same(seed):
    space = {"a": loguniform(0.01, 1), "b": choice(["x", "y"])}
    first, second = (
        optuna.create_study(sampler=make_sampler("tpe", seed, space)) for _ in range(2)
    )
    assert [suggest(first.ask(), space) for _ in range(4)] == [
        suggest(second.ask(), space) for _ in range(4)
    ]


def test_the_grid_tries_all():
    space = {"a": grid([1, 1.0, True, [2]]), "b": randint(0, 3), "c": 7}
    with Search([], space, sampler="grid").trials() as trials:
        tried = [json.dumps(trial.settings) for trial in trials]
    assert len(tried) == len(set(tried)) == 12


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uniform(2, 2), "uniform goes from 2 to 2: the low end has to be below"),
        (lambda: randint(5, 4), "randint goes from 5 to 4"),
        (lambda: loguniform(0, 1), "greater than 0"),
        (lambda: uniform(0, float("nan")), "finite"),
        (lambda: choice([]), "at least 1"),
        (lambda: grid([1, 2, 1]), "grid has the value 1 twice"),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_bad_spaces_are_refused():
    with pytest.raises(InputError, match="the kind 'normal': give one of uniform, loguniform"):
        parse_space({"a": {"kind": "normal", "mean": 0}})
    with pytest.raises(InputError, match="space of 'a' is wrong: uniform goes from 3 to 1"):
        parse_space({"a": {"kind": "uniform", "low": 3, "high": 1}})
    with pytest.raises(InputError, match="maps names of parameters to values"):
        parse_space(["learning_rate"])
    with pytest.raises(InputError, match="'lr' is loguniform with endlessly many"):
        check_sampler("grid", {"lr": loguniform(0.1, 1)})
    with pytest.raises(InputError, match="which a function does not tell"):
        check_sampler("grid", lambda trial: {})
    with pytest.raises(InputError, match="no sampler 'bayes': give one of tpe"):
        check_sampler("bayes", {})


def test_a_function_of_a_trial_is_a_space():
    study = optuna.create_study(sampler=make_sampler("random", 1, lambda trial: {}))
    settings = suggest(study.ask(), lambda trial: {"a": trial.suggest_int("a", 3, 3), "b": "c"})
    assert settings == {"a": 3, "b": "c"}
    with pytest.raises(InputError, match="returned a NoneType"):
        suggest(study.ask(), lambda trial: None)
