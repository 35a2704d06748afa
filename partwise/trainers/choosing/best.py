"""The best of several trainers, for each partition by itself."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_serializer, model_validator
from pydantic.json_schema import SkipJsonSchema

from partwise.choices import Direction
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.evaluation import Backtest, Evaluation, HoldoutFraction
from partwise.evaluation.metrics import default_metric
from partwise.evaluation.scores import Metric, check_metric, find_metric, names_function
from partwise.outcomes import Result, Skip
from partwise.settings import kind_field
from partwise.trainers.candidate import Score
from partwise.trainers.choosing.candidate_params import check_params, params_of
from partwise.trainers.choosing.choice import (
    Choice,
    Chooser,
    Question,
    candidate_name,
    choose,
    conclude,
)
from partwise.trainers.choosing.functions import as_candidate, importable_name
from partwise.trainers.choosing.tuned import Tuned
from partwise.trainers.ready.every import ReadyTrainer
from partwise.trainers.resolving import resolve_trainer
from partwise.trainers.scored import (
    OWN_TRAINERS_ONLY,
    HoldoutTrainer,
    ScoredTrainer,
    check_fit_on,
    classes_named,
    libraries_of,
    modules_of,
    task_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from partwise.choices import Task
    from partwise.connector.context import PartitionContext
    from partwise.trainers.candidate import Candidate

_Function = SkipJsonSchema[Callable[..., Any]]
_Name = Annotated[str, WithJsonSchema({"type": "string", "title": "Function"})]

CandidateParameter = ReadyTrainer | Tuned | _Name | _Function
"""A trainer with its settings, or a train function or its name."""

ARTIFACT = "candidates.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a candidate came to on a partition."""

    name: str
    seconds: float
    choice: Choice | None = None
    loss: float = float("inf")
    reason: str = ""
    """Why it has lost without a score."""
    error: Exception | None = None


