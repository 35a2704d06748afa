"""The kinds of runs, and what all runs of a kind have in common: one table, which all others read.

A new kind is an entry here, and the work that it does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

RunKind = Literal[
    "train",
    "train-distributed",
    "run-script",
    "tune",
    "find-portfolio",
    "infer",
    "compare",
    "evaluate",
    "map",
    "export",
    "export-transformers",
    "validate",
]
"""What a run does."""

RANK = "rank"
"""The key column of the runs of gangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What all runs of a kind have in common."""

    flow: str
    """The function that makes them."""
    title: str
    """How a person says it."""
    step: str = ""
    """The name of the task that runs their shards; empty: they have none."""
    models: Literal["", "each", "one"] = ""
    """Whether they train a model for each partition, or one of all rows, which others infer with,
    export and compare."""
    has_exports: bool = False
    """Whether the files in them are exports of models."""
    takes_keys: bool = True
    """Whether a call names key columns; else the keys are ranks, trials, or those of the models."""
    is_gang: bool = False
    """Whether each partition is a rank of a gang, by the key column `RANK`."""
    units: str = "partitions"
    """What a person calls its partitions."""
    outputs: str = "outputs"
    """The folder of the rows that functions returned."""
    earlier: RunKind | None = None
    """What runs of this kind were called before it had a name of its own."""

    @property
    def verb(self) -> str:
        """The word that task runs of `step` begin with."""
        return self.step.partition("-")[0]


KINDS: Mapping[RunKind, Kind] = MappingProxyType(
    {
        "train": Kind(
            flow="train_models", title="training run", step="train-partitions", models="each"
        ),
        "train-distributed": Kind(
            flow="train_distributed",
            title="training run of one model",
            models="one",
            takes_keys=False,
            is_gang=True,
            units="ranks",
        ),
        "run-script": Kind(
            flow="run_script",
            title="run of a script",
            takes_keys=False,
            is_gang=True,
            units="ranks",
        ),
        # A partition for each trial.
        "tune": Kind(
            flow="tune_model",
            title="tuning run of one model",
            models="one",
            takes_keys=False,
            units="trials",
        ),
        "find-portfolio": Kind(
            flow="find_portfolio",
            title="search for a portfolio",
            step="score-settings",
            earlier="map",
        ),
        "infer": Kind(
            flow="run_inference",
            title="inference run",
            step="infer-partitions",
            outputs="predictions",
        ),
        "compare": Kind(
            flow="compare_models", title="comparison of models", step="compare-partitions"
        ),
        "evaluate": Kind(
            flow="evaluate_predictions",
            title="evaluation of predictions",
            step="evaluate-partitions",
        ),
        "map": Kind(flow="map_partitions", title="map run", step="map-partitions"),
        "export": Kind(
            flow="export_models",
            title="export run",
            step="export-models",
            has_exports=True,
            takes_keys=False,
        ),
        # Of a collection that no run trained, so that no run can take it for its own exports.
        "export-transformers": Kind(
            flow="export_transformers",
            title="export run of transformers",
            step="export-transformers",
            has_exports=True,
            takes_keys=False,
        ),
        "validate": Kind(
            flow="validate_exports",
            title="validation run",
            step="validate-exports",
            takes_keys=False,
        ),
    }
)
