"""Beginning work on a run: who may, under which identity, and what earlier work still counts."""

import contextlib
import functools
import os
import platform
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from partwise.choices import GOES_ON, OnExisting
from partwise.errors import (
    InputError,
    RunBusyError,
    RunExistsError,
    StoreError,
)
from partwise.fingerprints.changes import describe_changes
from partwise.formatting import some_of
from partwise.outcomes import PartitionStatus
from partwise.renamed import RENAMED
from partwise.runs.documents import (
    RUN_DOCUMENT,
    ClaimDocument,
    GenerationDocument,
    RunDocument,
    claim_file,
    generation_file,
    keys_file,
    ledger_file,
    run_path,
    sha256_of,
)
from partwise.runs.kinds import KINDS, RunKind
from partwise.runs.run import Run
from partwise.runs.steps import Step, announce, finish_earlier_steps
from partwise.runs.unfinished import Standing, write_keys
from partwise.store.lease import Lease
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import HASH_VERSION, KeyColumn, check_key_classes

_SHOWN = 5
ENVIRONMENT_PACKAGES = ("partwise", "numpy", "pyarrow", "lightgbm", "xgboost", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a run is, and stays: two calls with one run ID must agree on it."""

    run_id: str
    kind: RunKind
    key_columns: tuple[KeyColumn, ...]
    models: tuple[str, ...] = ()
    """Those that it uses, as `RunDocument.models` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a call is about to do under a run ID."""

    source_fingerprint: str
    inputs_fingerprint: str | None
    """Of all that partitions are made of: source, params, null policy, trained models; None: it
    cannot be determined."""
    code_fingerprint: str | None
    code_unknown: tuple[str, ...] = ()
    """What kept the code from having a fingerprint."""
    code_parts: Mapping[str, str] = field(default_factory=dict)
    """What `code_fingerprint` is made of, so that a message can name what changed."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that come before those installed here."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files that the call names, by new names relative to the run, which has them before the
    generation begins."""
    call: dict[str, JsonValue] | None = None
    call_obstacle: str | None = None
    call_known: dict[str, JsonValue] | None = None
    """What is known of a call that cannot be repeated."""


@dataclass(slots=True)
class Claim:
    """The right to work on a run; released when its block ends."""

    store: Store
    identity: Identity
    on_existing: OnExisting
    flow_run_id: str | None = None
    """Of the Prefect flow run at work. It resumes what it began itself, under any `on_existing`."""
    on_cancel: Callable[[], None] | None = None
    """Called when somebody asks for the end of the work, by the store."""
    existing: Run | None = field(init=False, default=None)
    generation: int = field(init=False, default=0)
    compatible: tuple[int, ...] = field(init=False, default=())
    run_sha256: str = field(init=False, default="")
    generation_sha256: str = field(init=False, default="")
    """Of the documents as they were when the generation began."""
    _lease: Lease | None = field(init=False, default=None)
    _claimed: ClaimDocument | None = field(init=False, default=None)
    _tidied: contextlib.ExitStack = field(init=False, default_factory=contextlib.ExitStack)

    def __enter__(self) -> "Claim":
        """Take the run's lease; from here on readers see a new one, too.

        Raises:
            RunExistsError: It does, and `on_existing` is "error".
            InputError: It does, and is another run than this call describes.
            RunBusyError: Somebody works on it.
        """
        self.existing = self._find()
        self._tidied.enter_context(self.store.tidied())
        try:
            lease = self._acquire()
            # Until the lease was ours, its owner may have gone on with the run, or begun it.
            if self.existing is not None:
                self.existing = self._look()
            elif self.store.exists(run_path(self.identity.run_id, RUN_DOCUMENT)):
                self.existing = self._find()
            if self.existing is None or self.existing.is_removed:
                self._show(lease)
        except BaseException:
            self.__exit__()  # nobody else does: the block has not begun
            raise
        return self

    def _acquire(self) -> Lease:
        run_id = self.identity.run_id
        try:
            self._lease = Lease.acquire(self.store, run_path(run_id), on_cancel=self.on_cancel)
        except RunBusyError as error:
            # One that was removed is perhaps being removed just now, and not begun.
            is_removed = self.existing is not None and self.existing.is_removed
            if self.on_existing != "error" or is_removed:
                raise
            raise RunExistsError(
                f"The run {run_id!r} was claimed by another process a moment ago; wait for it, or "
                "pass another run_id."
            ) from error
        # Before anything is read of the run: afterwards nobody deletes or moves what is found.
        finish_earlier_steps(self._lease, self.store, run_id)
        return self._lease

    def _show(self, lease: Lease) -> None:
        """Have readers see the run while its rows are loaded.

        This counts as long as the lease does. Of rows that cannot be loaded, and of a process that
        is killed meanwhile, no run is left.
        """
        identity = self.identity
        self._claimed = ClaimDocument(
            run_id=identity.run_id,
            kind=identity.kind,
            keys=identity.key_columns,
            hash_version=HASH_VERSION,
            models=identity.models,
            created_at=datetime.now(UTC),
            writer=secrets.token_hex(8),
        )
        path = run_path(identity.run_id, claim_file(lease.number))
        self.store.create(path, self._claimed.to_bytes(path, self.store))

    def __exit__(self, *exception: object) -> None:
        with self._tidied, contextlib.suppress(StoreError):
            lease, self._lease = self._lease, None
            if lease is None:
                return
            # What came of the run is decided; the next process finds this one gone.
            lease.release(withdraw=self.existing is None and not self.generation)

    def _find(self) -> Run | None:
        wanted = self.identity
        run = self._look()
        if run is None or isinstance(run.document, ClaimDocument):
            # Whoever loads its rows has the lease, and perhaps died: to acquire it finds out.
            return None
        if self._is_own(run) and self.on_existing not in GOES_ON:
            self.on_existing = "resume"
        if self.on_existing == "error":
            _refuse_to_begin(run)
        document = run.document
        names = [column.name for column in wanted.key_columns]
        # A run that was begun before its kind had a name of its own is gone on with.
        is_earlier = document.kind == KINDS[wanted.kind].earlier
        differs = {
            "kind": (document.kind, document.kind if is_earlier else wanted.kind),
            "partition_by": (document.partition_by, names),
            "models": (document.models, wanted.models),
            "hash version": (document.hash_version, HASH_VERSION),
        }
        for what, (theirs, ours) in differs.items():
            if theirs != ours:
                had = "was removed, and had the" if run.is_removed else "exists with"
                raise InputError(
                    f"The run {wanted.run_id!r} {had} {what} {theirs!r}, and this call has "
                    f"{ours!r}; a run ID has one identity: pass another run_id."
                )
        check_key_classes(run.key_columns, wanted.key_columns, f"the run {wanted.run_id!r}")
        return run

    def _look(self) -> Run | None:
        """Return the run as it stands; of one that was removed nothing counts any more."""
        run = Run.find_if_there(self.identity.run_id, self.store)
        if run is not None and run.is_removed:
            self.on_existing = "error"
        return run

    def _is_own(self, run: Run) -> bool:
        """Whether the flow run at work began the newest generation, and is begun once more."""
        if self.flow_run_id is None or run.generation == 0 or run.is_removed:
            return False
        return run.read_generation_document().flow_run_id == self.flow_run_id

    @property
    def next_generation(self) -> int:
        """The number of the generation that `begin` begins."""
        return (self.existing.generation if self.existing else 0) + 1

    @property
    def keeps_done(self) -> bool:
        """Whether all that is DONE is kept, whatever has changed since."""
        return self.on_existing == "resume-failed"

    def earlier_generations(self, intent: Intent) -> tuple[int, ...]:
        """Return the generations whose DONE partitions count: same code, not overwritten since."""
        run = self.existing
        if run is None or self.on_existing not in GOES_ON:
            return ()
        if intent.code_fingerprint is None and not self.keeps_done:
            return ()
        numbers = []
        for number in range(run.generation, 0, -1):
            document = run.read_generation_document(number)
            if self.keeps_done or document.code_fingerprint == intent.code_fingerprint:
                numbers.append(number)
            # This generation began with nothing, so none before it counts.
            if document.on_existing_artifacts != "resume":
                break
        return tuple(sorted(numbers))

    def _since_shown(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Return of generations that count those since the one whose ledger readers see.

        It has all that was kept until then. What did not end well in it may be DONE in older ones.
        """
        shown = None if self.existing is None else self.existing.shown
        names = [ledger_file(number) for number in numbers]
        if not self.keeps_done or shown is None or shown.ledger_file not in names:
            return numbers
        return numbers[names.index(shown.ledger_file) :]

    def resumable_generations(self, intent: Intent) -> tuple[int, ...]:
        """Return the generations of the same code and inputs: a gang resumes their checkpoints."""
        if self.existing is None or intent.inputs_fingerprint is None:
            return ()
        documents = map(self.existing.read_generation_document, self.earlier_generations(intent))
        same = intent.inputs_fingerprint
        return tuple(each.generation for each in documents if each.inputs_fingerprint == same)

    def is_settled(self, intent: Intent) -> bool:
        """Whether a resume has nothing to do: all is DONE and there, and nothing changed."""
        run = self.existing
        if run is None or run.summary is None or self.on_existing not in GOES_ON:
            return False
        # One that was stopped left readers an older generation, and has work to do.
        if run.shown is not run.summary:
            return False
        if set(run.counts) - {PartitionStatus.DONE.value}:
            return False
        inputs = run.read_generation_document().inputs_fingerprint
        return (
            inputs is not None
            and inputs == intent.inputs_fingerprint
            and run.generation in self.earlier_generations(intent)
            and run.is_whole()
            # Where a model was passed over, its partition is to ask for it again.
            and not (run.kind == "infer" and run.ledger["fingerprint"].null_count)
        )

    def why_nothing_counts(self, intent: Intent) -> str | None:
        """Return why a resume keeps nothing of the earlier generations; None where it may."""
        run = self.existing
        if run is None or run.generation == 0 or self.on_existing != "resume":
            return None
        units = KINDS[self.identity.kind].units
        if intent.code_fingerprint is None:
            what = "; ".join(intent.code_unknown[:3])
            return (
                f"all {units} run again, since it is unknown whether the code has "
                f"changed ({what}); pass version= and change it when the code changes."
            )
        if self.earlier_generations(intent):
            return None
        before = run.read_generation_document()
        if before.code_fingerprint is None:
            return f"all {units} run again, since it was unknown which code made them."
        if before.code_parts is None:
            return (
                f"all {units} run again, since an older release of partwise wrote the run, and "
                "its fingerprints of code are of another kind."
            )
        return f"all {units} run again: {self._changes(before.code_parts, intent)}."

    def kept_of_other_code(self, intent: Intent) -> str:
        """Return that partitions are kept which other code made, in a sentence; empty: none are."""
        run = self.existing
        if run is None or not self.keeps_done:
            return ""
        documents = map(run.read_generation_document, self.earlier_generations(intent))
        code = intent.code_fingerprint
        others = [each for each in documents if code is None or each.code_fingerprint != code]
        if not others:
            return ""
        why = "it is not known whether the code has changed"
        if code is not None and others[-1].code_parts is not None:
            why = self._changes(others[-1].code_parts, intent)
        units = KINDS[self.identity.kind].units
        return f"{units} that were DONE before are kept as they are, though {why}."

    def _changes(self, before: Mapping[str, str], intent: Intent) -> str:
        """Return what is different in the code, as a list in words."""
        changes = describe_changes(*map(self._by_names_of_today, (before, intent.code_parts)))
        return some_of(changes, _SHOWN)

    def _by_names_of_today(self, parts: Mapping[str, str]) -> dict[str, str]:
        now = RENAMED.get(KINDS[self.identity.kind].flow, {})
        names = {f"{old}=": f"{new}=" for old, new in now.items()}
        found: dict[str, str] = {}
        for name in sorted(parts):
            # Two arguments of a script are one now: a change of either counts.
            new = names.get(name, name)
            found[new] = found.get(new, "") + parts[name]
        return found

    def begin(
        self,
        *,
        n_shards: int,
        intent: Intent,
        partitions: int | None = None,
        keys: pa.Table | None = None,
        rows: np.ndarray | None = None,
    ) -> None:
        """Write down the run if it is new, and the generation that begins.

        `partitions` are those to work on, with these normalized `keys` and as many `rows`, for
        readers who ask how far it is.

        Raises:
            RunBusyError: Another process took the run over.
        """
        # Loading rows took its time; a process that was given up meanwhile must not begin.
        self.check()
        self.compatible = self._since_shown(self.earlier_generations(intent))
        self.generation = self.next_generation
        if self.existing is None:
            self._create(n_shards)
        run_id = self.identity.run_id
        # Before the document that names them: what a generation names is there when it begins.
        for name, content in intent.files.items():
            self.store.create(run_path(run_id, name), content)
        if keys is not None and self._lease is not None:
            path = run_path(run_id, keys_file(self.generation, self._lease.number))
            write_keys(self.store, path, keys, rows)
        self.run_sha256 = self._sha256_of(run_path(run_id, RUN_DOCUMENT))
        before = run_path(run_id, generation_file(self.generation - 1))
        has_before = self.generation > 1 and not (self.existing and self.existing.is_removed)
        document = GenerationDocument(
            generation=self.generation,
            run_sha256=self.run_sha256,
            before_sha256=self._sha256_of(before) if has_before else None,
            # As earlier releases read it; `compatible` and the remark of the summary say the rest.
            on_existing_artifacts=(
                "resume" if self.on_existing == "resume-failed" else self.on_existing
            ),
            partitions=partitions,
            source_fingerprint=intent.source_fingerprint,
            inputs_fingerprint=self._inputs_of(intent),
            code_fingerprint=intent.code_fingerprint,
            code_parts=dict(intent.code_parts) if intent.code_fingerprint else None,
            compatible=self.compatible,
            call=intent.call,
            call_obstacle=intent.call_obstacle,
            call_known=intent.call_known,
            environment={**describe_environment(), **intent.packages},
            started_at=datetime.now(UTC),
            owner=f"{socket.gethostname()}:{os.getpid()}",
            flow_run_id=self.flow_run_id,
        )
        path = run_path(run_id, generation_file(self.generation))
        # Created, not written: two processes never share a generation, so what they commit under
        # its number never mixes.
        content = document.to_bytes(path, self.store)
        self.generation_sha256 = sha256_of(content)
        try:
            self.store.create(path, content)
        except FileExistsError:
            raise RunBusyError(
                f"Generation {self.generation} of the run {run_id!r} was begun by "
                "another process a moment ago; wait for it, and resume the run."
            ) from None

    def _inputs_of(self, intent: Intent) -> str | None:
        """Return the fingerprint of what all partitions are made of; None: they differ in that.

        So a later resume compares each with what it was made of.
        """
        run, now = self.existing, intent.inputs_fingerprint
        if run is None or not self.keeps_done:
            return now
        documents = map(run.read_generation_document, self.compatible)
        return now if all(each.inputs_fingerprint == now for each in documents) else None

    def tell(self, standing: Callable[[], Standing]) -> None:
        """Have the lease say every few seconds where the generation stands."""
        if self._lease is not None:
            self._lease.tell(lambda: standing().model_dump(mode="json"))

    def _sha256_of(self, path: str) -> str:
        try:
            return sha256_of(self.store.read(path))
        except FileNotFoundError as error:
            raise StoreError(
                f"{path} is not in {self.store.url} any more: the run was deleted, or the store "
                "was moved away, in the middle of the work. Put it back and resume the run, or "
                "begin it again."
            ) from error

    def replace(self, outputs: Sequence[str]) -> None:
        """Set output files aside that this generation has replaced, unless the run is not ours.

        `outputs` are paths relative to the run.
        """
        step = Step(replace=tuple(outputs))
        if self._lease is not None:
            # Where another process took over, it does this, or keeps them.
            with contextlib.suppress(RunBusyError):
                announce(self._lease, self.store, self.identity.run_id, step)

    def _create(self, n_shards: int) -> None:
        run_id = self.identity.run_id
        claimed = self._claimed.model_dump() if self._claimed else {}
        document = RunDocument(**claimed | {"n_shards": n_shards})
        try:
            self.store.create(run_path(run_id, RUN_DOCUMENT), document.to_bytes())
        except FileExistsError:
            # Ours was given up a moment ago.
            raise RunBusyError(
                f"The run {run_id!r} was begun by another process a moment ago; wait for it, and "
                "resume the run."
            ) from None

    def check(self) -> None:
        """See that nobody took the run over; else RunBusyError: write nothing more."""
        if self._lease is not None:
            self._lease.check()


def refuse_existing(run_id: str, store: Store) -> None:
    """Refuse to begin a run that exists, as a claim does; nothing is claimed."""
    if (run := Run.find_if_there(run_id, store)) is not None:
        _refuse_to_begin(run)


def _refuse_to_begin(run: Run) -> None:
    # One without a generation was never begun: the claim finds out whether anybody is about to.
    if not run.is_removed and run.generation:
        raise RunExistsError(
            f"The run {run.run_id!r} exists in {run.store.url} ({run.status.value}); pass another "
            "run_id, or on_existing_artifacts='resume' or 'overwrite'."
        )


def describe_environment() -> dict[str, str]:
    """Return the versions that matter to whoever reads a run later."""
    return {"python": platform.python_version(), "platform": sys.platform, **_versions()}


@functools.cache
def _versions() -> dict[str, str]:
    # To look them up takes 15 ms, as long as all else that begins a run.
    versions = {}
    for package in ENVIRONMENT_PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
