"""What an evaluation found: whether the predictions of each key came true, and which got worse.

A run of evaluate_predictions keeps it in its ledger as metrics, by the names that stand here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import CATALOG_SCHEME
from partwise.catalogs.drift import FeatureDrift, flagged
from partwise.catalogs.measured import Measured
from partwise.errors import InputError, PartwiseError
from partwise.formatting import counted, some_of
from partwise.runs.contents import READ_THREADS, list_runs
from partwise.runs.earlier_runs import earlier_runs, last_work
from partwise.runs.ledger import key_names, keys_beside, with_plain_keys
from partwise.runs.run import ONLY, Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import Key

PREDICTED = "predicted_rows"
"""Predictions of the key: those that have come true, are pending, or are no finite numbers."""
LABELLED = "labelled_rows"
"""Those with a label, on which the metric is measured."""
PENDING = "pending_rows"
"""Those whose label is not there yet."""
LOST = "lost_rows"
"""Those with a label that are no finite numbers."""
UNPREDICTED = "unpredicted_rows"
"""Rows with a label that nobody has predicted."""
CORRECTED = "corrected_labels"
"""Labels in whose place a later one stood."""
ERROR = "error"
"""The column of its rows with prediction less label, of one number for each row."""
VALUE_THEN, ROWS_THEN = "value_then", "rows_then"
"""The metric of the key's model at promotion, or in training, and the rows of that."""
CONFIDENCE = "confidence"
"""How sure it is that the key got worse since."""
LEVEL = "model_level"
"""Which of the inference's levels answered; 0: the key's own."""

DRIFT = "drift/"
"""Begins the metrics that say how features of the key drifted."""
TESTS = f"{DRIFT}tests"
"""Features that were compared with those of the training."""
_COUNTS = (PREDICTED, LABELLED, PENDING, LOST, UNPREDICTED, CORRECTED)
_OTHERS = (*_COUNTS, VALUE_THEN, ROWS_THEN, CONFIDENCE, LEVEL, DRIFT.removesuffix("/"))
"""What its ledger has besides the metric itself."""
_DRIFT = ("p_value", "psi", "psi_by_chance", "missing_then", "missing_now", "new_categories")
_TIME = pa.timestamp("us", tz="UTC")
DRIFT_LEVEL = 0.01
"""Of the features that are flagged over all keys, at most this share is so by chance."""

MOST_NIGHTS = 30
"""So many evaluations, one a night, are looked at: a month of them."""
MOST_CELLS = 1_000_000
"""Of all nights together no more rows of ledgers are read: it is done as a run ends."""

