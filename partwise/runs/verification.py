"""Looking at all of a run: whether each document and file is there, and as it was written."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from partwise.errors import (
    InputError,
    IntegrityError,
    NewerFormatError,
    PartwiseError,
    RunFormatError,
    SignatureError,
)
from partwise.runs.bundle import StoredArtifact, artifact_from_row, decode
from partwise.runs.contents import (
    ledger_segments,
    list_generations,
    output_rows,
    read_output,
    read_segments,
)
from partwise.runs.documents import (
    DAMAGED,
    SummaryDocument,
    generation_file,
    run_path,
    sha256_of,
    summary_file,
)
from partwise.runs.holds import HELD, read_holds
from partwise.runs.ledger import read_ledger, status_counts
from partwise.runs.run import Run
from partwise.runs.steps import finish_earlier_steps
from partwise.runs.unfinished import read_keys
from partwise.store.lease import Lease
from partwise.store.store import Store

_THREADS = 4
"""Files looked at at once: each is in memory, and a bundle may have 256 MB."""
_BACKUP = "restore it from a backup"
_LEDGER = "restore it from a backup, or resume the run, which writes it again from its segments"
_RESUME = "set it aside with --set-aside and resume the run, which makes its partitions again"


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it was written, and what to do about it."""

    path: str
    """Relative to the run."""
    what: str
    remedy: str
    can_be_made_again: bool = False
    """Whether a resume makes what it holds again, once it is set aside."""

    def __str__(self) -> str:
        return f"{self.path}: {self.what.rstrip('.')}; {self.remedy}."


