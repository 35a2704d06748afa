"""Whatever a user edits: what returns something else has another fingerprint, or an unknown one."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.fingerprints.generated_modules import make_edit
from tests.thoroughness import THOROUGH

SLOW_SEEDS = range(1, 25 if THOROUGH else 4)

SCRIPT = """
import importlib, json, os, sys
# What all modules import is read once, and not by each process: that was half of the time.
import contextlib, dataclasses, decimal, enum, functools, inspect, statistics, typing
from pydantic import AfterValidator, BaseModel, Field, field_validator
from partwise.fingerprints import libraries
from partwise.fingerprints.functions import code_fingerprint

libraries.library_version("pydantic")
sys.dont_write_bytecode = True


def told(folder):
    # Nothing that a module does on import may be seen by the next: each has a process.
    ends = os.pipe()
    if os.fork():
        os.close(ends[1])
        with os.fdopen(ends[0]) as stream:
            answer = stream.read()
        os.wait()
        return json.loads(answer)
    try:
        sys.path.insert(0, folder)
        fit = importlib.import_module("prog").fit
        found = code_fingerprint(fit)
        try:
            result = fit(None, None)
        except Exception as error:
            result = repr(error)
        answer = [result, found.digest, found.unknown]
    except BaseException as error:
        answer = ["broken", repr(error), []]
    with os.fdopen(ends[1], "w") as stream:
        json.dump(answer, stream)
    os._exit(0)


root = sys.argv[1]
print(json.dumps([
    [told(f"{root}/{case}/before"), told(f"{root}/{case}/after")]
    for case in range(int(sys.argv[2]))
]))
"""


@pytest.mark.parametrize(
    ("seed", "n_cases"),
    [(0, 40), *(pytest.param(seed, 50, marks=pytest.mark.slow) for seed in SLOW_SEEDS)],
)
def test_no_edit_that_changes_the_result_is_missed(
    tmp_path: Path, run_python: Any, seed: int, n_cases: int, record_property: Any
) -> None:
    draw = random.Random(seed)
    edits = [make_edit(draw) for _ in range(n_cases)]
    for case, edit in enumerate(edits):
        for side, files in (("before", edit.before), ("after", edit.after)):
            folder = tmp_path / str(case) / side
            folder.mkdir(parents=True)
            for name, text in files.items():
                (folder / name).write_text(text)
    missed, changed, equal, needless, unknown = [], 0, 0, 0, 0
    for edit, (before, after) in zip(edits, run_python(SCRIPT, tmp_path, n_cases), strict=True):
        assert "broken" not in (before[0], after[0]), (before, after, edit)
        unknown += None in (before[1], after[1])
        differs = None in (before[1], after[1]) or before[1] != after[1]
        if before[0] != after[0]:
            changed += 1
            if not differs:
                missed.append((edit.what, before, after, edit.before))
        else:
            equal += 1
            needless += differs
    counts = {"changed": changed, "equal": equal, "needless": needless, "unknown": unknown}
    record_property("edits", json.dumps(counts))
    print(counts)
    assert not missed, "\n".join(map(str, missed[0])) + f"\n{len(missed)} in all"
    assert changed > n_cases / 4
    assert unknown < n_cases / 10
    assert needless < equal * 0.7
