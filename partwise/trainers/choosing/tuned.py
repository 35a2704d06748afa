"""`Tuned`: the settings that a partition's own rows say are best, of those that it tries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from partwise.choices import Direction
from partwise.connector.data_connector import DataConnector
from partwise.errors import InputError
from partwise.evaluation import Backtest, Evaluation, HoldoutFraction
from partwise.evaluation.metrics import default_metric
from partwise.evaluation.scores import Metric, check_metric, find_metric, names_function
from partwise.outcomes import Result, Skip
from partwise.settings import kind_field
from partwise.trainers.choosing.choice import Choice, Question, candidate_name, conclude
from partwise.trainers.choosing.functions import as_candidate
from partwise.trainers.choosing.trials import Limits, Study
from partwise.trainers.ready.every import ReadyTrainer
from partwise.trainers.resolving import resolve_trainer
from partwise.trainers.scored import (
    OWN_TRAINERS_ONLY,
    HoldoutTrainer,
    ScoredTrainer,
    check_fit_on,
    classes_named,
    label_named,
    libraries_of,
    modules_of,
    task_of,
)
from partwise.tuning.budget import Budget, Left
from partwise.tuning.pruner import PrunerName
from partwise.tuning.sampler import SamplerName, check_sampler
from partwise.tuning.search import Search, draw_settings
from partwise.tuning.space import RandInt, grid_size, parse_space

if TYPE_CHECKING:
    import pyarrow as pa

    from partwise.choices import Task
    from partwise.connector.context import PartitionContext
    from partwise.trainers.candidate import Candidate, PreparedRows

TRIALS_FILE = "trials.json"
DEFAULT_TRIALS = 30
_left = Left()


def _parse_space(space: Any) -> Any:
    return space if isinstance(space, str) or callable(space) else parse_space(space)


class Tuned(HoldoutTrainer):
    """Try settings of a trainer on each partition, and keep the model of the best.

    The trainer's own settings are the first trial, so that by the score that is searched with,
    nothing worse than them is kept. What is tried is decided by the partition's seed alone.

    Example:
        >>> from partwise import LightGBMTrainer, Tuned, loguniform, randint
        >>> space = {"learning_rate": loguniform(0.01, 0.3), "num_leaves": randint(4, 64)}
        >>> Tuned(LightGBMTrainer(label="sales"), space, trials=50).sampler
        'tpe'
    """

    model_config = ConfigDict(title="Tuned")

    kind: Literal["tuned"] = kind_field("tuned")
    trainer: (
        Annotated[ReadyTrainer, Field(discriminator="kind")]
        | Annotated[str, WithJsonSchema({"type": "string", "title": "Function"})]
        | SkipJsonSchema[Callable[..., Any]]
    ) = Field(description="Whose settings are searched.")
    space: Annotated[Any, BeforeValidator(_parse_space), WithJsonSchema({"type": "object"})] = (
        Field(
            default_factory=dict,
            description="Parameters by the names of the trainer's library, and `rounds`; each is "
            "uniform, loguniform, randint, choice, grid, or a constant. Or the name of a function "
            "of an Optuna trial, which returns settings by name.",
        )
    )
    metric: (
        Annotated[str, WithJsonSchema({"type": "string", "title": "Name"})]
        | SkipJsonSchema[Callable[..., Any]]
    ) = Field(
        default="",
        description="What tells better settings: a name, or a function of (labels, predictions). "
        "Empty: rmse, or logloss for classes.",
    )
    direction: Direction = Field(
        default="",
        description="Which values are better, of a metric that is a function; empty: lower ones.",
    )
    trials: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="How many settings a partition tries at most, the trainer's own included. "
        f"Default: {DEFAULT_TRIALS}, or with a budget as many as its share allows.",
    )
    max_duration_s: Annotated[float, Field(gt=0)] | SkipJsonSchema[None] = Field(
        default=None,
        title="Time limit",
        description="Seconds after which a partition begins no other trial. What is tried depends "
        "on the machine then.",
    )
    sampler: SamplerName = Field(
        default="tpe",
        description='"tpe", "random", "grid" (all there are), or "gp" (needs torch and scipy).',
    )
    pruner: PrunerName = Field(
        default="none",
        description="Gives a trial up between windows, and between boosting rounds.",
    )
    holdout: Evaluation = Field(
        default=HoldoutFraction(),
        description="The rows that settings are scored on, in place of the trainer's own holdout.",
    )
    predict: (
        Annotated[str, WithJsonSchema({"type": "string", "title": "Function"})]
        | SkipJsonSchema[Callable[..., Any]]
    ) = Field(
        default="",
        description="'package.module:function' of (data, model, context), by which models of a "
        "train function predict. Empty: as inference does.",
    )
    settings: tuple[dict[str, JsonValue], ...] = Field(
        default=(),
        description="Settings to try before others.",
    )
    portfolio: str = Field(
        default="",
        description="A run of find_portfolio in the same store, whose settings are tried.",
    )
    budget: Budget | SkipJsonSchema[None] = Field(
        default=None,
        description="What all partitions may try together.",
    )

    def __init__(
        self, trainer: Any = None, space: Any = None, metric: Any = "", **more: Any
    ) -> None:
        given = {"trainer": trainer, "metric": metric, **more}
        super().__init__(**given if space is None else {**given, "space": space})

    @model_validator(mode="before")
    @classmethod
    def _take_label(cls, given: Any) -> Any:
        """Have the label and the classes that its trainer names."""
        if not isinstance(given, dict):
            return given
        trainer = given.get("trainer")
        classes = given.get("classes") or classes_named(trainer)
        return {**given, "classes": classes, "label": given.get("label") or label_named(trainer)}

    @model_validator(mode="after")
    def _check_settings(self) -> Tuned:
        own = getattr(self.trainer, "holdout", None)
        if getattr(self.trainer, "kind", "") in ("best", "tuned"):
            raise ValueError(f"a {type(self.trainer).__name__} cannot be tuned: give one trainer")
        if own is not None and own not in (HoldoutFraction(), self.holdout):
            raise ValueError("give holdout to Tuned, which scores all settings by it")
        if not self.space and not self.settings and not self.portfolio:
            raise ValueError("there is nothing to try: give a space, or a portfolio")
        if getattr(self.trainer, "intervals", ()):
            raise ValueError("give intervals to Tuned, not to its trainer")
        if getattr(self.trainer, "classes", ()) not in ((), self.classes):
            raise ValueError("the trainer names other classes than Tuned: give them to one of both")
        if getattr(self.trainer, "label", "") not in ("", self.label):
            raise ValueError(
                f"the trainer predicts {self.trainer.label!r}, and Tuned {self.label!r}"  # type: ignore[union-attr]
            )
        return self

    @property
    def task(self) -> Task:
        """What is predicted, as the trainer says; a number, where that is a function."""
        task: Task = getattr(self.trainer, "task", task_of(self.classes))
        return task

    @property
    def candidate_name(self) -> str:
        """How it is called among candidates."""
        return f"tuned_{candidate_name(self.trainer)}"

    @property
    def libraries(self) -> tuple[str, ...]:
        """Those whose versions decide what becomes of a partition."""
        return (*libraries_of(self.trainer), "optuna")

    @property
    def modules(self) -> tuple[str, ...]:
        """What is imported to train and to search."""
        return (*modules_of(self.trainer), "optuna")

    @property
    def evaluation(self) -> Evaluation:
        """The rows that settings are scored on; see `HoldoutTrainer.evaluation`."""
        return self.scored_on(self.holdout)

    def scored_on(self, holdout: Evaluation) -> Evaluation:
        """Return a holdout as the trainer can use it; see `HoldoutTrainer.scored_on`."""
        trainer = self.trainer
        if isinstance(trainer, str):
            trainer = resolve_trainer(trainer)
        return trainer.scored_on(holdout) if isinstance(trainer, HoldoutTrainer) else holdout

    def _candidate(self, schema: pa.Schema) -> Candidate:
        """Return what is fitted: by the holdout it knows which columns are not features."""
        trainer: Any = self.trainer
        if isinstance(trainer, ScoredTrainer):
            label = self._label_of(schema)
            update = {"holdout": self.evaluation, "label": label, "classes": self.classes}
            return trainer.model_copy(update=update)
        found: Candidate = as_candidate(trainer, self._label_of(schema), self.classes, self.predict)
        return found

    def _prepare(self, data: DataConnector, context: PartitionContext) -> PreparedRows:
        table = self._labelled(data.to_arrow())
        return self._candidate(table.schema).prepare(DataConnector(table), context)

    def resolved(self) -> Tuned:
        """Return this with the functions that names in it stand for."""
        found = {
            name: resolve_trainer(value)
            for name in ("trainer", "space", "metric", "predict")
            if isinstance(value := getattr(self, name), str) and names_function(value)
        }
        return self.model_copy(update=found)

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, or a space that cannot be searched.

        See `Trainer.check`.
        """
        super().check(schema, empty_columns, key_columns)
        check_fit_on(self, self.trainer, f"The trainer {candidate_name(self.trainer)!r}")
        candidate = self._candidate(schema)
        if hasattr(candidate, "check"):
            candidate.check(schema, empty_columns, key_columns)
        elif self.intervals:
            raise InputError(f"What is tuned is a function: {OWN_TRAINERS_ONLY}")
        check_metric(
            self.scored_by,
            getattr(candidate, "task", None),
            is_backtest=isinstance(self.holdout, Backtest),
        )
        names = {name for settings in self.settings for name in settings}
        if self.space:
            check_sampler(self.sampler, self.space)
            if self.sampler == "grid":
                self._check_grid()
            names.update(*draw_settings(self.space, 1, seed=0))
        if hasattr(candidate, "check_settings"):
            candidate.check_settings(sorted(names))

    def check_partitions(self, partitions: int) -> None:
        """Refuse a budget that does not reach so many partitions."""
        if self.budget is not None:
            self.budget.check_partitions(partitions)

    def reads(self, schema: pa.Schema) -> list[str] | None:
        """Return the columns that are looked at; None: all of them."""
        candidate = self._candidate(schema)
        return candidate.reads(schema) if hasattr(candidate, "reads") else None

    def calendar_zones(self, schema: pa.Schema) -> dict[str, str]:
        """Return the time zones of the columns of which calendar features are made."""
        candidate = self._candidate(schema)
        return candidate.calendar_zones(schema) if hasattr(candidate, "calendar_zones") else {}

    def __call__(self, data: DataConnector, context: PartitionContext) -> Result | Skip:
        """Search the settings of one partition, and train its model.

        Returns:
            The model with the metrics holdout_<metric>, untuned_<metric> (that of the trainer's own
            settings), trials, and best_<name> for settings that are numbers; or a Skip where there
            are too few rows.

        Raises:
            TrialsFailedError: No settings have a score.
        """
        rows = self._prepare(data, context)
        question = self._question(rows, context)
        if isinstance(question, Skip):
            return question
        choice = self._search(rows, context, question)
        if isinstance(choice, Skip):
            return choice
        for name, content in choice.artifacts.items():
            context.upload(content, name)
        return conclude(choice, self.fit_on, self.evaluation, question, self.intervals)

    def choose(
        self, data: DataConnector, context: PartitionContext, question: Question
    ) -> Choice | Skip:
        """Find the settings with the best score; see `Chooser.choose`."""
        return self._search(self._prepare(data, context), context, question)

    def study_of(self, data: DataConnector, context: PartitionContext) -> Study | Skip:
        """Try settings on one partition, and train no model but those that are scored."""
        rows = self._prepare(data, context)
        question = self._question(rows, context)
        return question if isinstance(question, Skip) else self._study(rows, context, question)

    def _question(self, rows: PreparedRows, context: PartitionContext) -> Question | Skip:
        evaluation = self.evaluation
        splits = evaluation.splits(rows.table, context.seed)
        if isinstance(splits, Skip):
            return splits
        if not splits:
            return Skip("no row is held out, so that settings cannot be compared")
        season = getattr(evaluation, "season", 1)
        return Question(splits=splits, metric=self.scored_by, season=season)

    @property
    def scored_by(self) -> Metric:
        """The metric that tells better settings."""
        name = self.metric or default_metric(self.task)
        return find_metric(name, self.direction, resolve_trainer)

    def _check_grid(self) -> None:
        count, trials = grid_size(self.space), self.trials or DEFAULT_TRIALS
        others = 1 + len(self.settings)
        if self.budget is None and count + others > trials:
            raise InputError(
                f"The grid has {count:,} settings, and trials={trials} leaves "
                f"{max(trials - others, 0)} for them: give trials={count + others}, or another "
                "sampler."
            )

    def _study(self, rows: PreparedRows, context: PartitionContext, question: Question) -> Study:
        if self.portfolio and not self.settings:
            raise InputError(
                f"The portfolio {self.portfolio!r} is read by train_models: give settings= here."
            )
        study = Study(rows, question, self._most_rounds)
        search = Search(
            # First the trainer's own settings, {}: `_search` reads them as tried[0].
            [{}, *filter(None, self.settings)],
            self.space,
            sampler=self.sampler,
            pruner=self.pruner,
            seed=context.seed,
        )
        allowed = self._seconds(context)
        study.run(search, self._limits(context, allowed))
        if allowed is not None:
            _left.settle(context.run_id, allowed, study.seconds)
        return study

    def _seconds(self, context: PartitionContext) -> float | None:
        """Return the seconds that a budget leaves to a partition; None: it has none of these."""
        if self.budget is None:
            return None
        return self.budget.seconds_of(context.share, _left.of(context.run_id))

    def _search(
        self, rows: PreparedRows, context: PartitionContext, question: Question
    ) -> Choice | Skip:
        study = self._study(rows, context, question)
        artifacts = {TRIALS_FILE: study.table()}
        if study.best is None:
            for name, content in artifacts.items():
                context.upload(content, name)
            return study.nothing()
        own = study.tried[0]
        metrics: dict[str, float] = {
            "trials": len(study.tried),
            "trials_pruned": study.count("pruned"),
            "trials_failed": study.count("failed", "skipped"),
            "tuning_seconds": study.seconds,
        }
        if own.value is not None:
            metrics[f"untuned_{question.metric.name}"] = own.value
        settings, scored = study.best
        for name, value in settings.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                metrics[f"best_{name}"] = value
        return Choice(
            rows=rows,
            score=scored,
            settings=settings,
            artifacts=artifacts,
            metrics=metrics,
        )

    @property
    def _most_rounds(self) -> int:
        """The steps of a window: the most boosting rounds that a trial may have."""
        value = self.space.get("rounds") if isinstance(self.space, dict) else None
        if isinstance(value, RandInt):
            return value.high - 1
        return int(getattr(self.trainer, "rounds", 1))

    def _limits(self, context: PartitionContext, allowed: float | None) -> Limits:
        seconds = inf if self.max_duration_s is None else self.max_duration_s
        if self.budget is None:
            most = self.trials or DEFAULT_TRIALS
            return Limits(trials=most, seconds=seconds, patience=most)
        of_share = [each for each in (self.trials, self.budget.trials_of(context.share)) if each]
        return Limits(
            trials=min(of_share, default=None),
            seconds=seconds if allowed is None else min(seconds, allowed),
            patience=self.budget.patience,
        )
