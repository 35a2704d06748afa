"""What a comparison found: how good each candidate of a key is, on the same rows.

A run of compare_models keeps it in its ledger as metrics, by the names that stand here.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.measured import Measured
from partwise.errors import InputError
from partwise.formatting import counted
from partwise.runs.ledger import keys_beside
from partwise.runs.run import Run
from partwise.store.store import Store

COUNTED = "counted_rows"
"""Rows with a label, for which every candidate that has a value gave a finite number."""
UNLABELLED = "unlabelled_rows"
LOST = "lost_rows"
"""Rows with a label for which a candidate gave no finite number."""
SEEN = "trained_on"
"""1 where a candidate was trained on the very same rows."""
FAILED = "failed"
"""1 where a candidate raised."""
CONFIDENCE = "confidence"
MARGIN = "margin"
"""By how much the winner is better than the next, relative to the value of that one."""


def of_candidate(metric: str, candidate: str) -> str:
    """Return the name of a metric of one candidate."""
    return f"{metric}/{candidate}"


def of_pair(better: str, worse: str) -> str:
    """Return the name of how sure it is that one candidate is better than another."""
    return of_candidate(CONFIDENCE, f"{better} over {worse}")


def candidate_name(reference: str) -> str:
    """Return what a candidate is called in a comparison.

    Of a run its generation is left out, which the run of the comparison writes down.

    Example:
        >>> candidate_name("catalog://sales@7"), candidate_name("run://night-3@1")
        ('sales@7', 'night-3')
    """
    scheme, _, name = reference.rpartition("://")
    return name if scheme == "catalog" else name.partition("@")[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Contest:
    """A comparison of candidates, as columns over n keys and m candidates.

    Example:
        >>> contest = Contest.open("compare-3", "/data/models")  # doctest: +SKIP
        >>> contest.table.to_pandas()  # doctest: +SKIP
    """

    run_id: str
    generation: int
    metric: str
    maximized: bool
    """Whether more of the metric is better."""
    references: tuple[str, ...]
    """The candidates: run://night-3@1, catalog://sales@7."""
    keys: pa.Table
    """The key columns, named as in a ledger, and partition_id."""
    values: np.ndarray
    """Of the metric, shape (n, m); NaN where a candidate has none."""
    confidences: np.ndarray
    """How sure it is that a candidate is better than another: shape (n, m, m), by key, the better
    and the worse one; NaN where nobody can tell."""
    rows: np.ndarray
    """Rows that count, shape (n,)."""
    unlabelled: np.ndarray
    """Rows without a label, shape (n,)."""
    lost: np.ndarray
    """Rows for which a candidate gave no finite number, shape (n, m)."""
    seen: np.ndarray
    """Where a candidate was trained on the very same rows, shape (n, m)."""
    failed: np.ndarray
    """Where a candidate raised, shape (n, m)."""
    winners: np.ndarray
    """Places of the winners among the candidates, shape (n,); -1: there is none."""

    @classmethod
    def open(cls, run_id: str, store: Store | str | Path = "artifacts") -> "Contest":
        """Open what a run of compare_models found, as readers see it.

        Raises:
            RunNotFoundError: There is no such run.
            InputError: It is a run of another kind.
            IntegrityError: Its ledger is gone or was changed.
        """
        return cls.of(Run.open(run_id, store))

    @classmethod
    def of(cls, run: Run) -> "Contest":
        """Read what a run found, as `open` does."""
        if run.kind != "compare":
            raise InputError(
                f"The run {run.run_id!r} is of the kind {run.kind!r}; comparison names a run of "
                "compare_models."
            )
        generation = run.generation if run.shown is None else run.shown.generation
        found = Measured.of(run, (COUNTED, UNLABELLED, LOST, SEEN, FAILED, CONFIDENCE, MARGIN))
        column = found.column
        references = tuple(map(str, found.arguments["candidates"]))
        ledger, names = run.ledger, tuple(map(candidate_name, references))
        n, m = ledger.num_rows, len(names)

        def columns(name: str, missing: float) -> np.ndarray:
            return np.stack([column(of_candidate(name, each), missing) for each in names], axis=1)

        confidences = np.full((n, m, m), np.nan)
        for one in range(m):
            for other in range(one):
                sure = column(of_pair(names[one], names[other]), np.nan)
                confidences[:, one, other], confidences[:, other, one] = sure, 1 - sure
        won = pc.index_in(
            ledger["candidate"].combine_chunks(), value_set=pa.array(names, pa.string())
        )
        return cls(
            run_id=run.run_id,
            generation=generation,
            metric=found.metric,
            maximized=found.maximized,
            references=references,
            keys=found.keys,
            values=columns(found.metric, np.nan),
            confidences=confidences,
            rows=column(COUNTED, 0).astype(np.int64),
            unlabelled=column(UNLABELLED, 0).astype(np.int64),
            lost=columns(LOST, 0).astype(np.int64),
            seen=columns(SEEN, 0) > 0,
            failed=columns(FAILED, 0) > 0,
            winners=won.fill_null(-1).to_numpy(zero_copy_only=False),
        )

    def __repr__(self) -> str:
        keys = counted(len(self.winners), "key")
        return f"Contest({self.run_id!r}, {keys} by {self.metric}, best: {self.standing})"

    @property
    def standing(self) -> str:
        """Of how many keys each candidate is the best, and of how many none is: also of a tie."""
        is_best = (self.losses == self.losses.min(axis=1, keepdims=True)) & np.isfinite(self.losses)
        undecided = self.winners < 0
        tied = int((undecided & (is_best.sum(axis=1) > 1)).sum())
        won = Counter(self.candidates[place] for place in self.winners[~undecided])
        words = [f"{name} {count:,}" for name, count in won.most_common()]
        if undecided.any():
            of_these = f" ({tied:,} of them tied)" if tied else ""
            words.append(f"none {int(undecided.sum()):,}{of_these}")
        return ", ".join(words)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the candidates."""
        return tuple(map(candidate_name, self.references))

    @property
    def losses(self) -> np.ndarray:
        """The values such that less is better, infinite where there is none; shape (n, m)."""
        losses = -self.values if self.maximized else self.values
        found: np.ndarray = np.where(np.isfinite(losses), losses, np.inf)
        return found

    @property
    def table(self) -> pa.Table:
        """A row for each key and candidate, in the order of the keys.

        The columns are those of the key, partition_id, candidate, the metric, rows, lost_rows,
        trained_on, failed and won; `key.rows` is a key that is named like one of the others.
        """
        n, m = self.values.shape
        places = pa.array(np.repeat(np.arange(n), m))
        values = self.values.ravel()
        keys = self.keys.take(places)
        columns: dict[str, Any] = {"partition_id": keys["partition_id"]}
        columns["candidate"] = pa.array(np.tile(np.array(self.candidates, object), n), pa.string())
        columns[self.metric] = pa.array(values, mask=np.isnan(values))
        columns["rows"] = pa.array(np.repeat(self.rows, m))
        for name, found in ((LOST, self.lost), (SEEN, self.seen), (FAILED, self.failed)):
            columns[name] = pa.array(found.ravel())
        columns["won"] = pa.array((self.winners[:, None] == np.arange(m)).ravel())
        return pa.table(keys_beside(keys, columns) | columns)
