"""What a child process does with one partition: train or map; `infer_work` has inference.

A work value is built by the driver, travels as cloudpickle bytes that only child processes open,
and is called once per partition.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import in_row_order, returned_table
from partwise.engine.failures import printable
from partwise.engine.outcome import Produced
from partwise.engine.written_models import ONLY_PLAIN, write_model
from partwise.errors import (
    ColumnError,
    SerdeError,
    UnkeptModelError,
)
from partwise.formatting import TOO_LARGE, counted
from partwise.models.serdes import ModelSerde, serde_by_name, serde_for
from partwise.outcomes import PartitionStatus, Result, Skip
from partwise.runs.bundle import (
    CATEGORIES_FILENAME,
    SKETCH_FILENAME,
    StoredArtifact,
    content_file,
    local_content,
    read_model,
)
from partwise.tables.calendar import with_zones
from partwise.tables.categories import categories_of_rows
from partwise.tables.classes import with_classes
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.parquet_types import storable
from partwise.tables.roles import marked_labels
from partwise.tables.sketches import Sketch, decode, encode, make_sketch

logger = logging.getLogger(__name__)

Function = Callable[[DataConnector, PartitionContext], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An artifact whose stored bytes begin at an offset of a local file."""

    path: str
    offset: int
    artifact: StoredArtifact

    def content(self) -> bytes:
        """Return its content.

        Raises:
            IntegrityError: It is not what was committed.
        """
        return local_content(self.path, self.offset, self.artifact)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A trained model of a partition, as a child finds it."""

    level: int
    """Its place among the sets of models that were given."""
    run_id: str
    owner: str
    """The partition_id that it has in its run."""
    file: StoredFile
    weights: StoredFile | None = None
    """Of an ONNX file with large weights, which are kept outside it."""
    categories: StoredFile | None = None
    """Those of the rows trained on; None: these had no dictionary columns."""
    sketch: StoredFile | None = None
    """That of the rows trained on; None: none was made."""
    saw_rows: bool = False
    """Whether it was trained on the very rows of the partition, as far as that is known."""
    value_then: float | None = None
    """What an evaluation compares with: the metric at promotion, or in training; None: unknown."""
    rows_then: int | None = None
    """Rows on which that was measured."""

    @property
    def artifact(self) -> StoredArtifact:
        """The model as its run has it."""
        return self.file.artifact

    def read(self, serde: ModelSerde) -> Any:
        """Return the model."""
        return read_model(serde, self.file.content(), self.artifact.filename, self._beside())

    def as_file(self) -> AbstractContextManager[str]:
        """Give the path of the model's file, with its external data in the same folder."""
        return content_file(self.file.content(), self.artifact.filename, self._beside())

    def _beside(self) -> dict[str, bytes]:
        if self.weights is None:
            return {}
        return {self.weights.artifact.filename: self.weights.content()}

    def files(self) -> dict[str, bytes]:
        """Return what has to go with another form of the model: the categories, if it has any."""
        return {} if self.categories is None else {CATEGORIES_FILENAME: self.categories.content()}

    def trained_categories(self) -> pa.Table | None:
        """Return the categories, and classes, that the model was trained with."""
        files = self.files()
        if not files:
            return None
        return pa.ipc.open_stream(files[CATEGORIES_FILENAME]).read_all()

    def trained_sketch(self) -> Sketch | None:
        """Return what the rows that the model was trained on were like; None: it is not known.

        Raises:
            IntegrityError: It is not what was committed.
            RunFormatError: A newer partwise wrote it.
        """
        return None if self.sketch is None else decode(self.sketch.content())


class Work(Protocol):
    """What is done with a partition."""

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,
    ) -> Produced:
        """Work on one partition; files that are to be kept are written to `directory`.

        `models` are those that the partition has, by their levels.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWork:
    """Call the user's function or trainer, and write the model that it returns."""

    function: Function
    serde: ModelSerde | None
    """None: the native serde of the model's type."""
    sketches: bool = False
    """Whether the rows are sketched."""

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],  # noqa: ARG002 (the protocol)
        directory: str,
    ) -> Produced:
        """Train one partition.

        Raises:
            UnkeptModelError: See `produce_model`.
        """
        outcome = self.function(data, context)
        produced = produce_model(outcome, self.serde, directory, has_made=context.has_made)
        if produced.model is None:
            return produced
        rows = data.to_arrow()
        schema = rows.schema
        # A trainer whose label has classes says which.
        named = getattr(self.function, "label_classes", None)
        classes = None if named is None else named(schema)
        # And one that makes features of times, which clocks they show.
        asked = getattr(self.function, "calendar_zones", None)
        zones = {} if asked is None else asked(schema)
        files = _categories_file(data, context.key_columns, classes, zones)
        if self.sketches:
            # Of a function only a dataset says which column is the label.
            label = getattr(self.function, "label", "") or "".join(marked_labels(schema)[:1])
            files[SKETCH_FILENAME] = encode(make_sketch(rows, context.key_columns, label))
        return replace(produced, files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapWork:
    """Call the user's function, and keep the rows that it returns, if any."""

    function: Function
    key_columns: tuple[str, ...]

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],  # noqa: ARG002 (the protocol)
        directory: str,  # noqa: ARG002 (the protocol)
    ) -> Produced:
        """Map one partition."""
        outcome = self.function(data, context)
        if outcome is None:
            return Produced(status=PartitionStatus.DONE)
        return produce_rows(outcome, data, self.key_columns, None, "value")


