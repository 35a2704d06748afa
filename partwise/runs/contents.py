"""What the store holds of runs: which runs, their generations, ledger segments and files.

All of it is asked of the store again: a run may be written by other processes meanwhile.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
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
from partwise.runs.documents import (
    BUNDLES,
    DAMAGED,
    REPLACED,
    RUN_DOCUMENT,
    RUNS,
    attempt_number,
    claim_file,
    ended_number,
    generation_number,
    generation_of,
    is_run_id,
    removal_file,
    removed_number,
    run_path,
    sha256_of,
)
from partwise.runs.kinds import KINDS, RunKind
from partwise.runs.ledger import merge, read_ledger, read_table, write_table
from partwise.runs.own_checksums import check_own_signature
from partwise.store.lease import held_claim
from partwise.store.signing import check_signed, given_key, is_configured, sign, verify
from partwise.store.store import Store, is_path
from partwise.tables.categories import without_orders
from partwise.tables.dictionaries import without_views

READ_THREADS = 8
_REMOVED = b"removed\n"
"""What the mark of a removal begins with; a signature of it follows."""


def list_runs(store: Store | str | Path = "artifacts") -> list[str]:
    """Return the IDs of the runs in a store, or in a folder or at a URL, sorted."""
    opened = Store.of(store)
    names = [name for name in opened.list_folder(RUNS) if is_run_id(name)]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        there = threads.map(lambda name: is_there(opened, name), names)
    return [name for name, is_run in zip(names, there, strict=True) if is_run]


def is_there(store: Store, run_id: str) -> bool:
    """Whether a folder of runs is one that was begun or claimed, and not removed since."""
    try:
        has_document = store.exists(run_path(run_id, RUN_DOCUMENT))
        if has_document and not list_generations(store, run_id).is_removed:
            return True
        return read_claim(store, run_id) is not None
    except PartwiseError:
        # Whoever opens it hears what is wrong: a link to a run, for example, is refused.
        return True


def read_claim(store: Store, run_id: str) -> bytes | None:
    """Return what a run is to be whose rows are being loaded; None: nobody loads any.

    Raises:
        SignatureError: No key of ours signed it, and this process was given some.
    """
    try:
        number = held_claim(store, run_path(run_id))
        content = store.read_document(run_path(run_id, claim_file(number))) if number else None
    except FileNotFoundError:
        return None
    if content is not None:
        path = run_path(run_id, claim_file(number))
        check_signed(content, path, f"{run_id}/{claim_file(number)}", store)
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class Generations:
    """Which generations a run has, by the names of their documents."""

    begun: int
    """The newest; 0: none was begun."""
    ended: tuple[int, ...]
    """Those whose end is written down, ascending."""
    removed: int = -1
    """The newest with which the run was removed, which does not count, nor does any before it; -1:
    it never was."""
    attempt: int = 1
    """The newest of the gang of the newest generation."""

    @property
    def is_removed(self) -> bool:
        """Whether the run was removed, and not begun again since."""
        return self.begun <= self.removed

    def is_over(self, generation: int, attempt: int | None = None) -> bool:
        """Whether a generation, or an attempt of its gang, is to write nothing more.

        It has ended, a newer one has begun, or the run was removed.
        """
        over = max(*self.ended, self.removed, 0)
        if self.begun > generation or over >= generation:
            return True
        return attempt is not None and self.begun == generation and self.attempt > attempt


def list_generations(store: Store, run_id: str, *, is_signed: bool | None = None) -> Generations:
    """Return which generations of a run were begun, and which have ended.

    `is_signed`: a removal that no key signed does not count; None: where this process was given
    keys.
    """
    names = store.list_folder(run_path(run_id, "generations"))
    removals = [number for number in map(removed_number, names) if number is not None]
    # An empty file of this name would hide a run from all readers: with keys it has to be signed.
    if removals and (is_configured(store) if is_signed is None else is_signed):
        removals = [number for number in removals if _is_removal_signed(store, run_id, number)]
    removed = max(removals, default=-1)
    ended = tuple(sorted(number for number in map(ended_number, names) if number > max(removed, 0)))
    # One that has ended was begun, also where its document was lost, which readers of it then say.
    # After a removal the numbers go on, so that no name that was deleted is given once more.
    begun = max(*map(generation_number, names), *ended, removed, 0)
    attempt = max((attempt_number(name, begun) for name in names), default=1)
    return Generations(begun=begun, ended=ended, removed=removed, attempt=attempt)


def refuse_removed(store: Store, run_id: str, generation: int) -> None:
    """Raise RunNotFoundError where a run was removed with this generation, or with a newer one.

    For who misses a file of it: a removal is no damage.
    """
    if list_generations(store, run_id).removed >= generation:
        raise RunNotFoundError(f"The run {run_id!r} in {store.url} was removed meanwhile.")


def write_removal(store: Store, run_id: str, generation: int) -> None:
    """Note that a run was removed, up to a generation; to do so twice changes nothing."""
    path = run_path(run_id, removal_file(generation))
    signature = sign(_REMOVED, path, store)
    try:
        store.create(path, _REMOVED + f"{signature or ''}\n".encode())
    except FileExistsError:
        # A forged mark does not count, and must not keep the run from being removed.
        if is_configured(store) and not _is_removal_signed(store, run_id, generation):
            store.write(path, _REMOVED + f"{signature}\n".encode())


def _is_removal_signed(store: Store, run_id: str, generation: int) -> bool:
    path = run_path(run_id, removal_file(generation))
    try:
        content = store.read_document(path)
    except (FileNotFoundError, RunFormatError):
        return False
    signature = content.removeprefix(_REMOVED).decode(errors="replace").strip()
    return verify(_REMOVED, path, signature, store) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Ledger segments, as far as they can be read."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    """By path; a segment that was deleted meanwhile is not among them."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Why a segment cannot be read, by path."""

    def merge(
        self, generations: Iterable[int] | None = None, *, newest_first: bool = False
    ) -> pa.Table | None:
        """Return one row per partition, sorted by key; None where there is none.

        `generations`: those whose segments count; None: all. `newest_first` is as the `merge` of
        ledgers has it.
        """
        allowed = None if generations is None else set(generations)
        paths = [p for p in self.tables if allowed is None or generation_of(p) in allowed]
        tables = [self.tables[path] for path in paths]
        return merge(tables, map(generation_of, paths), newest_first=newest_first)


