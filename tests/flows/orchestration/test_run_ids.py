"""Run IDs made of the time at which a flow run was due."""

import random
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import RunIdError
from partwise.flows.orchestration import run_ids
from partwise.flows.orchestration.run_ids import fill_in, made_up, new_run_id
from partwise.runs.documents import is_run_id
from partwise.runs.earlier_runs import alike

DUE = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("template", "run_id"),
    [
        ("sales", "sales"),
        ("{scheduled}", "2026-11-21"),
        ("sales-{scheduled:%Y-%m-%dT%H%M}", "sales-2026-11-21T2330"),
        ("{scheduled[Europe/Amsterdam]:%Y%m%d}-sales", "20261122-sales"),
        ("a{scheduled[America/New_York]}b{scheduled:%H}", "a2026-11-21b23"),
    ],
)
def test_the_time_stands_where_the_template_says(template, run_id) -> None:
    assert fill_in(template, DUE) == run_id


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("sales-{today}", "{today}"),
        ("sales-{scheduled", "{scheduled"),
        ("sales-{scheduled[Mars/Olympus]}", "Mars/Olympus"),
        ("sales-{scheduled[../../etc/passwd]}", "etc/passwd"),
        ("sales-{scheduled.year}", "{scheduled.year}"),
        ("sales-{scheduled:%Y/%m}", "2026/11"),
        ("{scheduled:%H:%M}", "23:30"),
        ("sales-{{scheduled}}", "{{scheduled}}"),
    ],
)
def test_what_cannot_be_filled_in_is_named(template, named) -> None:
    with pytest.raises(RunIdError) as caught:
        fill_in(template, DUE)
    assert named in str(caught.value)


@given(st.text(max_size=30))
def test_what_comes_out_is_a_safe_name_or_an_error(template) -> None:
    try:
        filled = fill_in(template, DUE)
    except RunIdError:
        return
    assert is_run_id(filled)


def test_names_that_are_made_up_are_safe() -> None:
    assert made_up("train", DUE, "9f3a04c7") == "train-20261121-233000-9f3a04c7"
    assert is_run_id(new_run_id("map"))


def test_no_two_of_many_flow_runs_of_one_second_have_one_name(monkeypatch) -> None:
    """Their IDs are of version 7, and begin alike."""
    chance = random.Random(7)
    ids = [UUID(int=(0x19E << 116) | (7 << 76) | chance.getrandbits(62)) for _ in range(1000)]
    due = iter(SimpleNamespace(id=each, expected_start_time=DUE) for each in ids)
    monkeypatch.setattr(run_ids, "current_flow_run", lambda: next(due))
    names = {run_ids.run_id_of_flow_run("", "train") for _ in ids}
    assert len(names) == 1000
    assert not any(map(alike, names))
    assert {len(name) for name in names} == {len(new_run_id("train"))}
