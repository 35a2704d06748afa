"""What readers see of a run: which generations, and which rows of theirs.

It changes at two moments only. A generation that is complete stays until the next one is complete:
models do not vanish while a resume or an overwrite is at work, or because it was killed. Of a run
that never was complete, readers see what was committed of one code and one input, by as many
generations as that took; where several codes or inputs were tried, those with the most models, of
equals the newest. So nothing that was there goes, and nothing is mixed.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import IntegrityError, PartwiseError, RunFormatError, RunNotFoundError
from partwise.outcomes import PartitionStatus
from partwise.runs.contents import (
    ledger_segments,
    list_generations,
    read_generation,
    read_segments,
)
from partwise.runs.documents import (
    SUMMARY_OF_V1,
    GenerationDocument,
    RunDocument,
    SummaryDocument,
    generation_file,
    run_path,
    summary_file,
)
from partwise.runs.ledger import merge, read_table
from partwise.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A generation that was begun and has not ended: at work, or its process died."""

    generation: int
    since: datetime
    committed: int
    """Partitions, those that it kept included."""
    partitions: int | None
    """How many there are; None: a release before version 2 of the format began it."""

    def __str__(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M} UTC"
        total = "" if self.partitions is None else f" of {self.partitions:,}"
        return f"generation {self.generation} at work since {since}, {self.committed:,}{total}"


