"""Ask and tell without a cluster: what is tried follows from the seed and from what is known."""

from typing import get_args

import numpy as np
import pytest

from partwise.errors import InputError
from partwise.outcomes import PartitionStatus
from partwise.runs.trials import Trial, TrialRecord, best_of, trials_table
from partwise.studies.search import Search, SearchSpec, first_settings, importances
from partwise.tuning import sampler
from partwise.tuning.pruner import PrunerName
from partwise.tuning.space import choice, grid, loguniform, randint, uniform

DONE = PartitionStatus.DONE
SPACE = {
    "x": uniform(-1, 1),
    "rate": loguniform(0.01, 1),
    "leaves": randint(2, 9),
    "kind": choice(["a", [1, 2], None]),
    "fixed": 7,
}


def spec(**given) -> SearchSpec:
    return SearchSpec(
        **{
            "space": SPACE,
            "sampler": "tpe",
            "pruner": "none",
            "seed": 3,
            "metric": "loss",
            "maximized": False,
            **given,
        }
    )


def value_of(record: TrialRecord) -> TrialRecord:
    loss = (record.settings["x"] - 0.3) ** 2 + record.settings["rate"]
    return TrialRecord.from_json(
        TrialRecord(**{**_fields(record), "value": loss, "reports": ((1, loss),)}).to_json()
    )


def _fields(record: TrialRecord) -> dict:
    return {name: getattr(record, name) for name in TrialRecord.__slots__}


def run(search: Search, numbers: range) -> list[Trial]:
    trials = []
    for number in numbers:
        record = value_of(search.ask(number))
        search.tell(number, record, DONE)
        trials.append(Trial(number=number, status=DONE, record=record, seconds=1.0, reason=""))
    return trials


@pytest.mark.parametrize("missing", [["torch"], ["scipy"], ["scipy", "torch"]])
def test_a_gaussian_process_without_its_packages_is_refused(monkeypatch, missing) -> None:
    monkeypatch.setattr(sampler, "find_spec", lambda name: None if name in missing else name)
    words = f"needs {' and '.join(missing)}: install"
    with pytest.raises(InputError, match=words):
        first_settings(spec(sampler="gp"))


@pytest.mark.parametrize("sampler", ["tpe", "random", pytest.param("gp", marks=pytest.mark.slow)])
def test_the_seed_alone_decides_what_one_slot_tries(sampler) -> None:
    first, second = (run(Search(spec(sampler=sampler)), range(15)) for _ in range(2))
    other = run(Search(spec(sampler=sampler, seed=4)), range(15))
    assert [trial.settings for trial in first] == [trial.settings for trial in second]
    assert [trial.settings for trial in first] != [trial.settings for trial in other]
    assert all(trial.settings["fixed"] == 7 for trial in first)
    assert {type(trial.settings["leaves"]) for trial in first} == {int}


def test_a_resumed_search_knows_the_trials_and_draws_no_double() -> None:
    known = run(Search(spec()), range(12))
    resumed = Search(spec(), known)
    assert [trial.value for trial in resumed._study.trials] == [trial.value for trial in known]
    assert [trial.params for trial in resumed._study.trials] == [t.record.params for t in known]
    more = run(resumed, range(12, 20))
    tried = [trial.settings["x"] for trial in (*known, *more)]
    assert len(set(tried)) == 20
    # It has learned: a search that begins again draws its first ten by chance.
    assert min(t.record.loss for t in more) < sorted(t.record.loss for t in known)[3]


def test_a_grid_is_tried_once_also_by_a_resume() -> None:
    space = {"x": grid([-1.0, 0.0, 1.0]), "rate": grid([0.1, 0.2]), "fixed": 1}
    given = spec(space=space, sampler="grid")
    assert given.size == 6
    known = run(Search(given), range(4))
    more = run(Search(given, known), range(4, 6))
    tried = {(t.settings["x"], t.settings["rate"]) for t in (*known, *more)}
    assert len(tried) == 6


@pytest.mark.parametrize("space", [{"x": grid([0.5]), "rate": 0.1}, {"x": 0.5, "rate": 0.1}])
def test_a_grid_of_one_setting_is_tried(space) -> None:
    [trial] = run(Search(spec(space=space, sampler="grid")), range(1))
    assert trial.settings == {"x": 0.5, "rate": 0.1}


def test_a_pruner_gives_up_what_is_worse_and_a_trial_of_before_never() -> None:
    search = Search(spec(pruner="median"))
    for number in range(5):
        record = search.ask(number)
        assert not search.is_hopeless(number, 1, float(number))
        search.tell(number, value_of(record), DONE)
    search.ask(6)
    assert search.is_hopeless(6, 1, 100.0) is True
    # A retry reports its steps again.
    assert not search.is_hopeless(6, 1, 100.0)
    assert not search.is_hopeless(99, 1, 100.0)


