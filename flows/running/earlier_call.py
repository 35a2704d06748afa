"""What a run was begun with, for the runs that follow it: its rows, its trainer, its settings.

Of a run that was made elsewhere nothing is called and nothing connected to, unless the caller says
that he trusts it (`partwise.planning.trust`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from partwise.calls.call import Call
from partwise.calls.reading import function_names, read_arguments
from partwise.choices import NullKeys
from partwise.datasets.dataset import resolve_references
from partwise.errors import InputError
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_rows
from partwise.planning.earlier_rows import keys_of_run
from partwise.planning.trust import check_trusted, is_made_here
from partwise.renamed import with_new_names
from partwise.runs.ledger import key_names
from partwise.runs.run import Run
from partwise.sources.descriptions import Source
from partwise.sources.opening import open_source, values_as
from partwise.tables.keys.partition_keys import KeyColumn
from partwise.trainers import HoldoutTrainer


def earlier_keys(call: Call) -> tuple[KeyColumn, ...]:
    """Return the key columns of the run of a call, which it cannot change; none: there is none."""
    return keys_of_run(call.run_id, open_store(call.store))


@dataclass(frozen=True, kw_only=True)
class EarlierCall:
    """The call of a run, as far as it is written down."""

    run: Run
    call: Mapping[str, Any] = field(default_factory=dict)
    """As it is written down; empty where it is not."""
    trust: bool = False
    """Whether the caller trusts a run that was made elsewhere."""

    @classmethod
    def of(cls, run: Run, *, trust: bool = False) -> "EarlierCall":
        """Read the call of a run's newest generation; none of it is used yet."""
        if not run.generation:
            return cls(run=run)
        return cls(run=run, call=run.read_generation_document().written_call, trust=trust)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Its arguments: without "data" where the rows were a frame in memory.

        Raises:
            TrustError: The run was made elsewhere.
        """
        if not self.call:
            return {}
        check_trusted(self.run, self.call, trust=self.trust)
        return read_arguments(self.call, is_own=is_made_here(self.run))[1]

    def _plain(self, argument: str) -> Any:
        """Return an argument, by its name of today, as it is written down; None: there is none."""
        arguments = self.call.get("arguments")
        if not isinstance(arguments, Mapping):
            return None
        return with_new_names(str(self.call.get("flow")), arguments).get(argument)

    def open_rows(self, data: Any, columns: Any, filter: Any) -> Source:  # noqa: A002
        """Open the rows that a caller gives, or those of the run where none are given.

        Raises:
            InputError: None are given, and those of the run are unknown.
            TrustError: None are given, and the run was made elsewhere.
            SourceError: They cannot be read.
        """
        if not _is_empty(data):
            given = resolve_references(open_rows(data), lambda: self.run.store)
            source = open_source(given, columns=columns or None, filter=filter or None)
            recipe: Any = self.call.get("data")
            return values_as(source, recipe)
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
        keys = ledger.select(key_names(ledger.column_names))
        return "keep" if any(column.null_count for column in keys.columns) else "drop"

    @property
    def seed(self) -> int:
        """The run's seed, which drew the held-out rows."""
        seed = self._plain("seed")
        return seed if isinstance(seed, int) else 0

    @property
    def trainer(self) -> HoldoutTrainer | None:
        """The built-in trainer, which says what was held out; None: it was another function.

        Raises:
            TrustError: Its settings name a function, and the run was made elsewhere.
        """
        settings = self._plain("trainer")
        if not isinstance(settings, Mapping):
            return None
        # The trainer alone: what else the call names is neither opened nor asked about.
        plain = {**self.call, "arguments": {"trainer": settings}, "data": None, "version": None}
        if function_names(plain):
            check_trusted(self.run, self.call, trust=self.trust)
        trainer = read_arguments(plain, is_own=is_made_here(self.run))[1]["trainer"]
        return trainer if isinstance(trainer, HoldoutTrainer) else None

    def named(self, argument: Literal["example_inputs", "exporter"]) -> str:
        """Return what an export run was given by name; empty: nothing, or what has no name.

        Raises:
            TrustError: It was given one, and was made elsewhere.
        """
        name = self.arguments.get(argument) if self._plain(argument) else None
        return name if isinstance(name, str) else ""


def _is_empty(data: Any) -> bool:
    return data is None or (isinstance(data, str | list | tuple) and len(data) == 0)
