"""Failures as text."""

from pathlib import Path

import pytest

from partwise import errors
from partwise.engine.failures import Failure, describe_error
from partwise.errors import ExportMismatchError


def raise_and_describe(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException as raised:
        return describe_error(raised)


def test_a_long_message_is_cut_wherever_it_stands() -> None:
    described = raise_and_describe(RuntimeError("x" * 50_000_000))
    assert described.message.endswith("... (50000000 characters)")
    assert len(described.message) < 3_000
    assert len(described.traceback) < 10_000
    assert "raise_and_describe" in described.traceback


def test_a_message_that_cannot_be_had_is_no_obstacle() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("no words")

    described = raise_and_describe(Mute())
    assert described.message == "<str() of the exception raised KeyError>"
    assert described.error_type.endswith("Mute")


def test_equal_failures_have_one_fingerprint_whatever_their_message() -> None:
    first, second = raise_and_describe(ValueError("a")), raise_and_describe(ValueError("b"))
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint != raise_and_describe(TypeError("a")).fingerprint


def test_a_cause_is_in_the_traceback() -> None:
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")
    assert "KeyError: 'inner'" in raise_and_describe(error).traceback


def test_what_did_not_hold_tells_errors_of_one_line_apart() -> None:
    shape, values, again = (
        raise_and_describe(ExportMismatchError("m", check, {}))
        for check in ("shape", "values", "shape")
    )
    assert shape.fingerprint == again.fingerprint != values.fingerprint


def test_which_errors_a_second_attempt_cannot_change() -> None:
    final = {
        error.__name__
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.PartwiseError) and error.final
    }
    assert final == {
        *(
            "ModelNotFoundError",
            "ExportRefusedError",
            "ExportMismatchError",
            "CheckpointError",
            "OpsetError",
        ),
        *(
            "InputError",
            "ArgumentError",
            "ColumnError",
            "NullKeyError",
            "KeyClassError",
            "RunIdError",
        ),
        *("FunctionError", "TrustError", "SerdeError", "UnkeptModelError"),
        "UnknownFeatureError",
        *("UnknownModelTypeError", "TrialPruned"),
    }


@pytest.mark.parametrize(
    ("given", "is_explained"),
    [
        ({"checkpoint": "ft/tiny-bert"}, True),
        ({"checkpoint": Path("ft/tiny-bert")}, True),
        ({"lr": 0.1, "checkpoint": "ft/other"}, False),
        ({"checkpoint": "/ft/tiny-bert"}, False),
        ({"checkpoint": "tests/engine"}, False),
        ({}, False),
    ],
)
def test_a_relative_path_that_leads_nowhere_is_explained(given, is_explained, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    error = OSError("ft/tiny-bert /ft/tiny-bert tests/engine is not a folder and on no hub")
    failure = describe_error(error, given)
    assert ("If checkpoint='ft/tiny-bert' is a path: it is relative" in failure.message) == (
        is_explained
    )
    assert failure.fingerprint == describe_error(error).fingerprint


def test_so_is_a_file_beside_the_caller():
    try:
        Path("prices.csv").read_text()
    except OSError as error:
        failure = describe_error(error, {"prices": "prices.csv"})
    assert "prices='prices.csv' is a path: it is relative" in failure.message


def test_a_file_name_that_is_not_text_is_no_obstacle() -> None:
    """As of a script named so in bytes: its functions travel with the names of their files."""
    scope: dict[str, type[Exception]] = {}
    exec(compile("def fail():\n    raise ValueError('x')", "od\udcffd.py", "exec"), scope)
    try:
        scope["fail"]()
    except ValueError as error:
        described = describe_error(error)
    assert described.message == "x"
    assert "od\\udcffd.py" in described.traceback
    odd = type("Odd", (Exception,), {"__module__": "od\udcffd"})
    assert raise_and_describe(odd()).error_type == "od\\udcffd.Odd"