def produce_model(
    outcome: Any, serde: ModelSerde | None, directory: str, *, has_made: bool = False
) -> Produced:
    """Write the model that a training function returned.

    `outcome` is a model; a `Result` with one; a `Skip`; None, which is a skip unless the function
    `has_made` something else: files that it uploaded. `serde` None: the native one of the model's
    type.

    Raises:
        UnkeptModelError: The model's type has no native serde, and none was given; or the serde
            cannot write it.
    """
    if isinstance(outcome, Skip):
        return Produced(status=PartitionStatus.SKIPPED, reason=outcome.reason)
    result = outcome if isinstance(outcome, Result) else Result(outcome)
    metrics = check_metrics(result.metrics)
    if result.model is None and has_made:
        return Produced(status=PartitionStatus.DONE, metrics=metrics)
    if result.model is None:
        reason = "the function returned None instead of a model"
        return Produced(status=PartitionStatus.SKIPPED, reason=reason, metrics=metrics)
    try:
        written = write_model(result.model, serde or serde_for(result.model), directory)
    except SerdeError as error:
        raise UnkeptModelError(str(error)) from error
    if written.not_kept:
        logger.warning("Of the model is lost: %s. %s", written.not_kept, ONLY_PLAIN)
    return Produced(
        status=PartitionStatus.DONE,
        metrics=metrics,
        model=written,
        # As a run that uses the model will find it: by the name in the ledger.
        reader=serde_by_name(written.serde, serde),
        candidate=printable(result.candidate),
    )


def _categories_file(
    data: DataConnector,
    key_columns: tuple[str, ...],
    classes: tuple[str, pa.Array] | None,
    zones: Mapping[str, str],
) -> dict[str, bytes]:
    """Return the categories of rows as an artifact, for those that the model meets later.

    A key has one category, in training and ever after.
    """
    categories = categories_of_rows(data.to_arrow(), key_columns)
    if classes is not None:
        categories = with_classes(categories, *classes)
    if zones:
        categories = with_zones(categories, zones)
    if categories is None:
        return {}
    return {CATEGORIES_FILENAME: table_bytes(categories)}


def check_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as floats.

    Raises:
        TypeError: A value is not a number that a double holds, or a name is not a string.
    """
    checked: dict[str, float] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise TypeError(f"The metric name {name!r} is not a string.")
        # Of texts float() would read some, and not others.
        if isinstance(value, str | bytes | bytearray):
            raise TypeError(f"The metric {name!r} is {value!r:.80}, a text and not a number.")
        try:
            checked[printable(name)] = float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"The metric {name!r} is {value!r}, which is not a number.") from error
        except OverflowError as error:
            raise TypeError(f"The metric {name!r} is {TOO_LARGE}") from error
    return checked


def produce_rows(
    outcome: Any,
    data: DataConnector,
    key_columns: Sequence[str],
    keep_columns: Sequence[str] | None,
    column: str,
) -> Produced:
    """Turn what a predict or map function returned into rows with the key columns first.

    Args:
        outcome: What `returned_table` takes; a `Result` of that; a `Skip`; None.
        data: The partition; its first row gives the key.
        key_columns: Names of the key columns.
        keep_columns: Columns of `data` to keep beside the output; needs one output row per row.
            None: the output rows are not those of `data`.
        column: Name for an array's column.

    Raises:
        TypeError: `outcome` is none of these.
        ColumnError: `keep_columns` with another number of rows, or a returned column that is named
            like a key column or one to keep, and is another, or of a type that Parquet lacks; or
            it cannot be said which row of the output is which.
    """
    if isinstance(outcome, Skip):
        return Produced(status=PartitionStatus.SKIPPED, reason=outcome.reason)
    metrics: dict[str, float] = {}
    if isinstance(outcome, Result):
        metrics = check_metrics(outcome.metrics)
        outcome = outcome.model
        if outcome is None:
            return Produced(status=PartitionStatus.DONE, metrics=metrics)
    if outcome is None:
        reason = "the function returned None instead of rows"
        return Produced(status=PartitionStatus.SKIPPED, reason=reason)
    source = data.to_arrow()
    # Rows that a map function makes of others have an order of their own.
    if keep_columns is not None or isinstance(outcome, Mapping):
        outcome = in_row_order(outcome, source, is_joined=bool(keep_columns))
    rows = returned_table(outcome, column)
    keep_columns = keep_columns or ()
    if keep_columns and rows.num_rows != source.num_rows:
        raise ColumnError(
            f"keep_columns={list(keep_columns)} needs one output row per row of the partition; "
            f"the function returned {counted(rows.num_rows, 'row')} for {source.num_rows:,}."
        )
    columns: dict[str, Any] = {}
    for name in key_columns:
        value = source.column(name)[0]
        if isinstance(value, pa.DictionaryScalar):
            value = value.value
        columns[name] = pa.repeat(value, rows.num_rows)
        _check_key(name, value, rows)
    for name in keep_columns:
        if name not in key_columns and name in rows.column_names:
            raise ColumnError(
                f"The function returned a column {name!r}, which is also one of keep_columns; "
                "leave it out of one of the two, or give the function's another name."
            )
        columns.setdefault(name, source.column(name))
    for name in rows.column_names:
        columns.setdefault(name, rows.column(name))
    table = storable(pa.table(columns))
    return Produced(status=PartitionStatus.DONE, metrics=metrics, rows=table)


def _check_key(name: str, key: pa.Scalar, rows: pa.Table) -> None:
    """Allow a function to return the key column as well, but nothing else under its name."""
    if name not in rows.column_names or rows.num_rows == 0:
        return
    value = key.as_py()
    returned = rows.column(name).unique().to_pylist()
    first = returned[0]
    # A NaN differs from itself, and pandas takes it for a null.
    is_same = first == value or (value != value and (first is None or first != first))
    if len(returned) > 1 or not is_same:
        raise ColumnError(
            f"The function returned a column {name!r} that differs from the partition's key of "
            "that name; give it another name."
        )