WORSE, NO_MODEL, FAILED = "worse", "no model", "failed"
VERDICTS = {
    WORSE: "got worse",
    FAILED: "could not be evaluated",
    NO_MODEL: "had no own model",
    "few rows": "had too few rows with a label",
    "unknown": "could not be compared, since nobody knows how good the model was",
    "pending": "had no label yet",
    "kept": "stayed as good as before",
}
"""What becomes of a key, the worst first, and what a sentence says of one such key or of many."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evaluated:
    """An evaluation of predictions, as columns over n keys.

    Example:
        >>> found = Evaluated.open("evaluate-3", "/data/models")  # doctest: +SKIP
        >>> found.table.to_pandas()  # doctest: +SKIP
    """

    run_id: str
    inference_run_id: str
    models: tuple[str, ...]
    """What the inference used, by level: catalog://sales@7."""
    label: str
    """The column with what came true."""
    metric: str
    maximized: bool
    """Whether more of the metric is better."""
    worse_by: float
    confidence: float
    min_rows: int
    keys: pa.Table
    """The key columns, named as in a ledger, and partition_id."""
    values: np.ndarray
    """Of the metric, shape (n,); NaN where no row has a label."""
    values_then: np.ndarray
    """The same at promotion, or in training; NaN where it is not known."""
    rows_then: np.ndarray
    """Rows of that, shape (n,); NaN where they are not known."""
    confidences: np.ndarray
    """How sure it is that the key got worse, shape (n,); NaN where nobody can tell."""
    counts: dict[str, np.ndarray]
    """Of rows, by the names of this module, each of shape (n,)."""
    levels: np.ndarray
    """Which level answered, shape (n,); -1: none, there was no prediction."""
    is_done: np.ndarray
    """Which keys were evaluated, shape (n,); of the others the ledger says why not."""

    drift: pa.Table
    """A row for each feature of a key whose rows may differ from those of the training: the key
    columns, partition_id, `place` of the key, feature, p_value, psi, psi_by_chance, missing_then,
    missing_now, new_categories, and `drifted`: whether it is flagged. Features whose p-value is
    above 1 % are left out: none of them can be."""
    tests: int
    """How many features were compared, over all keys."""

    @classmethod
    def open(cls, run_id: str, store: Store | str | Path = "artifacts") -> "Evaluated":
        """Open what a run of evaluate_predictions found, as readers see it.

        Raises:
            RunNotFoundError: There is no such run.
            InputError: It is a run of another kind.
            IntegrityError: Its ledger is gone or was changed.
        """
        return cls.of(Run.open(run_id, store))

    @classmethod
    def of(cls, run: Run) -> "Evaluated":
        """Read what a run found, as `open` does."""
        if run.kind != "evaluate":
            raise InputError(
                f"The run {run.run_id!r} is of the kind {run.kind!r}: name one of "
                "evaluate_predictions."
            )
        found = Measured.of(run, _OTHERS)
        arguments, column = found.arguments, found.column
        tests = int(np.nansum(column(TESTS)))
        return cls(
            run_id=run.run_id,
            inference_run_id=str(arguments["inference_run_id"]),
            models=run.document.models,
            label=str(arguments["label"]),
            metric=found.metric,
            maximized=found.maximized,
            worse_by=float(arguments["worse_by"]),
            confidence=float(arguments["confidence"]),
            min_rows=int(arguments["min_rows"]),
            keys=found.keys,
            values=column(found.metric),
            values_then=column(VALUE_THEN),
            rows_then=column(ROWS_THEN),
            confidences=column(CONFIDENCE),
            counts={name: column(name, 0).astype(np.int64) for name in _COUNTS},
            levels=column(LEVEL, -1).astype(np.int64),
            is_done=found.is_done,
            drift=_with_keys(_drift(found.metrics, tests), found.keys),
            tests=tests,
        )

    def __repr__(self) -> str:
        verdicts = self.verdicts
        counts = ((int((verdicts == verdict).sum()), verdict) for verdict in VERDICTS)
        found = ", ".join(f"{count:,} {verdict}" for count, verdict in counts if count)
        return f"Evaluated({self.run_id!r}, {counted(len(verdicts), 'key')}: {found})"

    @property
    def increases(self) -> np.ndarray:
        """By how much the loss grew, as a share of that of before; NaN where it is not known."""
        sign = -1.0 if self.maximized else 1.0
        gain = sign * (self.values - self.values_then)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = gain / np.abs(self.values_then)
        return np.where(gain == 0, 0.0, share)

    @property
    def verdicts(self) -> np.ndarray:
        """What becomes of each key, texts of `VERDICTS` of shape (n,): the first that holds."""
        lost = self.counts[LOST]
        judged = self.counts[LABELLED] + lost
        sure = np.isnan(self.confidences) | (self.confidences >= self.confidence)
        # A value that is infinite is worse than any.
        is_worse = sure & ((self.increases > self.worse_by) | np.isinf(self.values))
        conditions = [
            ~self.is_done,
            self.levels != 0,
            judged == 0,
            judged < self.min_rows,
            # Worse than any number, whatever the others are.
            lost > 0,
            np.isnan(self.values_then),
            is_worse,
        ]
        words = [FAILED, NO_MODEL, "pending", "few rows", WORSE, "unknown", WORSE]
        return np.select(conditions, words, "kept").astype(object)

    @property
    def table(self) -> pa.Table:
        """A row for each key, in the order of the ledger.

        The columns are those of the key, partition_id, the metric, value_then, rows_then, increase,
        confidence, model_level, the counts of rows, drifted_features, and verdict; `key.verdict` is
        a key that is named like one of the others.
        """
        columns: dict[str, Any] = {"partition_id": self.keys["partition_id"]}
        for name, found in (
            (self.metric, self.values),
            (VALUE_THEN, self.values_then),
            (ROWS_THEN, self.rows_then),
            ("increase", self.increases),
            (CONFIDENCE, self.confidences),
        ):
            columns[name] = pa.array(found, mask=np.isnan(found))
        columns[LEVEL] = pa.array(self.levels, mask=self.levels < 0)
        columns |= {name: pa.array(counts) for name, counts in self.counts.items()}
        drifted = self.drift.filter(self.drift["drifted"])["place"].to_numpy()
        columns["drifted_features"] = pa.array(np.bincount(drifted, minlength=self.keys.num_rows))
        columns["verdict"] = pa.array(self.verdicts, pa.string())
        return pa.table(keys_beside(self.keys, columns) | columns)

    @property
    def lines(self) -> list[str]:
        """How many keys there are of each verdict, a line each, and what drifted."""
        verdicts = self.verdicts
        counts = [(int((verdicts == verdict).sum()), words) for verdict, words in VERDICTS.items()]
        lines = [f"{counted(count, 'key')} {words}" for count, words in counts if count]
        if self.tests:
            drifted = self.drift.filter(self.drift["drifted"])
            features = Counter(drifted["feature"].to_pylist()).most_common()
            named = some_of([f"{name} of {counted(n, 'key')}" for name, n in features], 3)
            lines.append(f"drift beyond chance: {named or 'none'}")
        return lines

    def keys_to_train(self) -> pa.Table:
        """Return the key columns of the keys that got worse, or had no model of their own."""
        chosen = np.isin(self.verdicts.astype(str), (WORSE, NO_MODEL))
        keys = self.keys.select(key_names(self.keys.column_names))
        return with_plain_keys(keys.filter(pa.array(chosen)))


