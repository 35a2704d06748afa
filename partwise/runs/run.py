"""The handle of a run: its status, its partitions, their models, logs and artifacts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import (
    ArtifactNotFoundError,
    ColumnError,
    InputError,
    IntegrityError,
    ModelNotFoundError,
    PartitionNotFoundError,
    PartwiseError,
    RunFormatError,
    RunNotFoundError,
)
from partwise.formatting import nearest, some_of_those_there
from partwise.models.serdes import ModelSerde, resolve_serde, serde_by_name
from partwise.outcomes import RunStatus
from partwise.runs.artifact_files import WrittenFiles, write_artifact_files
from partwise.runs.bundle import (
    EVAL_RESULTS,
    LOG_FILENAME,
    REPORTED_FILE,
    StoredArtifact,
    artifact_from_row,
    content_file,
    decode,
    files_of_model,
    plain_content,
    read_model,
)
from partwise.runs.contents import (
    are_there,
    files_there,
    is_there,
    output_rows,
    read_claim,
    read_output,
)
from partwise.runs.documents import (
    REPORT_FILE,
    RUN_DOCUMENT,
    RUNS,
    ClaimDocument,
    GenerationDocument,
    RunDocument,
    SummaryDocument,
    check_run_id,
    is_run_id,
    run_path,
    sha256_of,
)
from partwise.runs.key_texts import named_partition
from partwise.runs.kinds import RunKind
from partwise.runs.ledger import (
    KEY_PREFIX,
    RUNNING_SINCE,
    group_failures,
    long_metrics,
    readable_ledger,
    segment_table,
    status_counts,
)
from partwise.runs.output_types import mixed_types
from partwise.runs.portfolio import Portfolio, read_portfolio
from partwise.runs.progress import AtWork, RunProgress, began_in, how_far, read_progress
from partwise.runs.trials import Trial, best_of, best_row, read_trials, trials_table
from partwise.runs.view import View, open_view
from partwise.store.lease import OwnerWatch, held_claim, request_cancel
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import Key, KeyColumn

if TYPE_CHECKING:
    import pandas as pd

NEVER = pa.nulls(0, pa.timestamp("us", tz="UTC"))
ONLY: Key = object()
"""Stands for the key of the only partition with a model."""


class Run:
    """A run in a store, as it stands at this moment.

    `Run.open` works from any process, also while the run is at work; then it shows the newest
    generation that is complete, or what has been committed of a run that never was. A handle reads
    the store when first asked and remembers; `refresh()` gives a new one. What it has seen stays
    readable for a day, also when the run goes on (`partwise runs gc --grace-hours`).

    Example:
        >>> run = Run.open("sales-2026-11", "/data/models")  # doctest: +SKIP
        >>> run.status  # doctest: +SKIP
        <RunStatus.SUCCESS: 'SUCCESS'>
        >>> run.model("store-7").predict(rows)  # doctest: +SKIP
    """

    def __init__(self, store: Store, document: RunDocument, view: View) -> None:
        self.store = store
        self.document = document
        self._view = view
        self.cause: BaseException | None = None
        """What the rank that is to blame raised, in the process whose gang has just failed."""

    @classmethod
    def open(
        cls, run_id: str, store: Store | str | Path = "artifacts", *, generation: int | None = None
    ) -> "Run":
        """Open a run by its ID.

        Args:
            run_id: The ID that it was started with.
            store: The artifact store: its URL, a folder, or a `Store`.
            generation: Show this one alone, complete or not; None: what readers see.

        Raises:
            RunIdError: The ID is not a safe name.
            RunNotFoundError: The store has no such run, and the message names some that it has; or
                the run was removed, or has no such generation.
            RunFormatError: A document is damaged, or of a newer format.
            StoreError: The store cannot be read.
        """
        run = cls.find(run_id, store)
        if run.is_removed:
            raise RunNotFoundError(f"The run {run_id!r} in {run.store.url} was removed.")
        if generation is None:
            return run
        return cls(run.store, run.document, run._view.alone(generation))

    @classmethod
    def find(cls, run_id: str, store: Store | str | Path = "artifacts") -> "Run":
        """Open a run as `open` does, also one that was removed: its ID keeps its identity.

        A new run, and one that was removed, is there from the moment on in which a process claims
        it. Until its rows are loaded its document is a `ClaimDocument`, and it has no generation.

        Raises:
            RunNotFoundError: The store never had such a run.
        """
        opened = Store.of(store)
        run = cls.find_if_there(run_id, opened)
        if run is not None:
            return run
        names = [name for name in opened.list_folder(RUNS) if is_run_id(name)]
        if run_id in names:
            raise RunNotFoundError(
                f"The run {run_id!r} in {opened.url} has no {RUN_DOCUMENT}: its rows could not be "
                "loaded, so that it was never begun, or the file was deleted."
            )
        near = nearest(run_id, names) or names[-3:]
        known = some_of_those_there([name for name in near if is_there(opened, name)])
        raise RunNotFoundError(f"There is no run {run_id!r} in {opened.url}{known}.")

    @classmethod
    def find_if_there(cls, run_id: str, store: Store) -> "Run | None":
        """Return what `find` returns; None: the store never had such a run.

        For who expects none, as whoever begins one: other runs are looked at only to name some.
        """
        check_run_id(run_id)
        try:
            content = store.read_document(run_path(run_id, RUN_DOCUMENT))
        except FileNotFoundError:
            claimed = read_claim(store, run_id)
            return None if claimed is None else cls._of(store, run_id, claimed, ClaimDocument)
        run = cls._of(store, run_id, content, RunDocument)
        claimed = read_claim(store, run_id) if run.is_removed else None
        return run if claimed is None else cls._of(store, run_id, claimed, ClaimDocument)

    @classmethod
    def _of(cls, store: Store, run_id: str, content: bytes, kind: type[RunDocument]) -> "Run":
        """Return the run of a document."""
        document = kind.from_bytes(content, f"{run_id}/{RUN_DOCUMENT}")
        if document.run_id != run_id:
            raise RunFormatError(
                f"{run_id}/{RUN_DOCUMENT} is that of the run {document.run_id!r}; the folder was "
                "renamed or copied, and a run has one identity."
            )
        view = open_view(store, document, sha256_of(content))
        return cls(store, document, view)

    def refresh(self) -> "Run":
        """Return a handle of the run as it stands now."""
        return Run.open(self.run_id, self.store)

    def __repr__(self) -> str:
        # Only what is read with the status: no look at a ledger, which may be large or damaged.
        end = self.shown or self.summary
        counts = {} if end is None else end.counts
        texts = [f"{count:,} {status}" for status, count in sorted(counts.items())]
        parts = (repr(self.run_id), self.kind, self.status.value, *texts, repr(self.path))
        return f"Run({', '.join(parts)})"

    def _repr_html_(self) -> str | None:
        """Return what notebooks show; None, so that they show the repr, where it cannot be read."""
        from partwise.runs.html import run_html

        try:
            return run_html(self)
        except PartwiseError:
            return None

    @property
    def run_id(self) -> str:
        """The run's ID."""
        return self.document.run_id

    @property
    def kind(self) -> RunKind:
        """What the run does, as `KINDS` lists it."""
        return self.document.kind

    @property
    def key_columns(self) -> tuple[KeyColumn, ...]:
        """The key columns and the classes of their values."""
        return self.document.keys

    @property
    def path(self) -> str:
        """Where the run lies."""
        return f"{self.store.url.rstrip('/')}/{run_path(self.run_id)}"

    def report(self) -> str:
        """Return where the report of the run lies, a file of HTML.

        Raises:
            ArtifactNotFoundError: There is none: the run has not ended, or the file was deleted.
        """
        if not self.store.exists(run_path(self.run_id, REPORT_FILE)):
            raise ArtifactNotFoundError(
                f"The run {self.run_id!r} ({self.status.value}) has no {REPORT_FILE}: "
                "write_report(run) writes that of a run that has ended."
            )
        return f"{self.path}/{REPORT_FILE}"

    @property
    def generation(self) -> int:
        """The newest generation, or the one that was asked for; 0: none was begun."""
        return self._view.newest

    @property
    def oldest_generation(self) -> int:
        """The first generation that counts: 1, or the first one since the run was removed."""
        return max(self._view.removed, 0) + 1

    @property
    def is_removed(self) -> bool:
        """Whether the run was removed, and not begun again since."""
        return self._view.is_removed

    @property
    def summary(self) -> SummaryDocument | None:
        """How the newest generation ended; None while it has not."""
        return self._view.summary(self.generation)

    def summary_of(self, generation: int) -> SummaryDocument | None:
        """Return how a generation ended; None while it has not.

        Raises:
            RunFormatError: The document is damaged, or of a newer format.
            IntegrityError: It is of another run or generation.
        """
        return self._view.summary(generation)

    @property
    def shown(self) -> SummaryDocument | None:
        """How the complete generation ended that readers see; None: none was complete yet."""
        return self._view.shown

    def complete_generations(self) -> list[SummaryDocument]:
        """Return how the complete generations ended, the oldest first."""
        return self._view.complete()

    @property
    def newest(self) -> "Run":
        """A handle that shows the newest generation alone, complete or not.

        It says why a resume failed whose partitions readers do not see.
        """
        # As a rule it is what readers see: a ledger, which may be large, is not read twice then.
        shown = self.shown
        return self if shown and shown.generation == self.generation else self._newest_alone

    @cached_property
    def _newest_alone(self) -> "Run":
        return Run(self.store, self.document, self._view.alone(self.generation))

    @cached_property
    def at_work(self) -> AtWork | None:
        """How far the newest generation is; None where it has ended, or none was begun."""
        return how_far(self)

    def progress(self) -> RunProgress:
        """Return how far the newest generation is by now, from any process, also a resume's.

        It costs a few small files at each call, however many partitions there are.

        Raises:
            RunNotFoundError: The run is not there any more.

        Example:
            >>> Run.open("nightly").progress().counts  # doctest: +SKIP
            {'PENDING': 90, 'RUNNING': 4, 'DONE': 6}
        """
        # First, so that of a process that ends in between its end is seen.
        has_process = held_claim(self.store, run_path(self.run_id)) > 0
        return read_progress(self.refresh(), has_process=has_process)

    @property
    def status(self) -> RunStatus:
        """The run's status; IN_PROGRESS also when its process died and nobody resumed it yet."""
        return RunStatus.IN_PROGRESS if self.summary is None else self.summary.status

    def wait(self, timeout_s: float | None = None) -> RunStatus:
        """Wait until no process works on the run, or for so long; return its status then.

        From any process. The status is IN_PROGRESS where the time was over first, and where the
        run's process has died: a resume goes on with it.

        Raises:
            StoreError: The store cannot be read.
        """
        for _ in OwnerWatch(self.store, run_path(self.run_id)).looks(timeout_s):
            pass
        return self.refresh().status

    def cancel(self) -> bool:
        """Ask the process that works on the run to end it, as Ctrl-C does; from any process.

        What is committed is kept. It learns of it within a few seconds; `wait` says when it ended.

        Returns:
            Whether there is such a process, as far as this machine can know.

        Raises:
            StoreError: The store cannot be read or written.
        """
        return request_cancel(self.store, run_path(self.run_id))

    @property
    def kept(self) -> int:
        """How many partitions the last resume found done and kept."""
        return 0 if self.summary is None else self.summary.kept

    @property
    def executed(self) -> int:
        """How many partitions the newest generation began to work on, so far or in all."""
        if self.summary is not None and self.summary.executed is not None:
            return self.summary.executed
        return began_in(self.newest.ledger, self.generation)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Partitions by status, as readers see them."""
        if self.shown is not None:
            return dict(self.shown.counts)
        return status_counts(self.ledger)

    def read_generation_document(self, generation: int | None = None) -> GenerationDocument:
        """Return what is written down of a generation; None: of the newest.

        Raises:
            RunFormatError: It is damaged or missing.
        """
        return self._view.document(generation or self.generation)

    def is_made_here(self, generation: int | None = None) -> bool:
        """Whether a key that this process has signed the call of a generation; None: the newest.

        That is a key that it was given, or this user's own on this machine. A run that an earlier
        release wrote has no signature.

        Raises:
            RunFormatError: The document is damaged or missing.
        """
        return self._view.is_made_here(generation or self.generation)

    @cached_property
    def ledger(self) -> pa.Table:
        """The ledger as it is stored: one row per partition, `key.<name>` columns first, by key.

        Of a run at work it also has those that are PENDING or RUNNING, with `running_since`.

        Raises:
            IntegrityError: The ledger of a complete generation is gone or was changed.
        """
        table = self._view.ledger()
        if table is not None:
            return table
        none = self.no_ledger()
        # While its rows are loaded a run has the columns that it has while it works.
        return none.append_column(RUNNING_SINCE, NEVER) if self.summary is None else none

    def no_ledger(self) -> pa.Table:
        """Return a ledger without rows."""
        return segment_table(
            pa.table({column.name: pa.nulls(0) for column in self.key_columns}), []
        )

    def is_whole(self) -> bool:
        """Whether the ledger of a complete run, and every file that it refers to, is there."""
        try:
            ledger = self.ledger
        except (IntegrityError, RunFormatError):
            return False
        files = files_there(self.store, self.run_id, self.kind)
        return bool(pc.all(are_there(ledger, files), min_count=0).as_py())

    @cached_property
    def partitions(self) -> pa.Table:
        """One row per partition: its key, partition_id, status, what it took, errors, metrics.

        Each metric is a column. Where there are more than 1,000 names of metrics, all that a
        partition has are one value of the column `metrics`, a map; see also `metrics`.
        """
        return readable_ledger(self.ledger)

    def to_pandas(self) -> "pd.DataFrame":
        """Return `partitions` as a pandas DataFrame: a row per partition, a column per metric."""
        frame: pd.DataFrame = self.partitions.to_pandas()
        return frame

    @cached_property
    def metrics(self) -> pa.Table:
        """One row per value of a metric: partition_id, metric, value."""
        return long_metrics(self.ledger)

    @cached_property
    def eval_results(self) -> pa.Table:
        """Of one boosted model, a row per round: `round`, and <eval set>_<metric> of each eval set.

        All rounds that were trained, those behind the best too. Empty where there is none.
        """
        if self.kind != "train-distributed" or REPORTED_FILE not in self.artifacts(0):
            return pa.table({"round": pa.array([], pa.int64())})
        return pa.table(self.artifact(0, REPORTED_FILE).get(EVAL_RESULTS, {"round": []}))

    @cached_property
    def trials(self) -> pa.Table:
        """Of a study, one row per trial: number, status, value, steps, seconds, settings."""
        return trials_table(read_trials(self.ledger))

    @cached_property
    def best(self) -> Trial | None:
        """Of a study, the trial with the best value; None: none has come to one."""
        return best_of(read_trials(self.ledger))

    def partition_id(self, key: Key) -> str:
        """Return the path-safe name of a key.

        `key` may also be the key as one text, as `context.key_text` has it. Where the run's key is
        a single text, that is taken as it stands.

        Raises:
            KeyClassError: The key's values are of another class than the run's keys.
        """
        return named_partition(key, self.key_columns)

    def partition(self, key: Key) -> dict[str, Any]:
        """Return the row of `partitions` of one key, which may be a text: see `partition_id`.

        Raises:
            PartitionNotFoundError: The run has no partition of this key.

        Example:
            >>> Run.open("nightly").partition("North")["status"]  # doctest: +SKIP
            'DONE'
        """
        place = self._place(self.partition_id(key), repr(key))
        row: dict[str, Any] = self.partitions.slice(place, 1).to_pylist()[0]
        return row

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.ledger["partition_id"].to_pylist())}

    def _place(self, name: str, shown: str) -> int:
        place = self._places.get(name)
        if place is None:
            unfinished = " yet" if self.status is RunStatus.IN_PROGRESS else ""
            raise PartitionNotFoundError(
                f"The run {self.run_id!r} has no partition {shown}{unfinished}."
            )
        return place

    def _row(self, name: str, shown: str) -> dict[str, Any]:
        row: dict[str, Any] = self.ledger.slice(self._place(name, shown), 1).to_pylist()[0]
        return row

    def stored_artifacts(self, name: str) -> list[StoredArtifact]:
        """Return what the ledger says of the artifacts of a partition, given by partition_id.

        Raises:
            PartitionNotFoundError: The run has no such partition.
        """
        return [artifact_from_row(row) for row in self._row(name, name)["artifacts"]]

    def artifacts(self, key: Key) -> list[str]:
        """Return the names of a partition's artifacts: its model, its log, what it uploaded.

        Raises:
            PartitionNotFoundError: The run has no partition of this key.
        """
        row = self._row(self.partition_id(key), repr(key))
        return [artifact["filename"] for artifact in row["artifacts"]]

    def artifact(self, key: Key, filename: str, read: Callable[[str], Any] | None = None) -> Any:
        """Return an artifact of a partition, as `context.download` does.

        It is what `read(path)` makes of it. Without `read`, .json names are parsed, .txt and
        similar come as text, and all others as bytes.

        Raises:
            PartitionNotFoundError: The run has no partition of this key.
            ArtifactNotFoundError: The partition has no such artifact.
            InputError: It is not what its name says, and there is no `read`.
            IntegrityError: The bytes differ from their checksum.
        """
        content = self.read_artifact(self.partition_id(key), filename, repr(key))
        if read is None:
            return plain_content(content, filename)
        with content_file(content, filename) as path:
            return read(path)

    def read_artifact(self, name: str, filename: str, shown: str = "") -> bytes:
        """Return an artifact's bytes: one ranged read, checked against its sha256.

        Args:
            name: The partition_id.
            filename: The artifact's name.
            shown: How messages name the partition; its partition_id when empty.

        Raises:
            ArtifactNotFoundError: The partition has no such artifact.
        """
        return self.read_artifact_of(self._row(name, shown or name), filename, shown)

    def read_artifact_of(self, row: Mapping[str, Any], filename: str, shown: str = "") -> bytes:
        """Return an artifact's bytes as `read_artifact` does, by a row of any generation's ledger.

        Raises:
            ArtifactNotFoundError: The partition has no such artifact.
        """
        shown = shown or row["partition_id"]
        artifacts = [artifact_from_row(artifact) for artifact in row["artifacts"]]
        for artifact in artifacts:
            if artifact.filename == filename:
                return self._read(artifact, shown)
        has = ", ".join(artifact.filename for artifact in artifacts) or "none"
        raise ArtifactNotFoundError(
            f"The partition {shown} of the run {self.run_id!r} has no artifact {filename!r}; "
            f"it has {has}."
        )

    def _read(self, artifact: StoredArtifact, shown: str) -> bytes:
        where = f"the partition {shown} of the run {self.run_id!r}"
        return decode(self.read_stored(artifact), artifact, where)

    def read_stored(self, first: StoredArtifact, last: StoredArtifact | None = None) -> bytes:
        """Return the stored bytes of an artifact, or from one of a bundle to another: one request.

        Raises:
            IntegrityError: The bundle is gone, or ends before.
        """
        size = (last or first).offset + (last or first).stored_bytes - first.offset
        path = run_path(self.run_id, first.bundle)
        try:
            return self.store.read_range(path, first.offset, size)
        except FileNotFoundError as error:
            raise self._view.lost(first.bundle, f"is gone with {first.filename!r}") from error

    def export(
        self,
        to: Store | str | Path,
        pattern: str = "*",
        keys: Iterable[Key] | None = None,
        *,
        overwrite: bool = False,
    ) -> WrittenFiles:
        """Write artifacts to a folder or bucket as `<key>/<file name>`, and return how many.

        A second call goes on where the first was cut off. A key that cannot be a folder's name has
        its partition_id for that.

        Args:
            to: Where to.
            pattern: Of the names of the artifacts, such as "*.png".
            keys: Of which partitions; None: of all.
            overwrite: Whether a file of another content is replaced.

        Raises:
            PartitionNotFoundError: The run has no partition of a key.
            InputError: A file of another content is there, no artifact is named so, or `keys` is
                a single one.
            IntegrityError: An artifact differs from its checksum.
            StoreError: The files cannot be written there.
        """
        names = None
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable | None):
            raise InputError(f"export takes several keys: for one write keys=[{keys!r}].")
        if keys is not None:
            names = [self._row(self.partition_id(key), repr(key))["partition_id"] for key in keys]
        return write_artifact_files(
            self.ledger,
            self.read_stored,
            Store.of(to),
            pattern=pattern,
            partition_ids=names,
            overwrite=overwrite,
        )

    def logs(self, key: Key) -> str:
        """Return what a partition wrote: print, logging, warnings, a crash; "" when nothing.

        Raises:
            PartitionNotFoundError: The run has no partition of this key.
        """
        if LOG_FILENAME not in self.artifacts(key):
            return ""
        return str(self.artifact(key, LOG_FILENAME))

    def model(self, key: Key = ONLY, serde: ModelSerde | str | None = None) -> Any:
        """Return the trained model of a partition.

        Args:
            key: The partition's key, of the class of the run's keys. Without one: the only model
                of the run, such as that of `train_distributed`, or the best of a study.
            serde: Reads the model where a native serde did not write it: a serde, or the name of a
                built-in one. What runs code when it is read, as "pickle", "pt2", "torchscript" and
                "neuron" do, is read only where it is named here.

        Raises:
            PartitionNotFoundError: The run has no partition of this key.
            InputError: No key was given, and the run has several models.
            ModelNotFoundError: The partition has no model: it was skipped, or failed.
            SerdeError: The model needs a serde that was not given.
            IntegrityError: The bytes differ from their checksum.
        """
        if key is ONLY:
            key = self.only_key()
        given = resolve_serde(serde)
        row = self._row(self.partition_id(key), repr(key))
        files = files_of_model([artifact_from_row(artifact) for artifact in row["artifacts"]])
        if files:
            reader = serde_by_name(files[0].serde, given)
            content, *others = (self._read(file, repr(key)) for file in files)
            beside = {file.filename: other for file, other in zip(files[1:], others, strict=True)}
            return read_model(reader, content, files[0].filename, beside)
        why = row["error_message"] or row["reason"] or "it wrote none"
        raise ModelNotFoundError(
            f"The partition {key!r} of the run {self.run_id!r} is {row['status']} and has no "
            f"model: {why}"
        )

    def only_key(self) -> Key:
        """Return the key of the only partition that has a model; of the first where none has.

        Of a study it is that of the best trial.

        Raises:
            InputError: Several have one.
            ModelNotFoundError: The run has no partition.
        """
        names = [f"{KEY_PREFIX}{column.name}" for column in self.key_columns]
        ledger = self.ledger if self.best is None else best_row(self.ledger)
        rows = ledger.select([*names, "artifacts"]).to_pylist()
        having = [row for row in rows if any(each["serde"] for each in row["artifacts"])]
        if len(having) > 1:
            raise InputError(
                f"The run {self.run_id!r} has {len(having):,} models: name the partition whose "
                "model it is to be, by its key."
            )
        if not rows:
            raise ModelNotFoundError(
                f"The run {self.run_id!r} ({self.status.value}) has no model yet."
            )
        values = tuple((having or rows)[0][name] for name in names)
        return values[0] if len(values) == 1 else values

    @cached_property
    def portfolio(self) -> Portfolio:
        """The settings that a run of find_portfolio has picked.

        Raises:
            InputError: It is not such a run, or is not complete.
        """
        return read_portfolio(self.store, self.run_id)

    def predictions(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows that an inference or map run produced, partition by partition.

        Args:
            columns: Those to read; None: all. Where a partition lacks one, it is null.

        Raises:
            ColumnError: No partition has one of `columns`, or a column is of types in several
                partitions that do not go together.
        """
        parts = list(self.iter_predictions(columns))
        if not parts:
            return pa.table({})
        try:
            table = pa.concat_tables(parts, promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            files = sorted(set(self.ledger["rows_file"].drop_null().to_pylist()))
            schemas = {name: part.schema for name, part in zip(files, parts, strict=True)}
            raise mixed_types(self.run_id, self.ledger, schemas, error) from error
        known = set(table.column_names)
        missing = [name for name in columns or () if name not in known]
        if missing:
            raise ColumnError(
                f"No partition of the run {self.run_id!r} returned columns {missing}."
            )
        return table

    def iter_predictions(
        self, columns: Sequence[str] | None = None, *, partition_id: str | None = None
    ) -> Iterator[pa.Table]:
        """Yield the produced rows one file at a time, for runs larger than memory.

        Only the rows of a partition's own ledger row are given, also while the run is at work.

        Args:
            columns: Those to read, where a file has them; None: all.
            partition_id: Of the only partition whose rows are wanted; None: all of them.
        """
        table = self.ledger.filter(pc.is_valid(self.ledger["rows_file"]))
        if partition_id is not None:
            table = table.filter(pc.equal(table["partition_id"], partition_id))
        places = ["rows_file", "rows_offset", "rows_count", "rows_in_file"]
        chosen = table.select(places).to_pandas().sort_values(["rows_file", "rows_offset"])
        names, sums = (table[name].to_pylist() for name in ("rows_file", "rows_sha256"))
        checksums = dict(zip(names, sums, strict=True))
        for path, group in chosen.groupby("rows_file", sort=True):
            try:
                # Also one that a newer generation has replaced since.
                content = read_output(self.store, self.run_id, str(path))
            except FileNotFoundError as error:
                raise self._view.lost(str(path), "is gone") from error
            expected = checksums[str(path)], int(group["rows_in_file"].iloc[0])
            rows = output_rows(content, f"{self.run_id}/{path}", *expected)
            if int(group["rows_count"].sum()) != rows.num_rows:
                spans = [
                    np.arange(offset, offset + count)
                    for offset, count in zip(group["rows_offset"], group["rows_count"], strict=True)
                ]
                rows = rows.take(pa.array(np.concatenate(spans)))
            rows = rows.replace_schema_metadata(None)
            if columns is not None:
                # Last: either would take the rows of a table in which no column is left.
                rows = rows.select([name for name in columns if name in rows.column_names])
            yield rows

    def failures(self) -> pa.Table:
        """Return failures grouped by fingerprint: type, message, count and sample keys, most first.

        Those of the newest generation, also where that was stopped and readers see another.

        Columns: error_fingerprint, error_type, error_message, count, sample (partition_ids).
        """
        return group_failures(self.newest.ledger)
