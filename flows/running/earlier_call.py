"""What a run was begun with, for the runs that follow it: its rows, its trainer, its settings."""

from dataclasses import dataclass
from typing import Any, Literal

from partwise.datasets.dataset import resolve_references
from partwise.errors import InputError
from partwise.flows.running.calls import read_call
from partwise.flows.running.connections import open_rows
from partwise.runs.ledger import KEY_PREFIX
from partwise.runs.run import Run
from partwise.shuffle.write import NullKeys
from partwise.sources.descriptions import Source
from partwise.sources.opening import open_source
from partwise.trainers import HoldoutTrainer


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCall:
    """The call of a run, as far as it is written down."""

    run: Run
    arguments: dict[str, Any]
    """Without "data" where the rows were a frame in memory; without what was not written down."""

    @classmethod
    def of(cls, run: Run) -> "EarlierCall":
        """Read the call of a run's newest generation."""
        if not run.generation:
            return cls(run=run, arguments={})
        document = run.read_generation_document()
        call = document.call or document.call_known
        return cls(run=run, arguments={} if call is None else read_call(call)[1])

    def open_rows(self, data: Any, columns: Any, filter: Any) -> Source:  # noqa: A002
        """Open the rows that a caller gives, or those of the run where none are given.

        Raises:
            InputError: None are given, and those of the run are unknown.
            SourceError: They cannot be read.
        """
        if not _is_empty(data):
            given = resolve_references(open_rows(data), lambda: self.run.store)
            return open_source(given, columns=columns or None, filter=filter or None)
        if "data" not in self.arguments:
            reason = "was given rows in memory, which are gone"
            if not self.run.generation:
                reason = f"({self.run.status.value}) has not written down which rows it is given"
            raise InputError(
                f"The run {self.run.run_id!r} {reason}: pass data=, or DATA on the command line."
            )
        of_run = self.arguments
        return open_source(
            resolve_references(open_rows(of_run["data"]), lambda: self.run.store),
            columns=columns or of_run["columns"],
            filter=filter or of_run["filter"],
        )

    @property
    def null_keys(self) -> NullKeys:
        """What becomes of rows with a null key: they matter only where a partition is of them.

        The run's own argument is not asked: of rows in memory it is not written down.
        """
        ledger = self.run.ledger
        names = [f"{KEY_PREFIX}{column.name}" for column in self.run.key_columns]
        return "keep" if any(ledger[name].null_count for name in names) else "drop"

    @property
    def seed(self) -> int:
        """The run's seed, which drew the held-out rows."""
        return int(self.arguments.get("seed", 0))

    @property
    def trainer(self) -> HoldoutTrainer | None:
        """The built-in trainer, which says what was held out; None: it was another function."""
        trainer = self.arguments.get("trainer")
        return trainer if isinstance(trainer, HoldoutTrainer) else None

    def named(self, argument: Literal["inputs", "exporter"]) -> str:
        """Return what an export run was given by name; empty: nothing, or what has no name."""
        name = self.arguments.get(argument)
        return name if isinstance(name, str) else ""


def _is_empty(data: Any) -> bool:
    return data is None or (isinstance(data, str | list | tuple) and len(data) == 0)