def evaluations_of(catalog: Catalog, key: Key = ONLY) -> pa.Table:
    """Return how the predictions of a catalog's key came true, a row a run, the oldest first.

    Of all runs of evaluate_predictions in the store whose inference used a version of the catalog:
    each is read. Columns: evaluation, finished_at, inference, metric, value,
    value_then, rows (with a label), rows_then, pending_rows, drifted_features, verdict.

    Raises:
        InputError: No key was given, and the catalog has key columns.
        KeyClassError: It is of another class.
    """
    name = catalog.partition_id(key)
    mine = f"{CATALOG_SCHEME}{catalog.name}"

    def rows(run_id: str) -> pa.Table | None:
        try:
            run = Run.open(run_id, catalog.store)
            if run.kind != "evaluate" or mine not in run.document.models or run.summary is None:
                return None
            found = Evaluated.of(run)
        except PartwiseError:
            return None  # removed meanwhile, or damaged: that is for `runs verify` to say
        table = found.table
        row = table.filter(pc.equal(table["partition_id"], name))
        n = row.num_rows
        values: dict[str, Any] = {
            "evaluation": pa.repeat(run_id, n),
            "finished_at": pa.repeat(pa.scalar(run.summary.finished_at, _TIME), n),
            "inference": pa.repeat(found.inference_run_id, n),
            "metric": pa.repeat(found.metric, n),
            "value": row[found.metric],
            "rows": row[LABELLED],
        }
        same = (VALUE_THEN, ROWS_THEN, PENDING, "drifted_features", "verdict")
        return pa.table(values | {each: row[each] for each in same})

    with ThreadPoolExecutor(READ_THREADS) as threads:
        found = [each for each in threads.map(rows, list_runs(catalog.store)) if each is not None]
    if not found:
        return pa.table({"evaluation": pa.array([], pa.string())})
    return pa.concat_tables(found, promote_options="permissive").sort_by("finished_at")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nights:
    """The metric of some keys in m evaluations, the oldest first."""

    finished_at: tuple[datetime, ...]
    """When each but the last was complete, of shape (m - 1,)."""
    values: np.ndarray
    """Of shape (m, n) for n keys; NaN where a night has no value of a key."""


