"""What trainers of one boosted model on all ranks have in common: settings, checks and rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence  # noqa: TC003 (pydantic reads the annotations)
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import fsspec
import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002

from partwise.choices import Task  # noqa: TC001
from partwise.errors import ColumnError, InputError
from partwise.ranks.global_categories import global_categories
from partwise.ranks.global_sample import SAMPLE_ROWS
from partwise.runs.bundle import CATEGORIES_FILENAME, EVAL_RESULTS
from partwise.tables.calendar import in_zones, source_columns, with_zones
from partwise.tables.classes import with_classes
from partwise.tables.column_names import columns_there
from partwise.tables.column_types import is_number
from partwise.tables.features import FeatureColumns, choose_features, numbers
from partwise.tables.ipc_streams import table_bytes
from partwise.tables.roles import marked_labels
from partwise.tables.sorting import groupable
from partwise.trainers.ranks.table import RankTable
from partwise.trainers.ranks.xgboost_batches import LabelledBatches
from partwise.trainers.ready.boosting import BoostingSettings
from partwise.trainers.resolving import resolve_trainer

if TYPE_CHECKING:
    from partwise.ranks.context import RankContext
    from partwise.ranks.protocols import Share

TRAIN = "train"
"""The source that is trained on; all others are eval sets."""


class DistributedBoosting(BoostingSettings):
    """The settings and steps that LightGBM and XGBoost share, for one model of all ranks.

    The rows of the source "train" are trained on. Every other source is an eval set, by its name:
    the model is measured on it after each round.
    """

    weight: str = Field(
        default="",
        description="A column of numbers that says how much each row counts. Empty: all alike.",
    )
    group: str = Field(
        default="",
        description="For a ranking: the column whose equal neighbours are one query. Its values "
        "have to ascend.",
    )
    early_stopping_rounds: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="Stop when the eval set has not improved for so many rounds, and keep the best "
        "one.",
    )
    stopping_set: str = Field(
        default="",
        description="The eval set that early stopping looks at. Empty: the only one.",
    )
    objective_function: str = Field(
        default="",
        description="'package.module:function' of (raw predictions, labels, weights or None) that "
        "returns gradients and second derivatives, each row's from this row alone. Empty: the "
        "objective in the parameters.",
    )
    metric_function: str = Field(
        default="",
        description="'package.module:function' of (predictions, labels, weights or None) that "
        "returns a number, less being better. It is computed beside the metrics in the parameters.",
    )
    continue_from: str = Field(
        default="",
        description="Path or URL of a model file of the library, to which rounds are added.",
    )
    sample_rows: int = Field(
        default=SAMPLE_ROWS,
        ge=1000,
        description="From so many rows, the same ones for any number of workers, the bins of the "
        "features are found.",
    )

    RANKING: ClassVar[frozenset[str]]
    """The objectives that need groups."""

    @model_validator(mode="after")
    def _check_settings(self) -> DistributedBoosting:
        params = self._native_names(self.params)
        self._task(params)
        if self.objective_function and "objective" in params:
            raise ValueError("give objective_function, or objective in params, not both")
        ranks = params.get("objective", self.DEFAULT_OBJECTIVE) in self.RANKING
        if ranks != bool(self.group):
            raise ValueError(
                f"group goes with the objectives {', '.join(sorted(self.RANKING))}, which need it"
            )
        return self

    def _task(self, params: Mapping[str, Any]) -> Task:
        # Where it is missing, classes are counted when the rows are known.
        return super()._task({"num_class": len(self.classes), **params})

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, before any work; see `Trainer.check`."""
        self._check_label_column(schema, empty_columns)
        self._check_own_params()
        for what, name in (("weight", self.weight), ("group", self.group)):
            if name and name not in schema.names:
                raise ColumnError(
                    f"The {what} {name!r} is missing; {columns_there(schema.names, name)}"
                )
        if self.weight and not is_number(schema.field(self.weight).type):
            raise ColumnError(
                f"The weight {self.weight!r} is {schema.field(self.weight).type}, but numbers are "
                "needed."
            )
        names = self._choose_features(schema, key_columns or ()).names
        self._of_features(self._native_names(self.params), names)

    def reads(self, schema: pa.Schema) -> list[str] | None:
        """Return the columns that are looked at; None: all, as no features are named."""
        if not self.features:
            return None
        names = [*self.features, *self.calendar, self._label_of(schema), self.weight, self.group]
        return source_columns(filter(None, names), schema)

    def _choose_features(
        self, schema: pa.Schema, key_columns: Sequence[str] = ()
    ) -> FeatureColumns:
        return choose_features(
            schema,
            label=self._label_of(schema),
            features=self.features,
            categorical=self.categorical,
            # Another label would give this one away.
            left_out={*marked_labels(schema), *key_columns, self.weight, self.group},
            calendar=self.calendar,
        )

    def meetings(self) -> int:
        """Return how often ranks have to add up their sums, as far as the settings tell: at least.

        For each level of each tree, or each of its leaves, depending on the library.
        """
        params = self._native_names(self.params)
        is_multiclass = self._task(params) == "multiclass"
        trees = int(params.get("num_class", len(self.classes))) if is_multiclass else 1
        # Where nobody names the classes they are counted with the rows: there are two at least.
        return self.rounds * max(1, trees) * self._meetings_of_tree(params)

    @abstractmethod
    def _meetings_of_tree(self, params: Mapping[str, Any]) -> int:
        """Return how often ranks add up their sums for one tree, by the library's parameters."""

    def check_sources(self, sources: Sequence[str]) -> None:
        """Refuse early stopping where it is not clear which eval set it looks at."""
        self._eval_names(sources)

    def _eval_names(self, sources: Iterable[str]) -> list[str]:
        """Return the names of the eval sets, the one that early stopping looks at last."""
        names = [name for name in sources if name != TRAIN]
        if self.early_stopping_rounds is None:
            return names
        stopping = self.stopping_set or (names[0] if len(names) == 1 else "")
        if stopping not in names:
            raise InputError(
                "Early stopping needs an eval set, and of several ones the name in stopping_set; "
                f"there are: {', '.join(names) or 'none'}."
            )
        return [*(name for name in names if name != stopping), stopping]

    def _read(self, share: Share, trained: pa.Schema | None = None) -> RankTable:
        """Return the labelled rows of a share; raises what `_labelled` does.

        Those of an eval set are read in the time zones of the rows trained on.

        Raises:
            ColumnError: A time has a zone and has none in the rows trained on, or the reverse.
        """
        table = pa.Table.from_batches(list(share.batches()), share.schema)
        if trained is not None:
            table = in_zones(table, self.calendar_zones(trained))
        return self._labelled(table)

    def _labelled(self, table: pa.Table) -> RankTable:
        """Find the labelled rows of a table, with their labels, weights and groups."""
        with np.errstate(over="ignore"):  # infinite, and refused as such
            labels = self._labels(table).astype(np.float32, copy=False)
        present = ~np.isnan(labels)
        places = None if present.all() else np.flatnonzero(present)
        weights = sizes = None
        if self.weight:
            weights = numbers(self.weight, table.column(self.weight)).astype(np.float32, copy=False)
            weights = weights if places is None else weights[places]
            fits = np.isfinite(weights) & (weights >= 0)
            if not fits.all():
                raise InputError(
                    f"The weight {self.weight!r} has to be a number from 0 on in every row, but "
                    f"{weights[~fits][0]:g} is among its values."
                )
        if self.group:
            sizes = _group_sizes(table.column(self.group), places)
        return RankTable(
            table=table,
            places=places,
            labels=labels if places is None else labels[places],
            weights=weights,
            group_sizes=sizes,
        )

    def _check_rows(self, context: RankContext, rows: RankTable) -> int:
        """Return how many labelled rows all ranks have; each has to call it."""
        counts = row_counts(context, rows)
        if 0 in counts:
            raise InputError(
                f"Rank {counts.index(0)} of {len(counts)} has no row with a label, of "
                f"{sum(counts)} in all: take fewer workers, or more rows."
            )
        return sum(counts)

    def _earlier(self, context: RankContext) -> bytes:
        """Return the model to continue from, as rank 0 reads it; empty: none."""
        content = b""
        if self.continue_from and context.rank == 0:
            try:
                with fsspec.open(self.continue_from, "rb") as file:  # type: ignore[no-untyped-call]
                    content = file.read()
            except (OSError, ValueError, ImportError) as error:
                raise InputError(
                    f"The model {self.continue_from!r} to continue from cannot be read: {error}"
                ) from error
        return context.all_gather(content)[0] if self.continue_from else b""

    def _own_categories(
        self, context: RankContext, rows: RankTable, columns: FeatureColumns
    ) -> dict[str, list[Any]]:
        """Return the categories of all ranks' rows.

        Those of dictionaries are kept with the run, as are the label's classes and the time zones
        of calendar features.
        """
        batches = LabelledBatches(rows, columns.categorical)
        found = global_categories(context, batches, columns.categorical)
        kept = found.coded()
        schema = rows.table.schema
        if (classes := self.label_classes(schema)) is not None:
            kept = with_classes(kept, *classes)
        if zones := self.calendar_zones(schema):
            kept = with_zones(kept, zones)
        if kept is not None:
            context.files[CATEGORIES_FILENAME] = table_bytes(kept)
        return found.lists()


