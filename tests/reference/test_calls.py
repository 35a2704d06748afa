"""Calls as they stand in the documents of runs from before 26 November 2026, when names changed.

calls.json was written by that version: a call of each flow with a value of its own in every field
that may have one, also within settings and trainers, and the parts of its fingerprint.
"""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

import partwise
from partwise.calls.call import VersionedCall
from partwise.calls.intent import describe_intent
from partwise.calls.reading import read_arguments
from partwise.sources.opening import open_source

WRITTEN = json.loads(Path(__file__).with_name("calls.json").read_text())


def values_of(value: Any) -> list[str]:
    """Return all plain values in something, without their names."""
    if isinstance(value, BaseModel):
        return values_of(value.model_dump(mode="json", exclude={"kind"}))
    if is_dataclass(value):
        return values_of([getattr(value, each.name) for each in fields(value)])
    if isinstance(value, dict):
        return values_of([each for name, each in value.items() if name != "kind"])
    if isinstance(value, list | tuple):
        return [text for each in value for text in values_of(each)]
    return [] if value is None else [str(value)]


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_no_value_of_a_call_of_before_is_lost(number: int) -> None:
    call = WRITTEN[number]["call"]
    _, read = read_arguments(call, is_own=True)
    functions = {value for value in values_of(call["arguments"]) if ":" in value}
    written = [value for value in values_of(call["arguments"]) if value not in functions]
    assert sorted(set(written) - set(values_of(read))) == []


# That of a script is made of its source directory too.
OF_ROWS = [n for n, each in enumerate(WRITTEN) if each["call"]["flow"] != "run_script"]


@pytest.mark.parametrize("number", OF_ROWS)
def test_a_call_of_before_has_the_fingerprint_that_it_had(number: int) -> None:
    call, parts = WRITTEN[number]["call"], WRITTEN[number]["parts"]
    kind, read = read_arguments({**call, "data": None}, is_own=True)
    assert issubclass(kind, VersionedCall)
    given = {each.name: read[each.name] for each in fields(kind) if each.name in read}
    if "data" in {each.name for each in fields(kind)}:
        given["data"] = "rows"
    # As the flow that is called with them does.
    valid = getattr(partwise, kind.flow()).validate_parameters(kind(**given).parameters())
    intent = describe_intent(kind(**valid), open_source(pa.table({"k": ["a"]})).description())
    assert {name: intent.code_parts.get(name) for name in parts} == parts
