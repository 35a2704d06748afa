"""What a child process does with one partition to infer it: by its own model, or what is next."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.trained_rows import with_class, with_trained_categories
from partwise.engine.outcome import Produced
from partwise.engine.works import StoredModel, produce_rows
from partwise.errors import ColumnError, IntegrityError, ModelNotFoundError
from partwise.formatting import key_text
from partwise.models.serdes import ModelSerde, serde_by_name
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import StoredArtifact
from partwise.runs.ledger import DAMAGED_MODELS, FAILED_MODELS

if TYPE_CHECKING:
    from partwise.engine.fallbacks import Constant
    from partwise.trainers.ready.every import ReadyTrainer

MODEL_COLUMNS = ("model_run", "model_key", "model_level")
"""The columns of predictions that say which model made them."""

Predict = Callable[[DataConnector, Any, PartitionContext], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One of the sets of models that are asked in turn."""

    name: str
    """run://sales-1, or catalog://sales@7."""
    title: str
    """The same for a person: the run 'sales-1'."""
    key_columns: tuple[str, ...]
    """Those by which it tells its models apart; none: it has one."""


_MOST_KEPT = 8
_kept_models: dict[tuple[str, StoredArtifact, str], Any] = {}
"""Models that several partitions share, as this process has read them last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferWork:
    """Read the partition's trained model, and keep what the predict function returns."""

    predict: Predict
    serde: ModelSerde | None
    levels: tuple[Level, ...]
    fallback: "Constant | ReadyTrainer | None" = None
    """What answers where no level does; None: nothing."""
    on_missing_model: Literal["fail", "skip"]
    """What becomes of a partition for which no level has a model."""
    on_error: Literal["fail", "next"] = "fail"
    """What becomes of a partition whose model, or function that predicts, raises an error: it is
    FAILED, or the next level is asked."""
    key_columns: tuple[str, ...]
    keep_columns: tuple[str, ...]
    names_models: bool = False
    """Whether each row says which model made it."""
    names_classes: bool = False
    """Whether predictions are probabilities of the model's classes, if it has any: they are where
    nobody gave a function that predicts."""

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,  # noqa: ARG002 (the protocol)
    ) -> Produced:
        """Infer one partition.

        Raises:
            ModelNotFoundError: There is no model for it.
        """
        answering = (*models, None) if self.fallback is not None else models
        passed = Counter[str]()
        for model in answering:
            is_last = model is answering[-1]
            may_pass = not is_last and self.on_error == "next"
            try:
                # Files of a level that raises are not to stand beside the answer of the next.
                with context.uploads_if_done() if may_pass else nullcontext():
                    produced = self._infer(model, data, context)
            except IntegrityError as error:
                if is_last:
                    raise
                passed[DAMAGED_MODELS] += 1
                context.logger.warning("%s The next level is asked.", error)
                continue
            except Exception as error:
                if not may_pass:
                    raise
                passed[FAILED_MODELS] += 1
                reason = f"{type(error).__name__}: {error}"
                context.logger.warning("Level %s: %s", self._name(model), reason)
                continue
            return replace(produced, metrics={**produced.metrics, **passed})
        titles = [level.title for level in self.levels]
        sentence = f"None of {', '.join(titles)} has a model for this partition."
        if len(titles) == 1:
            sentence = f"{titles[0][0].upper()}{titles[0][1:]} has no model for this partition."
        if self.on_missing_model == "skip":
            return Produced(status=PartitionStatus.SKIPPED, reason=sentence)
        raise ModelNotFoundError(f'{sentence} on_missing_model="skip" skips such partitions.')

    def _infer(
        self, model: StoredModel | None, data: DataConnector, context: PartitionContext
    ) -> Produced:
        """Infer a partition with one of its models; None: with the fallback."""
        if model is None and self.fallback is not None:
            # Children that need none load neither forms nor trainers.
            from partwise.engine.fallbacks import fall_back

            outcome, rows = fall_back(self.fallback, data, context), data
        elif model is not None:
            trained = self._read(model)
            categories = model.trained_categories()
            rows = with_trained_categories(data, categories)
            outcome = self.predict(rows, trained, context)
            if outcome is None and context.has_made:
                return Produced(status=PartitionStatus.DONE)
            if self.names_classes:
                outcome = with_class(outcome, categories)
        produced = produce_rows(outcome, rows, self.key_columns, self.keep_columns, "prediction")
        if not self.names_models or produced.rows is None:
            return produced
        named = self._with_model(produced.rows, model, context)
        return replace(produced, rows=named, candidate=self._name(model))

    def _name(self, model: StoredModel | None) -> str:
        """Return what answers, as a run's ledger names it."""
        if model is not None:
            return self.levels[model.level].name
        return "" if self.fallback is None else self.fallback.kind

    def _with_model(
        self, rows: pa.Table, model: StoredModel | None, context: PartitionContext
    ) -> pa.Table:
        """Return rows with the columns that say which model made them."""
        run_id, text, level = None, None, len(self.levels)
        if model is not None:
            own = context.key if len(context.key_columns) > 1 else (context.key,)
            values = dict(zip(context.key_columns, own, strict=True))
            key = [values[name] for name in self.levels[model.level].key_columns]
            run_id, text, level = model.run_id, key_text(key) if key else "", model.level
        for name, value in zip(MODEL_COLUMNS, (run_id, text, level), strict=True):
            if name in rows.column_names:
                raise ColumnError(
                    f"The rows have a column {name!r}, which says which model made them: give "
                    "the function's, or that of keep_columns, another name."
                )
            kind = pa.int32() if name == "model_level" else pa.string()
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
        return rows

    def _read(self, model: StoredModel) -> Any:
        serde = serde_by_name(model.artifact.serde, self.serde)
        if self.levels[model.level].key_columns == self.key_columns:
            return model.read(serde)
        # A bundle's name is never used twice; its place in it names the model and its other files.
        name = (model.run_id, model.artifact, repr(self.serde))
        if name not in _kept_models:
            trained = model.read(serde)
            if len(_kept_models) == _MOST_KEPT:
                del _kept_models[next(iter(_kept_models))]
            _kept_models[name] = trained
        return _kept_models[name]
