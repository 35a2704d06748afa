"""What readers see of a run: which generations, and which rows of theirs.

It changes at two moments only. A generation that is complete stays until the next one is complete:
models do not vanish while a resume or an overwrite is at work, or because it was killed. Of a run
that never was complete, readers see what was committed of one code and one input, by as many
generations as that took; where several codes or inputs were tried, those with the most models, of
equals the newest. So nothing that was there goes, and nothing is mixed, unless somebody asked for
that: of a "resume-failed", what the newest generation says of a partition counts, of any code.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import (
    IntegrityError,
    NewerFormatError,
    PartwiseError,
    RunFormatError,
    RunNotFoundError,
    SignatureError,
)
from partwise.outcomes import PartitionStatus
from partwise.runs.contents import (
    ledger_segments,
    list_generations,
    read_generation,
    read_segments,
    refuse_removed,
)
from partwise.runs.documents import (
    RUN_DOCUMENT,
    SUMMARY_OF_V1,
    ClaimDocument,
    GenerationDocument,
    RunDocument,
    SummaryDocument,
    generation_file,
    run_path,
    sha256_of,
    summary_file,
)
from partwise.runs.ledger import merge, read_ledger
from partwise.runs.unfinished import Unfinished, read_keys, read_standing
from partwise.store.seen import Seen, check_not_older, recall, remember
from partwise.store.signing import check_signed, signer
from partwise.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class View:
    """The generations of a run, as a reader found them, and which of their rows he sees."""

    store: Store
    """Where the run is."""
    run: RunDocument
    newest: int
    """The newest generation; 0: none was begun."""
    summaries: dict[int, SummaryDocument | None]
    """By generation, of those that have ended; None: not read yet."""
    run_sha256: str
    """Of `run.json` as it was read."""
    removed: int = -1
    """The generation with which the run was removed, before which nothing counts; -1: it never
    was."""
    is_alone: bool = False
    """Whether only the newest is seen, complete or not."""
    _documents: dict[int, bytes] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._run_id = self.run.run_id

    def alone(self, generation: int) -> "View":
        """Return the view of one generation alone, complete or not."""
        is_none = generation <= self.removed or (generation == 0 and self.newest)
        if not 0 <= generation <= self.newest or is_none:
            raise RunNotFoundError(
                f"The run {self._run_id!r} has no generation {generation}; its newest is "
                f"{self.newest}."
            )
        return replace(self, newest=generation, is_alone=True)

    def summary(self, generation: int) -> SummaryDocument | None:
        """Return how a generation ended; None while it has not."""
        if generation in self.summaries and self.summaries[generation] is None:
            self.summaries[generation] = self._read_summary(generation)
        return self.summaries.get(generation)

    def _read_summary(self, generation: int) -> SummaryDocument:
        name = summary_file(generation)
        content = self._read_signed(name, generation)
        summary = SummaryDocument.from_bytes(content, f"{self._run_id}/{name}")
        self._check_own(summary, name, generation)
        remember(self.store, run_path(self._run_id), seen_of(self.run, generation))
        return summary

    def _read_signed(self, name: str, generation: int) -> bytes:
        """Return a document of a generation that is there, as long as the run is."""
        path = run_path(self._run_id, name)
        try:
            content = self.store.read_document(path)
        except FileNotFoundError as error:
            refuse_removed(self.store, self._run_id, generation)
            raise RunFormatError(f"The run {self._run_id!r} lacks its {name}.") from error
        check_signed(content, path, f"{self._run_id}/{name}", self.store)
        return content

    def _check_own(
        self, document: GenerationDocument | SummaryDocument, name: str, generation: int
    ) -> None:
        """Refuse a document of another generation or run."""
        if document.generation != generation:
            raise self._foreign(name, f"is of generation {document.generation}")
        if document.run_sha256 not in (None, self.run_sha256):
            raise self._foreign(name, f"does not name the {RUN_DOCUMENT} that stands there")

    def _foreign(self, name: str, why: str) -> IntegrityError:
        return IntegrityError(
            f"{self._run_id}/{name} {why}: one of both was changed, or is of another run. Restore "
            "it from a backup."
        )

    @property
    def is_removed(self) -> bool:
        """Whether the run was removed, and not begun again since."""
        return self.newest <= self.removed

    @cached_property
    def shown(self) -> SummaryDocument | None:
        """How the complete generation ended that readers see; None: none was complete yet."""
        numbers = [self.newest] if self.is_alone else sorted(self.summaries, reverse=True)
        for number in numbers:
            summary = self.summary(number)
            if summary is not None and summary.is_complete(self.run.kind):
                return summary
        return None

    def complete(self) -> list[SummaryDocument]:
        """Return how the complete generations ended, the oldest first."""
        ends = map(self.summary, sorted(self.summaries))
        return [end for end in ends if end is not None and end.is_complete(self.run.kind)]

    def document(self, generation: int) -> GenerationDocument:
        """Return what is written down of a generation."""
        name = generation_file(generation)
        content = self._document_bytes(generation)
        document = GenerationDocument.from_bytes(content, f"{self._run_id}/{name}")
        summary = self.summary(generation)
        self._check_own(document, name, generation)
        if summary is not None and summary.generation_sha256 not in (None, sha256_of(content)):
            raise self._foreign(name, "differs from its checksum in the summary")
        return document

    def _document_bytes(self, generation: int) -> bytes:
        """Return the document of a generation as it was when it was first read.

        So what is decided by its signature holds for all that is read from it later.
        """
        if generation not in self._documents:
            name = generation_file(generation)
            self._documents[generation] = self._read_signed(name, generation)
        return self._documents[generation]

    def is_made_here(self, generation: int) -> bool:
        """Whether a key that this process has signed what a generation was begun with.

        That is a key that it was given, or this user's own on this machine.
        """
        # The signature is of this path, and the document names run.json: one that is signed for
        # another run or generation does not count.
        document = self.document(generation)
        path = run_path(self._run_id, generation_file(generation))
        signed_by = signer(self._document_bytes(generation), path, self.store)
        return signed_by is not None and document.run_sha256 == self.run_sha256

    def ledger(self) -> pa.Table | None:
        """Return the ledger rows that readers see, sorted by key; None: there are none.

        Raises:
            IntegrityError: The ledger of a generation that has ended is gone or was changed.
        """
        if self.shown is not None:
            return self._ledger_of(self.shown)
        # Before the rows are read: see `Unfinished`.
        unfinished = self._unfinished()
        if self.is_alone:
            rows, of_newest = self._rows_of_newest(), True
        else:
            rows, of_newest = self._most_committed()
        return unfinished.add_to(rows) if unfinished is not None and of_newest else rows

    def _unfinished(self) -> Unfinished | None:
        """Return what there is to work on for a generation that has no end; None: nothing."""
        number = self.newest
        if self.is_removed or number == 0 or self.summary(number) is not None:
            return None
        try:
            found = read_keys(self.store, self.run, number)
        except NewerFormatError:
            raise
        except (RunFormatError, SignatureError) as error:
            # A segment of the ledger that is damaged is left out, too.
            logger.warning("Run %s: %s", self._run_id, error)
            return None
        if found is None:
            return None
        standing = read_standing(self.store, self._run_id, number)
        return Unfinished(self.run, number, *found, standing)

    def _ledger_of(self, summary: SummaryDocument) -> pa.Table:
        name = summary.ledger_file
        try:
            content = self.store.read(run_path(self._run_id, name))
        except FileNotFoundError as error:
            raise self.lost(name, "is gone") from error
        if sha256_of(content) != summary.ledger_sha256:
            raise self.lost(name, "differs from its checksum in the summary")
        return read_ledger(content, f"{self._run_id}/{name}")

    def _rows_of_newest(self) -> pa.Table | None:
        """Return the rows of a generation that is at work, died or was stopped."""
        summary = self.summary(self.newest)
        if summary is not None:
            return self._ledger_of(summary)
        segments = read_generation(self.store, self._run_id, self.newest)
        self._warn(segments.damaged)
        return segments.merge()

    def _most_committed(self) -> tuple[pa.Table | None, bool]:
        """Return the rows that readers see of a run of which no generation is complete.

        And whether the newest is among the generations that they are of.
        """
        segments = read_segments(self.store, ledger_segments(self.store, self._run_id))
        self._warn(segments.damaged)
        chosen, most, of_newest = None, -1, False
        for attempt in self._attempts():
            tables, numbers = [], []
            for number in attempt:
                # The ledger of a generation that was stopped also has what was not worked on.
                summary = self.summary(number)
                rows = self._ledger_of(summary) if summary else segments.merge([number])
                if rows is not None:
                    tables.append(rows)
                    numbers.append(number)
            # Of several codes it is a resume that keeps what is DONE, and goes by the newest.
            codes = {self.document(number).code_fingerprint for number in attempt}
            is_mixed = len(attempt) > 1 and (len(codes) > 1 or None in codes)
            rows = merge(tables, numbers, newest_first=is_mixed)
            done = 0 if rows is None else _done(rows)
            if done > most:
                chosen, most, of_newest = rows, done, self.newest in attempt
        return chosen, of_newest

    def _attempts(self) -> Iterator[list[int]]:
        """Yield the generations that were given the same code and the same input, newest first."""
        seen: set[int] = set()
        for number in range(self.newest, max(self.removed, 0), -1):
            if number in seen:
                continue
            document = self.document(number)
            inputs = document.inputs_fingerprint
            attempt = [number] + [
                other
                for other in document.compatible
                # Unknown inputs are equal to no others, not even to unknown ones.
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
        """Return what to raise for a file that is not as it was written; `why`: "is gone"."""
        # Asked now: what a removal or a newer generation has taken meanwhile is not damage.
        now = open_view(self.store, self.run, self.run_sha256)
        if now.removed > self.removed:
            return RunNotFoundError(
                f"The run {self._run_id!r} was removed since this handle was opened."
            )
        if now.shown != self.shown:
            return RunFormatError(
                f"The run {self._run_id!r} was worked on since this handle was opened; open it "
                "again."
            )
        return IntegrityError(
            f"{name} of the run {self._run_id!r} {why}; resume the run to make it again."
        )


def open_view(store: Store, document: RunDocument, run_sha256: str) -> View:
    """Return what readers see of a run now."""
    path = run_path(document.run_id)
    # Before the store is asked: what others complete between the two is newer then, not missing.
    seen = recall(store, path)
    there = list_generations(store, document.run_id)
    ended = seen_of(document, max(*there.ended, there.removed, 0))
    check_not_older(seen, ended, store, path)
    found = View(store=store, run=document, newest=0, summaries={}, run_sha256=run_sha256)
    if isinstance(document, ClaimDocument):
        # Nothing of one that was removed counts for a process that is about to begin it again.
        return found
    summaries: dict[int, SummaryDocument | None] = dict.fromkeys(there.ended)
    if document.format_version == 1:
        of_v1 = _summary_of_v1(store, document.run_id)
        summaries |= {number: end for number, end in of_v1.items() if number > there.removed}
    return replace(found, newest=there.begun, summaries=summaries, removed=there.removed)


def seen_of(document: RunDocument, generation: int) -> Seen:
    """Return what to remember of a run of which this generation has ended."""
    return Seen(since=document.created_at.astimezone(UTC).isoformat(), number=generation)


def _done(ledger: pa.Table) -> int:
    return int(pc.sum(pc.equal(ledger["status"], PartitionStatus.DONE.value)).as_py() or 0)


def _summary_of_v1(store: Store, run_id: str) -> dict[int, SummaryDocument | None]:
    """Return the summary that a run of format version 1 has, by its generation."""
    try:
        content = store.read_document(run_path(run_id, SUMMARY_OF_V1))
    except FileNotFoundError:
        return {}
    where = f"{run_id}/{SUMMARY_OF_V1}"
    check_signed(content, run_path(run_id, SUMMARY_OF_V1), where, store)
    summary = SummaryDocument.from_bytes(content, where)
    return {summary.generation: summary}