def objects_below(store: Store, run_id: str, prefix: str = "") -> list[str]:
    """Return the paths of a run's objects that begin so, but for names that nobody writes here.

    A person, or an editor, may have left a file of any name in its folder.
    """
    return [path for path in store.list(f"{run_path(run_id)}/{prefix}") if is_path(path)]


def ledger_segments(store: Store, run_id: str, shard: int | None = None) -> list[str]:
    """Return the paths of a run's ledger segments, of all generations."""
    begin = "" if shard is None else f"{shard:05d}-"
    return objects_below(store, run_id, f"ledger/{begin}")


def write_segment(store: Store, table: pa.Table, path: str, *, is_signed: bool) -> bytes:
    """Return rows of a ledger as the file of a segment.

    `path` is relative to the store: a signature is for this place alone. `is_signed`: the run's
    process was given signing keys; SignatureError where this one was not.
    """
    return write_table(table, path, given_key(store) if is_signed else None)


def read_segments(store: Store, paths: Iterable[str], *, is_signed: bool | None = None) -> Segments:
    """Return the ledger rows in these segments, and which of them are damaged.

    `is_signed`: one that no key signed counts as damaged; None: where this process was given keys.

    Raises:
        NewerFormatError: A newer release wrote one.
        SignatureError: They are to be signed, and this process has no key.
    """
    if is_signed is None:
        is_signed = is_configured(store)
    elif is_signed:
        # Now, and not for each segment: without a key all would count as damaged, and be set aside.
        given_key(store)

    def read(path: str) -> pa.Table | str | None:
        where = f"{store.url}/{path}"
        try:
            content = store.read(path)
            # Until a run has ended, there is no summary whose signature binds its segments.
            if is_signed:
                check_own_signature(content, path, where, store)
            return read_ledger(content, where)
        except FileNotFoundError:
            # Since it was listed: a garbage collection, or a resume that set it aside.
            return None
        except NewerFormatError:
            raise
        except (RunFormatError, SignatureError) as error:
            return str(error)

    listed = list(paths)
    found = Segments()
    # A bucket is waited for; a disk answers at once, and each thread keeps memory of its own.
    at_once = min(READ_THREADS, os.cpu_count() or 1) if store.protocol == "file" else READ_THREADS
    with ThreadPoolExecutor(at_once) as threads:
        for path, content in zip(listed, threads.map(read, listed), strict=True):
            if isinstance(content, str):
                found.damaged[path] = content
            elif content is not None:
                found.tables[path] = content
    return found


