"""Settings: by name, and the obvious ones by their place."""

import pytest
from pydantic import BaseModel

import partwise
from partwise import (
    Backtest,
    Constant,
    CrossValidation,
    Environment,
    ExecutionOptions,
    Files,
    HoldoutByTime,
    HoldoutFraction,
    InputError,
    LastValue,
    LightGBMTrainer,
    PickleSerde,
    ScalingConfig,
    XGBoostTrainer,
)
from partwise.exports.protocol import Tolerance
from partwise.form_schema import FormSettings
from partwise.settings import Settings

KINDS = [
    kind
    for name in partwise.__all__
    if isinstance(kind := getattr(partwise, name), type)
    and issubclass(kind, BaseModel)
    and issubclass(kind, Settings)
]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda text: Constant(text),
            r"^Constant has .*: value holds '\\ud800', half of a",
        ),
        (lambda text: LightGBMTrainer(label="y", params={"a": [text]}), r"params holds '\\ud800'"),
        (lambda text: Files([f"/data/{text}.csv"]), r"^Files\(\) has a path with '\\ud800', half"),
    ],
)
def test_a_text_that_no_file_can_hold_is_refused_at_once(make, message) -> None:
    make("ä\U0001f600")
    with pytest.raises(InputError, match=message):
        make("ä\ud800")


def test_what_is_obvious_is_given_by_its_place() -> None:
    assert HoldoutFraction(0.3) == HoldoutFraction(fraction=0.3)
    assert HoldoutByTime("day", fraction=0.1) == HoldoutByTime(column="day", fraction=0.1)
    assert Backtest("day", "7D") == Backtest(time="day", horizon="7D")
    assert CrossValidation(3) == CrossValidation(folds=3)
    assert Environment(["polars"]) == Environment(packages=["polars"])
    assert ScalingConfig(4) == ScalingConfig(ranks=4)
    assert LightGBMTrainer("sales", rounds=3) == LightGBMTrainer(label="sales", rounds=3)
    assert XGBoostTrainer("sales").label == LastValue("sales", time="day").label == "sales"
    assert PickleSerde("m.pkl") == PickleSerde(filename="m.pkl")


def test_what_is_validated_by_name_is_validated_by_its_place() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        HoldoutFraction(2.0)


def test_what_is_not_obvious_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"values by name, and was given 1 .*max_retries=\.\.\."):
        ExecutionOptions(3)  # type: ignore[misc]
    with pytest.raises(InputError, match="by name but fraction, and was given 2 without one"):
        HoldoutFraction(0.3, 0.4)  # type: ignore[misc]
    with pytest.raises(InputError, match="was given fraction twice: by its place and by name"):
        HoldoutFraction(0.3, fraction=0.3)  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_class_of_settings_lets_a_type_error_of_pydantic_through(kind: type) -> None:
    try:
        kind(*[object()] * 9)
    except TypeError as error:
        # A class with an `__init__` of its own: Python's words, with its name.
        assert str(error).startswith(f"{kind.__name__}.__init__()")  # noqa: PT017
    except (InputError, ValueError):
        pass


def test_documents_are_validated_without_a_call_of_the_class() -> None:
    assert not HoldoutFraction.__pydantic_custom_init__
    assert HoldoutFraction.model_validate({"fraction": 0.3}) == HoldoutFraction(0.3)


ENDLESS = [
    pytest.param(kind, name, id=f"{kind.__name__}-{name}")
    for kind in KINDS
    if issubclass(kind, FormSettings)
    for name, field in kind.model_fields.items()
    if "float" in str(field.annotation)
]


@pytest.mark.parametrize(("kind", "name"), ENDLESS)
@pytest.mark.parametrize("value", [float("inf"), float("nan"), "inf"])
def test_no_number_of_a_form_is_endless(kind: type[Settings], name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name} ('inf'|inf|nan|'nan'): Input should be"):
        kind(**{name: value})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1e-9])
@pytest.mark.parametrize("name", ["atol", "rtol", "scaled", "variation"])
def test_no_tolerance_of_an_exporter_is_endless_or_negative(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"has {name}={value!r}, by which no export could be"):
        Tolerance(**{"atol": 0.0, "rtol": 0.0, name: value})