def test_failed_trials_are_told_and_have_no_part_in_the_best() -> None:
    search = Search(spec())
    record = search.ask(0)
    search.tell(0, record, PartitionStatus.FAILED)
    failed = Trial(
        number=0, status=PartitionStatus.FAILED, record=record, seconds=None, reason="why"
    )
    done = run(search, range(1, 4))
    assert best_of([failed]) is None
    best = best_of([failed, *done])
    assert best.value == min(trial.value for trial in done)
    table = trials_table([failed, *done])
    assert table["trial"].to_pylist() == [0, 1, 2, 3]
    assert table["reason"].to_pylist() == ["why", "", "", ""]
    assert {"x", "rate", "leaves", "kind", "fixed"} < set(table.column_names)


def test_of_a_maximized_metric_the_highest_is_best() -> None:
    records = [
        TrialRecord(settings={"value": number}, metric="auc", maximized=True, value=value)
        for number, value in enumerate([0.5, 0.9, 0.9, 0.1])
    ]
    trials = [
        Trial(number=number, status=DONE, record=record, seconds=1.0, reason="")
        for number, record in enumerate(records)
    ]
    assert best_of(trials).number == 1
    assert trials_table(trials)["setting.value"].to_pylist() == [0, 1, 2, 3]


def test_a_whole_number_beyond_int64_is_json_in_the_table() -> None:
    records = [
        TrialRecord(settings={"seed": seed}, metric="auc", maximized=True) for seed in (2**63, 1)
    ]
    trials = [
        Trial(number=number, status=DONE, record=record, seconds=1.0, reason="")
        for number, record in enumerate(records)
    ]
    assert trials_table(trials)["seed"].to_pylist() == [str(2**63), "1"]


def test_what_decides_is_found() -> None:
    trials = run(Search(spec(sampler="random")), range(60))
    found = importances(trials)
    assert set(found) == {"x", "rate", "leaves", "kind"}
    assert max(found["x"], found["rate"]) > max(found["leaves"], found["kind"])
    assert sum(found.values()) == pytest.approx(1)
    assert importances(trials[:9]) == {}


def of_a_function(trial) -> dict:
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return {"kind": kind, "x": trial.suggest_float("x", 0, 1) if kind == "a" else 2.0}


def test_a_function_of_a_trial_is_a_space() -> None:
    search = Search(spec(space=of_a_function))
    records = [search.ask(number) for number in range(12)]
    assert {record.settings["kind"] for record in records} == {"a", "b"}
    assert all(record.settings["x"] == 2.0 or record.settings["kind"] == "a" for record in records)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"space": lambda trial: 1 / 0}, "ZeroDivisionError"),
        ({"space": lambda trial: [1]}, "returned a list"),
        ({"space": lambda trial: {"x": object()}}, "JSON"),
        ({"sampler": "best"}, "no sampler 'best'"),
        ({"pruner": "shears"}, "no pruner 'shears'"),
        ({"sampler": "grid"}, "endlessly many"),
    ],
)
def test_what_cannot_be_searched_is_refused(given, message) -> None:
    with pytest.raises(InputError, match=message):
        first_settings(spec(**given))


def curve(trial: int) -> list[float]:
    """What a trial reports: 30 steps, some better and some worse, and no two alike."""
    level = np.random.default_rng(trial).uniform(0, 5)
    return [level + 3 / (step + 1) for step in range(30)]


def go_through(search: Search, numbers: range) -> dict[int, Trial]:
    """Let trials report until they are given up, or at their end."""
    trials = {}
    for number in numbers:
        record, reports = search.ask(number), []
        pruned = False
        for step, value in enumerate(curve(number)):
            reports.append((step, value))
            if pruned := search.is_hopeless(number, step, value):
                break
        given = {"pruned": pruned, "reports": tuple(reports)}
        value = None if pruned else curve(number)[-1]
        record = TrialRecord(**{**_fields(record), **given, "value": value})
        status = PartitionStatus.SKIPPED if pruned else DONE
        search.tell(number, record, status)
        trials[number] = Trial(number=number, status=status, record=record, seconds=1.0, reason="")
    return trials


@pytest.mark.parametrize("pruner", get_args(PrunerName))
@pytest.mark.parametrize("stop", [1, 7, 20])
def test_a_resume_gives_up_what_the_study_would_have_given_up(pruner, stop) -> None:
    asked = spec(pruner=pruner, sampler="random", space={"x": uniform(0, 1)})
    whole = go_through(Search(asked), range(40))
    begun = go_through(Search(asked), range(stop))
    rest = go_through(Search(asked, list(begun.values())), range(stop, 40))
    steps = {number: len(trial.record.reports) for number, trial in whole.items()}
    assert {n: len(t.record.reports) for n, t in (begun | rest).items()} == steps
    assert (min(steps.values()) < 30) == (pruner != "none")