def read_generation(store: Store, run_id: str, generation: int) -> Segments:
    """Return the segments that a generation has committed."""
    paths = [p for p in ledger_segments(store, run_id) if generation_of(p) == generation]
    return read_segments(store, paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What is committed of a shard, a row for each partition, sorted by key."""

    current: pa.Table | None
    """By the generation at work; None: nothing yet."""
    earlier: pa.Table | None
    """By earlier generations that count."""
    damaged: tuple[str, ...]
    """A sentence for each segment that could not be read, and was set aside."""


def read_committed(
    store: Store,
    run_id: str,
    shard: int,
    generation: int,
    compatible: Iterable[int],
    *,
    ids: Sequence[str] | None = None,
    key_types: Sequence[pa.DataType] = (),
    keeps_done: bool = False,
    is_signed: bool | None = None,
) -> Committed:
    """Return what is committed of a shard, for a process that works on it.

    A segment that cannot be read is moved to the folder `damaged` of the run: its partitions count
    as not done, and whoever reads the run next does not meet it again. `compatible` are earlier
    generations that count: with `ids`, their rows of these partitions, whose keys get the types
    `key_types`. `keeps_done`: of each partition just what the newest of them says; else one that is
    DONE comes before, since it is compared. `is_signed` is as `read_segments` has it.

    Raises:
        NewerFormatError: A newer release wrote a segment.
        SignatureError: It was given keys, and this process was not.
    """
    wanted = {generation, *compatible}
    paths = [p for p in ledger_segments(store, run_id, shard) if generation_of(p) in wanted]
    segments = read_segments(store, paths, is_signed=is_signed)
    sentences = []
    for path, reason in segments.damaged.items():
        aside = run_path(run_id, DAMAGED, path.rpartition("/")[2])
        store.move(path, aside)
        sentences.append(
            f"{reason.rstrip('.')}. It was set aside as {aside}, and its partitions run again."
        )
    current = segments.merge([generation])
    if ids is not None:
        # Of generations whose key columns had other widths, units or signs, only the keys of today
        # are sure to have one type.
        for path, table in segments.tables.items():
            segments.tables[path] = _with_key_types(
                table.filter(pc.is_in(table["partition_id"], pa.array(ids, pa.string()))), key_types
            )
    return Committed(
        current=current,
        earlier=segments.merge(wanted - {generation}, newest_first=keeps_done),
        damaged=tuple(sentences),
    )


def _with_key_types(ledger: pa.Table, key_types: Sequence[pa.DataType]) -> pa.Table:
    types = [*key_types, *ledger.schema.types[len(key_types) :]]
    return ledger.cast(pa.schema(list(zip(ledger.column_names, types, strict=True))))


def bundles_of(ledger: pa.Table) -> set[str]:
    """Return the bundles to which the rows of a ledger refer."""
    return set(pc.struct_field(pc.list_flatten(ledger["artifacts"]), "bundle").unique().to_pylist())


def files_there(store: Store, run_id: str, kind: RunKind, shard: int | None = None) -> set[str]:
    """Return the bundles and output files of a run, or of one shard, that the store has.

    Paths are relative to the run, as in a ledger.
    """
    begin = "" if shard is None else f"{shard:05d}-"
    root = run_path(run_id) + "/"
    return {
        path.removeprefix(root)
        for folder in (BUNDLES, KINDS[kind].outputs)
        for path in objects_below(store, run_id, f"{folder}/{begin}")
    }


def output_places(run_id: str, name: str) -> tuple[str, str]:
    """Return where a file of output rows lies: in its folder, or since a newer generation aside."""
    return run_path(run_id, name), run_path(run_id, REPLACED, name)


def read_output(store: Store, run_id: str, name: str) -> bytes:
    """Return a file of output rows, also one that a newer generation has replaced since.

    Raises:
        FileNotFoundError: It is gone.
    """
    place, aside = output_places(run_id, name)
    try:
        return store.read(place)
    except FileNotFoundError:
        return store.read(aside)


def output_rows(content: bytes, where: str, sha256: str | None, rows: int) -> pa.Table:
    """Return the output rows of a file, when they are those that the ledger speaks of.

    `sha256` is what the ledger says; None: it is of format version 1, which says nothing.

    Raises:
        IntegrityError: It is another file, or was changed.
    """
    remedy = (
        "`partwise runs verify --set-aside` takes it out of the run, and a resume makes its "
        "partitions again."
    )
    if sha256 is not None and sha256_of(content) != sha256:
        raise IntegrityError(f"{where} differs from its checksum in the ledger; {remedy}")
    try:
        table = read_table(content, where)
    except NewerFormatError:
        raise
    except RunFormatError as error:
        raise IntegrityError(f"{error} {remedy}") from error
    if table.num_rows != rows:
        raise IntegrityError(
            f"{where} has {table.num_rows:,} rows, and the ledger speaks of {rows:,}; {remedy}"
        )
    # Earlier releases wrote views as they were, and as ordered what partitions had one after the
    # other.
    return without_orders(without_views(table))


def are_there(ledger: pa.Table, files: set[str]) -> pa.Array:
    """Tell of each row of a ledger whether all that it refers to is among `files`."""
    outputs = ledger["rows_file"]
    there = pc.or_(pc.is_null(outputs), pc.is_in(outputs, pa.array(sorted(files), pa.string())))
    # As a rule none is, and no row need be looked at.
    lost = bundles_of(ledger) - files
    if not lost:
        return there.combine_chunks()
    lists = ledger["artifacts"].combine_chunks()
    in_lost = pc.is_in(pc.struct_field(lists.flatten(), "bundle"), pa.array(sorted(lost)))
    held = np.ones(ledger.num_rows, dtype=bool)
    held[lists.value_parent_indices().filter(in_lost).to_numpy()] = False
    return pc.and_(there.combine_chunks(), pa.array(held))
