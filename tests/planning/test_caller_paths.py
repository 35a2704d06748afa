"""Paths that only the caller finds are told before scripts and ranks begin."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from partwise.calls.one_model import DistributedCall
from partwise.calls.script import ScriptCall
from partwise.planning.caller_paths import params_left_behind, paths_left_behind
from partwise.planning.gang import prepare_gang
from partwise.planning.script import prepare_script
from partwise.sources.opening import open_source
from partwise.store.store import Store

LIMITS = {"timeout_s": 9.0, "grace_s": 1.0, "join_timeout_s": 9.0, "max_retries": 0}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a source directory and what lies beside it."""
    for name in ("src/train.py", "src/settings/a.json", "rows.csv", "data/b.csv", "2026", "a b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SAID = [
    ({"arguments": {"rows": "rows.csv"}}, "'rows.csv'"),
    ({"arguments": {"rows": ["x", "data/b.csv"]}}, "'data/b.csv'"),
    ({"arguments": ["--rows=data"]}, "'data'"),
    ({"arguments": ["./rows.csv"]}, "'./rows.csv'"),
    ({"arguments": ["src/settings/a.json"]}, "'src/settings/a.json'"),
    ({"arguments": [f"{n}.csv" for n in range(5)]}, "'2.csv' and 2 more"),
    ({"environment_variables": {"ROWS": "rows.csv"}}, "the variable ROWS 'rows.csv'"),
    ({"entry_script": "", "command": "cat 'a b' | wc"}, "'a b'"),
    ({"entry_script": "", "command": ["cat", "rows.csv"]}, "'rows.csv'"),
]
UNSAID = [
    {"arguments": ["settings/a.json", "settings", "./settings/", "train.py", "--deep"]},
    {"arguments": {"year": 2026, "none.csv": "none.csv", "here": ".", "above": "..", "is": True}},
    {"arguments": ["{inputs.rows}", "s3://bucket/rows.csv", ""]},
    {"entry_script": "", "command": "cat 'rows.csv"},
]


def warnings_of(here: Path, **given) -> tuple[str, ...]:
    call = {"entry_script": "train.py", "source_directory": "src", "run_id": "r", **LIMITS, **given}
    return prepare_script(
        ScriptCall(**call), {"rows": "rows.csv"}, Store.parse(here / "store"), {}
    ).warnings


@pytest.mark.parametrize(("given", "said"), SAID)
def test_a_path_that_only_the_caller_has_is_told(here, given, said):
    for number in range(5):
        (here / f"{number}.csv").write_text("")
    (warning,) = warnings_of(here, **given)
    assert said in warning
    assert f"is there in {str(here)!r}, and not in the source directory" in warning


@pytest.mark.parametrize("given", UNSAID)
def test_what_is_no_such_path_is_not(here, given):
    assert warnings_of(here, **given) == ()
    absolute = {"arguments": [str(here / "rows.csv")]} if "command" not in given else {}
    assert warnings_of(here, **given | absolute) == ()


def test_words_of_all_kinds_are_no_error(here):
    rng = np.random.default_rng(2)
    letters = [*"ab./=-~'\" \0\n\\é", "rows.csv", "data", "\ud800", "x" * 300]
    for _ in range(500):
        words = ["".join(rng.choice(letters, rng.integers(0, 6))) for _ in range(3)]
        said = paths_left_behind(words, words[0], {"A": words[1]}, frozenset({"data/b.csv"}))
        assert len(said) <= 1
    assert os.getcwd() == str(here)


def test_a_parameter_that_only_the_caller_finds_is_told(here):
    given = {"model": "data", "rows": Path("rows.csv"), "rate": 0.1, "name": "adam", "at": "/tmp"}
    (warning,) = params_left_behind(given)
    assert "the parameter model 'data', the parameter rows 'rows.csv': " in warning
    assert f"is there in {str(here)!r}, and not in the folders of the ranks" in warning
    assert params_left_behind({"model": str(here / "data"), "above": ".."}) == ()


def test_a_gang_is_planned_with_what_is_to_be_told(here):
    rows = pa.table({"x": [1.0]})
    call = DistributedCall(rows, lambda context: None, params={"model": "data"})
    plan = prepare_gang(call, open_source(rows), {})
    assert plan.warnings == params_left_behind({"model": "data"}) != ()
