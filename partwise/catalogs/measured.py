"""What a run that measured models keeps of each key: the metrics of its ledger, as columns."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.outcomes import PartitionStatus
from partwise.runs.documents import GenerationDocument
from partwise.runs.ledger import key_names, metric_values
from partwise.runs.metrics import dense_metric
from partwise.runs.run import Run

_NO_ROWS = np.empty(0, np.int64)


def document_of(run: Run) -> GenerationDocument:
    """Return what is written down of the generation that readers see."""
    return run.read_generation_document(
        run.generation if run.shown is None else run.shown.generation
    )


def arguments_of(run: Run) -> Mapping[str, Any]:
    """Return what the generation that readers see was called with, as it is written down."""
    return document_of(run).arguments


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The metrics of n keys, and by which of them models are judged."""

    arguments: Mapping[str, Any]
    metric: str
    """The name of what tells better models: of a function, without that of its module."""
    keys: pa.Table
    """The key columns, named as in a ledger, and partition_id."""
    is_done: np.ndarray
    """Which keys were measured, shape (n,); of the others the ledger says why not."""
    metrics: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """By name: the rows that have it, ascending, and their values."""

    @classmethod
    def of(cls, run: Run, others: Collection[str]) -> "Measured":
        """Read the ledger of a run.

        `others` are its metrics besides the one that models are judged by, up to a "/".
        """
        ledger, arguments = run.ledger, arguments_of(run)
        metrics = dict(metric_values(ledger))
        asked = arguments.get("metric")
        if asked is None:
            # A function of a script, which no other process can import, is not written down.
            asked = next((each for each in map(_stem, metrics) if each not in others), "metric")
        elif not str(asked).startswith("pinball"):
            asked = str(asked).rpartition(":")[2]
        return cls(
            arguments=arguments,
            metric=asked,
            keys=ledger.select([*key_names(ledger.column_names), "partition_id"]),
            is_done=pc.equal(ledger["status"], PartitionStatus.DONE).to_numpy(),
            metrics=metrics,
        )

    @property
    def maximized(self) -> bool:
        """Whether more of it is better."""
        return bool(self.arguments.get("direction") == "maximize")

    def column(self, name: str, missing: float = np.nan) -> np.ndarray:
        """Return a metric of all keys, shape (n,)."""
        rows, values = self.metrics.get(name, (_NO_ROWS, _NO_ROWS))
        return dense_metric(self.keys.num_rows, rows, values, missing)


def _stem(name: str) -> str:
    return name.partition("/")[0]