class Best(HoldoutTrainer):
    """Score several trainers on the same rows of each partition, and keep the best one's model.

    A candidate that raises, skips, or has no score loses. The ledger has the name of the best in
    its column `candidate`, the scores of all as candidate_NAME_METRIC, and the artifact
    candidates.json what became of each.

    Example:
        >>> Best([LightGBMTrainer(label="sales"), Mean(label="sales")], metric="mae").metric
        'mae'
    """

    model_config = ConfigDict(title="Best of several")

    kind: Literal["best"] = kind_field("best")
    label: str = Field(
        default="",
        description="The column to be predicted, for candidates that name none.",
    )
    candidates: tuple[CandidateParameter, ...] = Field(
        default=(),
        min_length=1,
        validate_default=True,
        description="Trainers with their settings, or train functions of (data, context). Of equal "
        "ones the first is kept. Their own holdout does not count.",
    )
    metric: str | _Function = Field(
        default="",
        description="What they are compared by: rmse, mae, mape, wape, smape, mase, pinball:0.9, "
        "logloss, accuracy, auc, or 'package.module:function' of (labels, predictions). Empty: "
        "rmse, or logloss for classes.",
    )
    direction: Direction = Field(
        default="",
        description="Which values are better. Empty: as the metric's name says, and the lower ones "
        "of a function.",
    )
    holdout: Evaluation = Field(
        default=HoldoutFraction(),
        description="The rows that candidates are scored on: drawn at random (the latest ones if a "
        "candidate forecasts by time), the latest, the windows of a backtest, or the folds of a "
        "cross-validation.",
    )
    predict: str | _Function = Field(
        default="",
        description="'package.module:function' of (data, model, context), by which models of train "
        "functions predict. Empty: as inference does.",
    )

    def __init__(self, candidates: Sequence[Any] = (), **settings: Any) -> None:
        super().__init__(**{**settings, "candidates": candidates})

    @model_validator(mode="before")
    @classmethod
    def _take_classes(cls, given: Any) -> Any:
        """Have the classes that the first candidate names which names any."""
        if not isinstance(given, dict) or given.get("classes"):
            return given
        candidates = given.get("candidates")
        if not isinstance(candidates, list | tuple):
            return given
        named = (classes_named(each) for each in candidates)
        return {**given, "classes": next(filter(None, named), ())}

    @model_validator(mode="after")
    def _check_candidates(self) -> Best:
        for candidate in self.candidates:
            if isinstance(candidate, Best):
                raise ValueError("candidates cannot be a Best themselves: list its candidates")
            if isinstance(candidate, type):
                raise ValueError(f"{candidate.__name__} is a class: give a trainer, with settings")
            if not isinstance(candidate, BaseModel):
                continue
            if not isinstance(candidate, ScoredTrainer | Tuned):
                raise ValueError(f"{type(candidate).__name__} does not train single partitions")
            if candidate.holdout not in (HoldoutFraction(), self.holdout):
                raise ValueError(
                    f"the candidate {candidate_name(candidate)!r} has a holdout of its own: "
                    "candidates are scored alike, so give it to Best"
                )
            if candidate.intervals:
                raise ValueError("give intervals to Best, not to its candidates")
            if candidate.classes not in ((), self.classes):
                raise ValueError(
                    f"the candidate {candidate_name(candidate)!r} names the classes "
                    f"{list(candidate.classes)}, and Best {list(self.classes)}"
                )
        return self

    @field_serializer("candidates", "metric", "predict")
    def _write_functions(self, value: Any) -> Any:
        """Write functions by the names by which another process finds them."""
        if isinstance(value, tuple):
            return [self._write_functions(each) for each in value]
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json")
        return importable_name(value) if callable(value) else value

    def map_functions(self, change: Callable[[Any], Any]) -> Best:
        """Return a copy in which functions, and names of functions, are replaced.

        Those inside a `Tuned` stay.
        """

        def changed(value: Any) -> Any:
            is_name = isinstance(value, str) and names_function(value)
            is_function = callable(value) and not isinstance(value, BaseModel)
            return change(value) if is_name or is_function else value

        return self.model_copy(
            update={
                "candidates": tuple(changed(candidate) for candidate in self.candidates),
                "metric": changed(self.metric),
                "predict": changed(self.predict),
            }
        )

    def resolved(self) -> Best:
        """Return this with the functions that names in it stand for."""
        found = self.map_functions(resolve_trainer)
        candidates = [
            each.resolved() if isinstance(each, Tuned) else each for each in found.candidates
        ]
        return found.model_copy(update={"candidates": tuple(candidates)})

    @property
    def task(self) -> Task:
        """What is predicted, as the first candidate says that knows it."""
        return self._known_task() or task_of(self.classes)

    @property
    def evaluation(self) -> Evaluation:
        """The rows that candidates are scored on; see `HoldoutTrainer.evaluation`."""
        return self.scored_on(self.holdout)

    def scored_on(self, holdout: Evaluation) -> Evaluation:
        """Return a holdout as each candidate can use it; see `HoldoutTrainer.scored_on`."""
        for given in self.candidates:
            candidate = resolve_trainer(given) if isinstance(given, str) else given
            if isinstance(candidate, HoldoutTrainer):
                holdout = candidate.scored_on(holdout)
        return holdout

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that train."""
        found = [libraries_of(each) for each in self.candidates]
        return tuple(dict.fromkeys(name for names in found for name in names))

    @property
    def modules(self) -> tuple[str, ...]:
        """What candidates import to train."""
        found = [modules_of(each) for each in self.candidates]
        return tuple(dict.fromkeys(name for names in found for name in names))

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data, before any work; see `Trainer.check`."""
        super().check(schema, empty_columns, key_columns)
        label = self._label_of(schema)
        check_metric(
            self._metric(), self._known_task(), is_backtest=isinstance(self.holdout, Backtest)
        )
        for name, candidate in self._named(schema).items():
            check_fit_on(self, candidate, f"The candidate {name!r}")
            self._check_metric_of(name, candidate)
            if not hasattr(candidate, "check"):
                if self.intervals:
                    raise InputError(f"The candidate {name!r} is a function: {OWN_TRAINERS_ONLY}")
                continue
            candidate.check(schema, empty_columns, key_columns)
            theirs = getattr(getattr(candidate, "trainer", candidate), "task", self.task)
            if theirs != self.task:
                raise InputError(
                    f"The candidate {name!r} predicts for {theirs}, and another for {self.task}: "
                    "they cannot be compared."
                )
            if (own := getattr(candidate, "label", "")) not in ("", label):
                raise ColumnError(
                    f"The candidate {name!r} predicts {own!r}, and another {label!r}: they cannot "
                    "be compared."
                )

    def _check_metric_of(self, name: str, candidate: Any) -> None:
        """Refuse a metric of a candidate that searches, which would go by that of all."""
        if not isinstance(candidate, Tuned) or candidate.metric == "":
            return
        own, of_all = candidate.scored_by, self._metric()
        is_turned = candidate.direction and own.maximized != of_all.maximized
        if is_turned or (own.name, own.built_in) != (of_all.name, of_all.built_in):
            raise InputError(
                f"The candidate {name!r} has the metric {own.name!r}, which does not count: "
                f"candidates are compared, and their settings found, by that of Best, "
                f"{of_all.name!r}."
            )

    def check_params(self, schema: pa.Schema, params: Iterable[Mapping[str, Any]]) -> None:
        """Refuse parameters of partitions that a candidate does not know, before any work."""
        check_params(self._named(schema), params)

    def reads(self, schema: pa.Schema) -> list[str] | None:
        """Return the columns that any candidate looks at; None: one may look at all."""
        names = [self._label_of(schema), *self.evaluation.columns]
        for candidate in self._named(schema).values():
            theirs = candidate.reads(schema) if hasattr(candidate, "reads") else None
            if theirs is None:
                return None
            names += theirs
        return list(dict.fromkeys(names))

    def calendar_zones(self, schema: pa.Schema) -> dict[str, str]:
        """Return the time zones of the columns of which any candidate makes calendar features."""
        found: dict[str, str] = {}
        for candidate in self._named(schema).values():
            if hasattr(candidate, "calendar_zones"):
                found |= candidate.calendar_zones(schema)
        return found

    def __call__(self, data: DataConnector, context: PartitionContext) -> Result | Skip:
        """Score all candidates on one partition, and keep the model of the best.

        Returns:
            Its model, with the metrics holdout_<metric>, candidate_<name>_<metric>, windows,
            candidates_failed where some did, and for boosted trees rounds; a Skip where all
            candidates skip, or no row is held out.

        Raises:
            InputError: All candidates failed; has the reason of each.
        """
        table = self._labelled(data.to_arrow())
        evaluation = self.evaluation
        splits = evaluation.splits(table, context.seed)
        if isinstance(splits, Skip):
            return splits
        if not splits:
            return Skip("no row is held out to score candidates on")
        metric = self._metric()
        question = Question(splits=splits, metric=metric, season=getattr(evaluation, "season", 1))
        named = self._named(table.schema)
        rows = DataConnector(table)
        answers = []
        for name, candidate in named.items():
            own = context.with_params(params_of(name, named, context.params), uploads=True)
            answers.append(_ask(name, candidate, rows, own, question))
        kept, answers = self._keep(answers, question)
        context.upload(_document(answers, kept), ARTIFACT)
        if kept is None:
            return _none_of(answers)
        answer, result = kept
        for filename, content in ({} if answer.choice is None else answer.choice.artifacts).items():
            context.upload(content, filename)
        scores = {
            f"candidate_{each.name}_{metric.name}": each.choice.score.value
            for each in answers
            if each.choice is not None
        }
        more = {"windows": len(splits)} if len(splits) > 1 else {}
        if failed := sum(each.error is not None for each in answers):
            more["candidates_failed"] = failed
        return Result(result.model, {**result.metrics, **more, **scores}, answer.name)

    def _keep(
        self, answers: list[_Answer], question: Question
    ) -> tuple[tuple[_Answer, Result] | None, list[_Answer]]:
        """Return the best answer that comes to a model, and all answers.

        One whose last fit fails has lost as well.
        """
        lost: dict[str, _Answer] = {}
        # sorted() is stable: of candidates with equal losses, the one that is listed first is kept.
        for answer in sorted(answers, key=lambda each: each.loss):
            if answer.choice is None or answer.loss == float("inf"):
                continue
            try:
                result = conclude(
                    answer.choice, self.fit_on, self.evaluation, question, self.intervals
                )
            except MemoryError:
                raise
            except Exception as error:
                lost[answer.name] = _failed(answer.name, answer.seconds, error)
                continue
            if isinstance(result, Result):
                return (answer, result), [lost.get(each.name, each) for each in answers]
            lost[answer.name] = _Answer(
                name=answer.name, seconds=answer.seconds, reason=result.reason
            )
        return None, [lost.get(each.name, each) for each in answers]

    def _metric(self) -> Metric:
        name = self.metric or default_metric(self.task)
        return find_metric(name, self.direction, resolve_trainer)

    def _known_task(self) -> Task | None:
        trained = [getattr(each, "trainer", each) for each in self.candidates]
        return next((each.task for each in trained if hasattr(each, "task")), None)

    def _label_of(self, schema: pa.Schema) -> str:
        labels = [getattr(each, "label", "") for each in self.candidates]
        return next((label for label in (self.label, *labels) if label), "") or (
            super()._label_of(schema)
        )

    def _named(self, schema: pa.Schema) -> dict[str, Candidate | Chooser]:
        """Return the candidates as they are asked here, by names of which none is another's."""
        found: dict[str, Candidate | Chooser] = {}
        counts: Counter[str] = Counter()
        for given in self.candidates:
            candidate = self._asked(given, schema)
            name = kind = candidate_name(candidate)
            while name in found:
                counts[kind] += 1
                name = f"{kind}_{counts[kind] + 1}"
            found[name] = candidate
        return found

    def _asked(self, given: Any, schema: pa.Schema) -> Any:
        if isinstance(given, HoldoutTrainer):
            # By the holdout it knows which columns are not features.
            update: dict[str, Any] = {"holdout": self.evaluation}
            if not given.label:
                update["label"] = self._label_of(schema)
            if self.classes and given.task != "regression":  # which `check` refuses
                update["classes"] = self.classes
            return given.model_copy(update=update)
        return as_candidate(given, self._label_of(schema), self.classes, self.predict)