def row_counts(context: RankContext, rows: RankTable) -> list[int]:
    """Return how many labelled rows each rank has; each has to call it."""
    gathered = context.all_gather(rows.rows.to_bytes(8, "big"))
    return [int.from_bytes(content, "big") for content in gathered]


def report_rounds(context: RankContext, measured: Mapping[str, Sequence[float]]) -> None:
    """Keep what rank 0 measured in each round, as columns, for `run.eval_results`."""
    if context.rank == 0 and measured:
        context.report(**{EVAL_RESULTS: dict(measured)})


def named_function(name: str) -> Any:
    """Return the function of a "package.module:function"; None where nothing is named."""
    return resolve_trainer(name) if name else None


def _group_sizes(column: pa.ChunkedArray, places: np.ndarray | None) -> np.ndarray:
    """Return how many neighbouring rows are equal."""
    runs = pa.compute.run_end_encode(groupable(column)) if len(column) else None
    ends = np.asarray(runs.run_ends) if runs is not None else np.zeros(0, np.int64)
    # How many labelled rows there are up to the end of each query.
    counted = ends if places is None else np.searchsorted(places, ends)
    sizes = np.diff(counted, prepend=0)
    # A query of which no row has a label is left out, as its rows are.
    return sizes[sizes > 0].astype(np.int32)