class View:
    """The generations of a run, as a reader found them, and which of their rows he sees.

    Args:
        store: Where the run is.
        document: Its `run.json`.
        newest: The newest generation; 0: none was begun.
        summaries: By generation, of those that have ended; None: not read yet.
        is_alone: Whether only the newest is seen, complete or not.
    """

    def __init__(
        self,
        store: Store,
        document: RunDocument,
        newest: int,
        summaries: Mapping[int, SummaryDocument | None],
        *,
        is_alone: bool = False,
    ) -> None:
        self.newest = newest
        self._store = store
        self._document = document
        self._run_id = document.run_id
        self._summaries = dict(summaries)
        self._is_alone = is_alone

    def alone(self, generation: int) -> "View":
        """Return the view of one generation alone, complete or not.

        Raises:
            RunNotFoundError: The run has no such generation.
        """
        if not 0 <= generation <= self.newest or (generation == 0 and self.newest):
            raise RunNotFoundError(
                f"The run {self._run_id!r} has no generation {generation}; its newest is "
                f"{self.newest}."
            )
        return View(self._store, self._document, generation, self._summaries, is_alone=True)

    def summary(self, generation: int) -> SummaryDocument | None:
        """Return how a generation ended; None while it has not."""
        if generation in self._summaries and self._summaries[generation] is None:
            name = summary_file(generation)
            content = self._store.read(run_path(self._run_id, name))
            self._summaries[generation] = SummaryDocument.from_bytes(
                content, f"{self._run_id}/{name}"
            )
        return self._summaries.get(generation)

    @cached_property
    def shown(self) -> SummaryDocument | None:
        """How the complete generation ended that readers see; None: none was complete yet."""
        numbers = [self.newest] if self._is_alone else sorted(self._summaries, reverse=True)
        for number in numbers:
            summary = self.summary(number)
            if summary is not None and summary.is_complete(self._document.kind):
                return summary
        return None

    def complete(self) -> list[SummaryDocument]:
        """Return how the complete generations ended, the oldest first."""
        ends = map(self.summary, sorted(self._summaries))
        return [end for end in ends if end is not None and end.is_complete(self._document.kind)]

    def document(self, generation: int) -> GenerationDocument:
        """Return what is written down of a generation.

        Raises:
            RunFormatError: It is damaged or missing.
        """
        name = generation_file(generation)
        try:
            content = self._store.read(run_path(self._run_id, name))
        except FileNotFoundError as error:
            raise RunFormatError(f"The run {self._run_id!r} lacks its {name}.") from error
        return GenerationDocument.from_bytes(content, f"{self._run_id}/{name}")

    def ledger(self) -> pa.Table | None:
        """Return the ledger rows that readers see, sorted by key; None: there are none.

        Raises:
            IntegrityError: The ledger of a generation that has ended is gone or was changed.
        """
        if self.shown is not None:
            return self._ledger_of(self.shown)
        return self._rows_of_newest() if self._is_alone else self._most_committed()

    def _ledger_of(self, summary: SummaryDocument) -> pa.Table:
        name = summary.ledger_file
        try:
            content = self._store.read(run_path(self._run_id, name))
        except FileNotFoundError as error:
            raise self.lost(name, "is gone") from error
        if hashlib.sha256(content).hexdigest() != summary.ledger_sha256:
            raise self.lost(name, "differs from its checksum in the summary")
        return read_table(content, f"{self._run_id}/{name}")

    def _rows_of_newest(self) -> pa.Table | None:
        """Return the rows of a generation that is at work, died or was stopped."""
        summary = self.summary(self.newest)
        if summary is not None:
            return self._ledger_of(summary)
        segments = read_generation(self._store, self._run_id, self.newest)
        self._warn(segments.damaged)
        return segments.merge()

    def _most_committed(self) -> pa.Table | None:
        """Return the rows that readers see of a run of which no generation is complete."""
        segments = read_segments(self._store, ledger_segments(self._store, self._run_id))
        self._warn(segments.damaged)
        chosen, most = None, -1
        for attempt in self._attempts():
            tables, numbers = [], []
            for number in attempt:
                # The ledger of a generation that was stopped also has what was not worked on.
                summary = self.summary(number)
                rows = self._ledger_of(summary) if summary else segments.merge([number])
                if rows is not None:
                    tables.append(rows)
                    numbers.append(number)
            rows = merge(tables, numbers)
            done = 0 if rows is None else _done(rows)
            if done > most:
                chosen, most = rows, done
        return chosen

    def _attempts(self) -> Iterator[list[int]]:
        """Yield the generations that were given the same code and the same input, newest first."""
        seen: set[int] = set()
        for number in range(self.newest, 0, -1):
            if number in seen:
                continue
            document = self.document(number)
            inputs = document.inputs_fingerprint
            attempt = [number] + [
                other
                for other in document.compatible
                if inputs is not None and self.document(other).inputs_fingerprint == inputs
            ]
            seen |= set(attempt)
            yield attempt

    def _warn(self, damaged: Mapping[str, str]) -> None:
        for reason in damaged.values():
            logger.warning(
                "Run %s: %s. Its partitions are left out, and the next resume runs them again.",
                self._run_id,
                reason.rstrip("."),
            )

    def lost(self, name: str, why: str) -> PartwiseError:
        """Return what to raise for a file that should be there as it was written.

        Args:
            name: Of the file, relative to the run.
            why: As in "is gone".
        """
        if open_view(self._store, self._document).shown != self.shown:
            return RunFormatError(
                f"The run {self._run_id!r} was worked on since this handle was opened; open it "
                "again."
            )
        return IntegrityError(
            f"{name} of the run {self._run_id!r} {why}; resume the run to make it anew."
        )


def open_view(store: Store, document: RunDocument) -> View:
    """Return what readers see of a run now."""
    there = list_generations(store, document.run_id)
    summaries: dict[int, SummaryDocument | None] = dict.fromkeys(there.ended)
    if document.format_version == 1:
        summaries |= _summary_of_v1(store, document.run_id)
    return View(store, document, there.begun, summaries)


def _done(ledger: pa.Table) -> int:
    return int(pc.sum(pc.equal(ledger["status"], PartitionStatus.DONE.value)).as_py() or 0)


def _summary_of_v1(store: Store, run_id: str) -> dict[int, SummaryDocument | None]:
    """Return the summary that a run of format version 1 has, by its generation."""
    try:
        content = store.read(run_path(run_id, SUMMARY_OF_V1))
    except FileNotFoundError:
        return {}
    summary = SummaryDocument.from_bytes(content, f"{run_id}/{SUMMARY_OF_V1}")
    return {summary.generation: summary}