def _ask(
    name: str,
    candidate: Candidate | Chooser,
    rows: DataConnector,
    context: PartitionContext,
    question: Question,
) -> _Answer:
    began = time.monotonic()
    try:
        choice = choose(candidate, rows, context, question)
    # Memory that is gone is the whole child's: no candidate has lost by that.
    except MemoryError:
        raise
    except Exception as error:
        return _failed(name, time.monotonic() - began, error)
    seconds = time.monotonic() - began
    if isinstance(choice, Skip):
        return _Answer(name=name, seconds=seconds, reason=choice.reason)
    loss = question.metric.loss(choice.score.value)
    reason = ""
    if loss == float("inf"):
        reason = choice.score.reason or f"its score is {choice.score.value}"
    return _Answer(name=name, seconds=seconds, choice=choice, loss=loss, reason=reason)


def _failed(name: str, seconds: float, error: Exception) -> _Answer:
    reason = f"{type(error).__name__}: {error}"
    return _Answer(name=name, seconds=seconds, reason=reason, error=error)


def _none_of(answers: list[_Answer]) -> Skip:
    """Return the Skip of a partition that all candidates skipped."""
    reasons = "; ".join(f"{each.name}: {each.reason}" for each in answers)
    errors = [each.error for each in answers if each.error is not None]
    if not errors and all(each.choice is None for each in answers):
        return Skip(f"all {len(answers)} candidates skipped: {reasons}")
    sentence = f"None of the {len(answers)} candidates came to a model: {reasons}"
    if not errors:
        raise InputError(sentence)
    raise InputError(sentence) from ExceptionGroup("what candidates raised", errors)


def _document(answers: list[_Answer], kept: tuple[_Answer, Result] | None) -> list[dict[str, Any]]:
    """Return what became of each candidate, as JSON has it."""
    best = None if kept is None else kept[0].name
    return [_entry(each, is_best=each.name == best) for each in answers]


def _entry(answer: _Answer, *, is_best: bool) -> dict[str, Any]:
    # Without a choice there is the score of no windows.
    score = Score(windows=()) if answer.choice is None else answer.choice.score
    settings = {} if answer.choice is None else dict(answer.choice.settings)
    return {
        "candidate": answer.name,
        "best": is_best,
        "score": _number(score.value),
        "windows": [_number(value) for value in score.windows],
        "metrics": {name: _number(value) for name, value in score.metrics.items()},
        "settings": json.loads(json.dumps(settings, default=str)),
        "seconds": round(answer.seconds, 6),
        "reason": answer.reason,
    }


def _number(value: float) -> float | None:
    """Return a number that JSON has, which are finite ones."""
    return value if abs(value) < float("inf") else None