def nights_of(run: Run, partition_ids: Sequence[str]) -> Nights:
    """Return the metric of keys in an evaluation and in those of the nights before it.

    Nights before are runs of evaluate_predictions whose IDs differ from this one in numbers alone,
    of the same key columns, label, metric and direction. At most `MOST_NIGHTS` are read, and fewer
    where they have many keys: `MOST_CELLS` rows of ledgers in all.
    """
    own = Measured.of(run, _OTHERS)

    def is_same(other: Measured) -> bool:
        return other.metric == own.metric and all(
            other.arguments.get(name) == own.arguments.get(name)
            for name in ("label", "metric", "direction")
        )

    places = pa.array(partition_ids, pa.string())

    def values(found: Measured) -> np.ndarray:
        rows = pc.index_in(places, value_set=found.keys["partition_id"].combine_chunks())
        known = pc.is_valid(rows).to_numpy(zero_copy_only=False)
        chosen = np.full(len(places), np.nan)
        chosen[known] = found.column(found.metric)[rows.drop_null().to_numpy()]
        return chosen

    finished: list[datetime] = []
    nights = [values(own)]
    read = own.keys.num_rows
    for earlier in earlier_runs(run, MOST_NIGHTS - 1):
        with suppress(PartwiseError):  # removed meanwhile, or damaged
            found = Measured.of(earlier, _OTHERS)
            read += found.keys.num_rows
            if read > MOST_CELLS:
                break
            if is_same(found) and (last := last_work(earlier)) is not None:
                finished.append(last.finished_at)
                nights.append(values(found))
    return Nights(finished_at=tuple(reversed(finished)), values=np.array(nights[::-1]))


def drift_metrics(found: Sequence[FeatureDrift]) -> dict[str, float]:
    """Return what an evaluation keeps of the drift of a key's features, as metrics."""
    tested = [each for each in found if each.kind != "time"]
    metrics = {TESTS: float(len(tested))} if tested else {}
    for each in tested:
        if each.p_value <= DRIFT_LEVEL:
            facts = {name: getattr(each, name) for name in _DRIFT}
            metrics |= {
                f"{DRIFT}{name}/{each.feature}": float(value)
                for name, value in facts.items()
                if value is not None
            }
    return metrics


def _with_keys(drift: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows of features with the keys that their places mean."""
    theirs = keys.take(drift["place"])
    columns = {"partition_id": theirs["partition_id"]}
    columns |= dict(zip(drift.column_names, drift.columns, strict=True))
    return pa.table(keys_beside(theirs, columns) | columns)


def _drift(of: Mapping[str, tuple[np.ndarray, np.ndarray]], tests: int) -> pa.Table:
    """Return the rows of `Evaluated.drift`, out of the metrics of a ledger."""
    beginning = f"{DRIFT}{_DRIFT[0]}/"
    places: list[np.ndarray] = [np.empty(0, np.int64)]
    features: list[str] = []
    values: dict[str, list[np.ndarray]] = {name: [np.empty(0)] for name in _DRIFT}
    for metric, (rows, _) in of.items():
        if not metric.startswith(beginning):
            continue
        feature = metric.removeprefix(beginning)
        places.append(rows)
        features += [feature] * len(rows)
        for name in _DRIFT:
            found = np.full(len(rows), np.nan)
            known, numbers = of.get(f"{DRIFT}{name}/{feature}", (rows[:0], found[:0]))
            found[np.searchsorted(rows, known)] = numbers
            values[name].append(found)
    columns: dict[str, Any] = {
        "place": pa.array(np.concatenate(places), pa.int64()),
        "feature": pa.array(features, pa.string()),
    }
    for name, parts in values.items():
        found = np.concatenate(parts)
        columns[name] = pa.array(found, mask=np.isnan(found))
    table = pa.table(columns)
    kinds = pa.repeat("number", table.num_rows)
    drifted = flagged(table.append_column("kind", kinds), DRIFT_LEVEL, tests)
    return table.append_column("drifted", drifted).sort_by([("place", "ascending")])
