"""The handle of a pipeline: the runs of its stages, which share the beginning of their names."""

from collections import Counter
from pathlib import Path
from typing import Literal, get_args

from partwise.formatting import counted
from partwise.outcomes import RunStatus
from partwise.runs.documents import check_stem
from partwise.runs.run import Run
from partwise.store.store import Store

Stage = Literal["train", "export", "validate", "infer"]


def stage_run_id(run_id: str, stage: Stage) -> str:
    """Return the run ID of a pipeline's stage.

    Example:
        >>> stage_run_id("monday", "export")
        'monday-export'
    """
    return f"{run_id}-{stage}"


def check_pipeline_id(run_id: str) -> None:
    """Refuse a name of which those of the stages cannot be made.

    Raises:
        RunIdError: One would be too long.
    """
    check_stem("pipeline", run_id, [stage_run_id(run_id, stage) for stage in get_args(Stage)])


class Pipeline:
    """What model_pipeline did: four runs, each of which stands for itself.

    Example:
        >>> Pipeline.open("monday", "/data/models").inference.predictions()  # doctest: +SKIP
    """

    kind = "pipeline"

    def __init__(
        self, run_id: str, *, training: Run, export: Run, validation: Run, inference: Run
    ) -> None:
        self.run_id = run_id
        self.training = training
        self.export = export
        self.validation = validation
        self.inference = inference

    @classmethod
    def open(cls, run_id: str, store: Store | str | Path = "artifacts") -> "Pipeline":
        """Open a pipeline by its ID.

        Raises:
            RunNotFoundError: A stage has not begun, or there is no such pipeline.
        """
        return cls(
            run_id,
            training=Run.open(stage_run_id(run_id, "train"), store),
            export=Run.open(stage_run_id(run_id, "export"), store),
            validation=Run.open(stage_run_id(run_id, "validate"), store),
            inference=Run.open(stage_run_id(run_id, "infer"), store),
        )

    def __repr__(self) -> str:
        return f"Pipeline({self.run_id!r}, {self.status.value})"

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of its stages, in order."""
        return (self.training, self.export, self.validation, self.inference)

    @property
    def store(self) -> Store:
        """Where the runs are kept."""
        return self.training.store

    @property
    def status(self) -> RunStatus:
        """The worst of its runs: SUCCESS only when all are."""
        statuses = {run.status for run in self.runs}
        order = (
            RunStatus.FAILURE,
            RunStatus.CANCELLED,
            RunStatus.IN_PROGRESS,
            RunStatus.PARTIAL_FAILURE,
            RunStatus.SKIPPED,
        )
        return next((status for status in order if status in statuses), RunStatus.SUCCESS)

    @property
    def message(self) -> str:
        """A sentence about its end."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            counts.update({name: n for name, n in run.counts.items() if name != "DONE"})
        wrong = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        done = self.inference.counts.get("DONE", 0)
        what = f"{counted(done, 'partition')} inferred with proved exports"
        return f"{self.status.value}: {what}" + (f" ({wrong} on the way)." if wrong else ".")