@dataclass(slots=True, kw_only=True)
class Verification:
    """What was looked at of a run, and what was found."""

    run_id: str
    files: int = 0
    size_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be verified, since an earlier release wrote it without checksums."""

    def add(self, path: str, what: str, remedy: str, *, can_be_made_again: bool = False) -> None:
        """Note a damage."""
        self.damages.append(Damage(path, what, remedy, can_be_made_again))

    @contextmanager
    def noted(self, path: str, remedy: str) -> Iterator[None]:
        """Have what cannot be read be a damage, but for what a newer release wrote."""
        try:
            yield
        except NewerFormatError:
            # It is whole, and only this release cannot read it: nothing to be set aside.
            raise
        except (RunFormatError, SignatureError, IntegrityError) as error:
            self.add(path, " ".join(str(error).split()), remedy)


def verify_run(run_id: str, store: Store) -> Verification:
    """Read all of a run that readers see, and compare it with every checksum that there is.

    Documents with the checksums at their ends, with each other, and with their signatures where
    keys are configured; the ledger with the summary; each artifact and each file of output rows
    with the ledger; segments of the ledger with the checksums that they hold; counts.
    """
    found = Verification(run_id=run_id)
    run = None
    with found.noted("run.json", _BACKUP):
        run = Run.open(run_id, store)
    if run is None:
        return found
    found.files += 1
    summaries = _check_documents(run, found)
    ledgers = _check_ledgers(run, summaries, found)
    shown = None
    # Else it is said above, of the document that is damaged.
    with suppress(RunFormatError, SignatureError, IntegrityError):
        shown = ledgers.get(run.shown.ledger_file) if run.shown else run.ledger
    if shown is not None:
        _check_bundles(run, shown, found)
        _check_outputs(run, shown, found)
    _check_segments(run, found)
    _check_holds(run, found)
    return found


def _check_documents(run: Run, found: Verification) -> list[SummaryDocument]:
    """Look at the documents of all generations, and return the summaries that are whole."""
    store, run_id = run.store, run.run_id
    there = list_generations(store, run_id)
    # Each has the checksum of the one before it: an exchanged one is found by its successor.
    before: str | None = None
    summaries = []
    newest = max(there.begun, *there.ended, 0)
    for number in range(run.oldest_generation, newest + 1):
        found.files += 1 + (number in there.ended)
        name = generation_file(number)
        with found.noted(name, _BACKUP):
            document = run.read_generation_document(number)
            if document.before_sha256 not in (None, before):
                what = f"it does not name the {generation_file(number - 1)} that stands there"
                found.add(name, what, _BACKUP)
        path = run_path(run_id, name)
        before = sha256_of(store.read(path)) if store.exists(path) else None
        with found.noted(summary_file(number), _BACKUP):
            summary = run.summary_of(number)
            if summary is None and number == newest:
                _check_keys(run, found)
            if summary is not None:
                summaries.append(summary)
                if summary.generation_sha256 is None:
                    found.notes.append(
                        f"generation {number} is of an earlier release: no checksum binds its "
                        "documents and its output rows"
                    )
    return summaries


def _check_keys(run: Run, found: Verification) -> None:
    """Look at the keys of a generation that has no end; nobody needs those of others."""
    remedy = "readers do not see what has no outcome yet, and a resume writes its own"
    with found.noted(f"keys of generation {run.generation}", remedy):
        if read_keys(run.store, run.document, run.generation) is not None:
            found.files += 1


def _check_ledgers(
    run: Run, summaries: list[SummaryDocument], found: Verification
) -> dict[str, pa.Table]:
    """Look at the ledgers of generations that have ended, and return those that are whole."""
    ledgers: dict[str, pa.Table] = {}
    for summary in reversed(summaries):
        name = summary.ledger_file
        is_shown = run.shown is not None and run.shown.generation == summary.generation
        try:
            content = run.store.read(run_path(run.run_id, name))
        except FileNotFoundError:
            # Of earlier generations a garbage collection has taken it.
            if is_shown:
                found.add(name, "it is gone", _LEDGER)
            continue
        found.files += 1
        found.size_bytes += len(content)
        if sha256_of(content) != summary.ledger_sha256:
            what = f"it differs from its checksum in {summary_file(summary.generation)}"
            found.add(name, what, _LEDGER)
            continue
        with found.noted(name, _LEDGER):
            ledgers[name] = read_ledger(content, name)
            if status_counts(ledgers[name]) != summary.counts:
                what = f"it counts other partitions than {summary_file(summary.generation)}"
                found.add(name, what, _LEDGER)
    return ledgers


def _check_bundles(run: Run, ledger: pa.Table, found: Verification) -> None:
    by_bundle: dict[str, list[tuple[str, StoredArtifact]]] = defaultdict(list)
    rows = ledger.select(["partition_id", "artifacts"]).to_pylist()
    for row in rows:
        for artifact in map(artifact_from_row, row["artifacts"]):
            by_bundle[artifact.bundle].append((row["partition_id"], artifact))

    def check(bundle: str) -> tuple[int, list[str]]:
        try:
            content = run.store.read(run_path(run.run_id, bundle))
        except FileNotFoundError:
            return 0, ["it is gone"]
        return len(content), list(wrong_artifacts(content, by_bundle[bundle]))

    _check_files(sorted(by_bundle), check, found)


def wrong_artifacts(content: bytes, artifacts: list[tuple[str, StoredArtifact]]) -> Iterator[str]:
    """Yield what is wrong with artifacts of a bundle; each comes with the partition_id it is of."""
    for partition_id, artifact in artifacts:
        stored = content[artifact.offset : artifact.offset + artifact.stored_bytes]
        try:
            decode(stored, artifact, partition_id)
        except PartwiseError:
            yield f"{artifact.filename!r} of the partition {partition_id} differs from its checksum"


def _check_outputs(run: Run, ledger: pa.Table, found: Verification) -> None:
    places = ledger.select(["rows_file", "rows_sha256", "rows_in_file"]).to_pylist()
    expected = {row["rows_file"]: row for row in places if row["rows_file"] is not None}

    def check(name: str) -> tuple[int, list[str]]:
        try:
            content = read_output(run.store, run.run_id, name)
        except FileNotFoundError:
            return 0, ["it is gone"]
        try:
            output_rows(
                content, name, expected[name]["rows_sha256"], expected[name]["rows_in_file"]
            )
        except NewerFormatError:
            raise
        except (IntegrityError, RunFormatError):
            return len(content), ["it differs from its checksum or its rows in the ledger"]
        return len(content), []

    _check_files(sorted(expected), check, found)


def _check_files(
    names: list[str], check: Callable[[str], tuple[int, list[str]]], found: Verification
) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        for name, (size_bytes, wrong) in zip(names, threads.map(check, names), strict=True):
            found.files += 1
            found.size_bytes += size_bytes
            if wrong:
                more = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
                remedy = f"{_BACKUP}, or {_RESUME}"
                # What is gone, a resume finds gone without a move.
                found.add(name, f"{wrong[0]}{more}", remedy, can_be_made_again=size_bytes > 0)


def _check_segments(run: Run, found: Verification) -> None:
    root = run_path(run.run_id) + "/"
    segments = read_segments(run.store, ledger_segments(run.store, run.run_id))
    found.files += len(segments.tables) + len(segments.damaged)
    for path, reason in segments.damaged.items():
        remedy = "the next resume sets it aside, and makes its partitions again if need be"
        found.add(path.removeprefix(root), reason, remedy, can_be_made_again=True)


def _check_holds(run: Run, found: Verification) -> None:
    """Look whether what versions of catalogs draw on is there; they know what it is to be."""
    with found.noted(f"{HELD}/", _BACKUP):
        holds = read_holds(run.store, run.run_id)
        found.files += len(holds.counting)
        for hold in holds.counting:
            for name in hold.files:
                if not run.store.exists(run_path(run.run_id, name)):
                    found.add(name, f"it is gone, and {hold.holder} draws on it", _BACKUP)


def set_aside(found: Verification, store: Store) -> list[str]:
    """Move what a resume can make again to the folder `damaged` of the run, and return what it was.

    A resume then finds it gone, and runs its partitions again. `partwise runs gc` removes it when
    that is done.

    Raises:
        InputError: A version of a catalog draws on one of them.
        RunBusyError: A process works on the run.
    """
    paths = [damage.path for damage in found.damages if damage.can_be_made_again]
    if not paths:
        return []
    with Lease.acquire(store, run_path(found.run_id)) as lease:
        finish_earlier_steps(lease, store, found.run_id)
        for hold in read_holds(store, found.run_id).counting:
            if held := set(paths) & set(hold.files):
                # Its other models are whole, and the catalog reads them.
                raise InputError(
                    f"{min(held)} of the run {found.run_id!r} stays in its place, since "
                    f"{hold.holder} draws on it: {_BACKUP}, or promote other models."
                )
        for path in paths:
            lease.check()
            aside = run_path(found.run_id, DAMAGED, path.rpartition("/")[2])
            store.move(run_path(found.run_id, path), aside)
    return paths
