"""The trials of a study, as its ledger has them: what each tried, and which is the best."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.outcomes import PartitionStatus
from partwise.runs.ledger import KEY_PREFIX
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn

TRIAL = "trial"
TRIAL_KEY = (KeyColumn(name=TRIAL, key_class=KeyClass.INTEGER),)
"""The key columns of a study's run: each trial is a partition of it."""
SETTING_PREFIX = "setting."


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """What is known of a trial besides what its ledger row says of any partition."""

    settings: Mapping[str, Any]
    """What the trainer was given, by name; values that JSON can hold."""
    metric: str
    """The name of what the study goes by, among the metrics of the trial."""
    maximized: bool
    value: float | None = None
    """Of the metric; None where the trial did not come to its end."""
    pruned: bool = False
    """Whether the study gave it up."""
    reports: tuple[tuple[int, float], ...] = ()
    """Steps, ascending, with the metric at each."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """What the sampler drew, by name: settings but for constants, places for odd choices."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """What each was drawn from, as Optuna's JSON."""

    def to_json(self) -> str:
        """Return it as text.

        Raises:
            TypeError: JSON cannot hold a setting.
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "TrialRecord":
        """Return what `to_json` wrote."""
        values = json.loads(text)
        reports = tuple((step, value) for step, value in values.pop("reports"))
        return cls(reports=reports, **values)

    @property
    def loss(self) -> float:
        """The value such that lower is better; infinite where there is none."""
        if self.value is None:
            return float("inf")
        return -self.value if self.maximized else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial of a study."""

    number: int
    status: PartitionStatus
    record: TrialRecord
    seconds: float | None
    reason: str
    """Why it has no model; empty: it has one."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the trainer was given."""
        return self.record.settings

    @property
    def value(self) -> float | None:
        """The metric that the study goes by; None where the trial did not come to its end."""
        return self.record.value

    @property
    def metric(self) -> str:
        """Its name."""
        return self.record.metric


def read_trials(ledger: pa.Table) -> list[Trial]:
    """Return the trials in a ledger that have tried something, by their numbers."""
    columns = [f"{KEY_PREFIX}{TRIAL}", "status", "seconds", "reason", "error_message", "trial"]
    if columns[0] not in ledger.column_names:
        return []
    rows = ledger.filter(pc.is_valid(ledger["trial"])).select(columns).to_pylist()
    return [
        Trial(
            number=int(row[columns[0]]),
            status=PartitionStatus(row["status"]),
            record=TrialRecord.from_json(row["trial"]),
            seconds=row["seconds"],
            reason=row["error_message"] or row["reason"] or "",
        )
        for row in rows
    ]


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial with the best value, of equal ones the first; None: none has come to one."""
    done = [trial for trial in trials if trial.status is PartitionStatus.DONE]
    return min(done, key=lambda trial: (trial.record.loss, trial.number), default=None)


def trials_table(trials: Sequence[Trial]) -> pa.Table:
    """Return a row for each trial: its number, status, value, settings, seconds, reason.

    A setting that is named like another column has the prefix "setting."; one whose values are of
    several types is JSON.
    """
    columns: dict[str, Any] = {
        TRIAL: pa.array([trial.number for trial in trials], pa.int64()),
        "status": pa.array([trial.status.value for trial in trials], pa.string()),
        "value": pa.array([trial.value for trial in trials], pa.float64()),
        "steps": pa.array([len(trial.record.reports) for trial in trials], pa.int64()),
        "seconds": pa.array([trial.seconds for trial in trials], pa.float64()),
        "reason": pa.array([trial.reason for trial in trials], pa.string()),
    }
    ours = set(columns)
    for name in dict.fromkeys(name for trial in trials for name in trial.settings):
        values = [trial.settings.get(name) for trial in trials]
        columns[SETTING_PREFIX + name if name in ours else name] = _array(values)
    return pa.table(columns)


def _array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    # A setting may be a number in one trial and text in another: a choice can hold both. Or it is
    # a whole number that no int64 holds.
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([json.dumps(value) for value in values], pa.string())


def best_row(ledger: pa.Table) -> pa.Table:
    """Return the row of a study's best trial, which is the one whose model others use."""
    best = best_of(read_trials(ledger))
    if best is None:
        return ledger.slice(0, 0)
    return ledger.filter(pc.equal(ledger[f"{KEY_PREFIX}{TRIAL}"], best.number))
