"""What pydantic refuses, in sentences of ours."""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, ValidationError

from partwise.errors import InputError
from partwise.formatting import nearest
from partwise.redaction import without_secrets

MOST_MISTAKES = 4
"""So many stand in one message."""
_LONGEST_VALUE = 80
_LIST_WANTED = ("tuple_type", "list_type", "sequence_str")


def refused_settings(kind: type[BaseModel], error: ValidationError) -> InputError:
    """Return the error of ours for settings of a kind that pydantic refused."""
    hides_values = kind.model_config.get("hide_input_in_errors", False)
    mistakes = describe_mistakes(error, kind.model_fields, hides_values=hides_values)
    return InputError(f"{kind.__name__} has settings that it cannot use: {mistakes}")


def describe_mistakes(
    error: ValidationError, known: Collection[str] = (), *, hides_values: bool = False
) -> str:
    """Return in one line what is wrong with some values.

    An unknown name may be a misspelling of one that is `known`. With `hides_values` no value is
    repeated: they may be secret.

    Example:
        >>> describe_mistakes(error, ["rounds", "seed"])  # doctest: +SKIP
        "there is no rouns (did you mean rounds?); seed -1: Input should be greater than 0."
    """
    found = error.errors(include_url=False)[:MOST_MISTAKES]
    text = "; ".join(_describe(mistake, known, hides_values) for mistake in found)
    return text if text.endswith("?") else f"{text}."


def refused_format(error: ValidationError) -> str:
    """Return " (format version 3)" of a document that pydantic refused for it; else nothing."""
    refused = {mistake["loc"]: mistake["input"] for mistake in error.errors(include_url=False)}
    number = refused.get(("format_version",))
    return f" (format version {number})" if type(number) is int else ""


def _describe(mistake: Any, known: Collection[str], hides_value: bool) -> str:
    # For a union, pydantic puts the branches' own names between those of the fields.
    names = [str(name) for name in mistake["loc"] if str(name).isidentifier()]
    place = ".".join(names)
    if mistake["type"] == "extra_forbidden":
        # Its own name may be anything, such as max-retries.
        name = str(mistake["loc"][-1])
        if not name.isidentifier():
            place = ".".join([*names, repr(name)[:_LONGEST_VALUE]])
        meant = nearest(name, known, most=1) if len(mistake["loc"]) == 1 else []
        return f"there is no {place}" + (f" (did you mean {meant[0]}?)" if meant else "")
    value = mistake["input"]
    # A message of ours has the value in it, unless that may be a password in a wrong place.
    is_shown = not hides_value and mistake["type"] != "value_error"
    is_shown = is_shown and isinstance(value, str | int | float)
    seen = without_secrets(f" {value!r}")[:_LONGEST_VALUE] if is_shown else ""
    reason = str(mistake["msg"]).removeprefix("Value error, ").rstrip(".")
    if mistake["type"] in _LIST_WANTED and isinstance(value, str | int | float):
        reason = "it is one value where a list is needed: put it in [ ]"
    return f"{place}{seen}: {reason}" if place else reason
