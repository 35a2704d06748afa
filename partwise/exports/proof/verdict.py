"""What an export is compared with, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from partwise.choices import Task
from partwise.errors import ExportMismatchError
from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.protocol import Tolerance
from partwise.models.export_options import ModelFormat
from partwise.models.guards import Guard
from partwise.models.signature import Feeds, Signature

Check = Literal[
    "load",  # it does not load, or the process that ran it died
    "checker",  # onnx.checker refuses it
    "opset",
    "signature",  # its metadata are missing or say something else
    "inputs",  # names, dtypes or sizes of inputs
    "outputs",  # names, their order, or dtypes of outputs
    "run",  # it does not run on a case, or does where the model itself raises
    "guard",  # one of its guards refuses what it has to predict
    "shape",
    "dtype",
    "nan",  # NaN or infinities stand elsewhere
    "trees",  # a node or leaf is another than the model has
    "values",
    "swapped",  # the values of another output
    "labels",
    "metric",
    "weights",  # an initializer is not a tensor of the model
    "vacuous",  # the reference says nothing: it is the same for all rows, or nearly so
]

CaseKind = Literal["real", "made", "odd"]
"""Rows of the data; variations of them; numbers that no data have, made to go wrong."""

MOST_SHOWN = 3
"""Findings in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rows, and what the model itself gives for them."""

    name: str
    """Such as "held-out rows"."""
    feeds: Feeds
    expected: Mapping[str, np.ndarray]
    kind: CaseKind = "real"
    raises: str = ""
    """Why the model itself raises, and `expected` is empty: the export has to fail too."""
    guards: tuple[Guard, ...] = ()
    """Guards by which an export may refuse the case, if it differs from its model there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGate:
    """How values that do differ are judged: by how well they predict the held-out rows."""

    case: str
    """The name of the case with the held-out rows."""
    labels: np.ndarray | None
    """Double, shape (n,); None: they are not known, and the model's own predictions are taken."""
    task: Task
    max_loss: float
    """As a fraction of the model's own error."""
    outputs: Literal["prediction", "all"] = "prediction"
    """What is judged: how well the prediction fits the one case, or how far each output moves on
    all cases, as a fraction of its own spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What an exported file has to be."""

    format: ModelFormat
    signature: Signature
    tolerance: Tolerance
    opset: int | None = None
    is_constant: bool = False
    """Whether the model gives the same for all rows by its structure, so that a constant output is
    no sign of a comparison that proves nothing."""
    gate: MetricGate | None = None
    """In place of the tolerance."""
    trees: TreeEnsemble | None = None
    """Those that an ONNX file has to hold, node by node."""
    timeout_s: float = 3600.0
    """For so long the file may be loaded, run and compared."""
    when_late: str = "allow more (judge_timeout_s), or compare fewer rows (most_rows)"
    """What whoever exceeds this limit can do."""
    serde: str = ""
    """Of the format "native": the name of the serde that reads the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that does not hold."""

    check: Check
    message: str
    """A sentence: what, where, how much and how many."""
    case: str = ""
    output: str = ""
    max_difference: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a comparison."""

    findings: tuple[Finding, ...] = ()
    """None: the export is right."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers for the ledger: export_cases, export_rows, export_values, export_differing,
    export_max_abs_diff, export_max_rel_diff; export_cases_raising, in which model and export both
    fail, and export_cases_refused, in which a guard of the export fails; of trees
    export_nodes_compared; of classes export_labels_differing and export_label_ties; of a gate
    export_metric_loss, and export_metric, export_metric_native and export_label_agreement where
    they are known; of one that judges all outputs export_movement_<output>; of weights those of
    `prove_weights`."""
    notes: tuple[str, ...] = ()
    """What is right and should be known, such as an output that is the same for all rows."""

    def added_to(self, verdict: "Verdict") -> "Verdict":
        """Return another verdict on the same file with this added."""
        return replace(
            verdict,
            findings=(*verdict.findings, *self.findings),
            metrics={**verdict.metrics, **self.metrics},
            notes=(*verdict.notes, *self.notes),
        )

    def check(self) -> None:
        """Return when the export is right.

        Raises:
            ExportMismatchError: It is not.
        """
        if not self.findings:
            return
        text = " ".join(finding.message for finding in self.findings[:MOST_SHOWN])
        more = len(self.findings) - MOST_SHOWN
        tail = f" And {more} more." if more > 0 else ""
        raise ExportMismatchError(text + tail, self.findings[0].check, self.metrics)
