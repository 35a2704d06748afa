"""A linear model and a random forest, trained by scikit-learn."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, JsonValue

from partwise.choices import Task
from partwise.errors import InputError
from partwise.formatting import did_you_mean
from partwise.models.plain_models import LARGEST_LINEAR, Design, ForestModel, LinearModel
from partwise.outcomes import Skip
from partwise.settings import kind_field
from partwise.tables.calendar import with_calendar
from partwise.tables.features import feature_matrix, find_categories
from partwise.trainers.ready.naive import PREDICTS, PlainTrainer, PreparedPlain
from partwise.trainers.scored import MIN_ROWS, TabularTrainer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from types import ModuleType


_NOT_MET = -1e3
"""The intercept of a class that was not met: it has next to no probability."""


class _ScikitLearnTrainer(TabularTrainer, PlainTrainer):
    """What the two have in common."""

    predicts: Task = PREDICTS
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        title="Parameters",
        description="Parameters of the estimator of scikit-learn, by its own names. A partition's "
        "share of the run's params overrides them.",
    )
    min_rows: int = MIN_ROWS

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that train."""
        return ("sklearn",)

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.predicts

    def check(
        self,
        schema: pa.Schema,
        empty_columns: frozenset[str] = frozenset(),
        key_columns: Sequence[str] | None = None,
    ) -> None:
        """Refuse settings that do not fit the data; parameters that the estimator lacks too.

        See `Trainer.check`.
        """
        super().check(schema, empty_columns, key_columns)
        self.check_settings(self.params)
        self._class_weight(self.params.get("class_weight"), schema)

    def check_settings(self, names: Collection[str]) -> None:
        """Refuse parameters that the estimator does not have."""
        if not names:
            return  # scikit-learn takes a second to import
        estimator = self._estimator()
        known = inspect.signature(estimator).parameters
        if unknown := [name for name in names if name not in known]:
            hints = "".join(did_you_mean(name, known) for name in unknown[:3])
            raise InputError(
                f"scikit-learn's {estimator.__name__} has no parameter "
                f"{', '.join(map(repr, unknown))}.{hints}"
            )

    @abstractmethod
    def _estimator(self) -> type[Any]:
        """The class of scikit-learn that is trained."""

    def _check_labels(self, labels: np.ndarray, task: Task) -> None:
        super()._check_labels(labels, task)
        wrong = np.abs(labels) > LARGEST_LINEAR
        if wrong.any():
            raise InputError(
                f"Labels have to be numbers up to {LARGEST_LINEAR:g}, whose squares can be added "
                f"up, and {labels[wrong][0]:g} is among {int(wrong.sum())} of {len(labels)} beyond:"
                " scale them, or leave such rows out."
            )

    def _params(self, rows: PreparedPlain, settings: Mapping[str, Any]) -> dict[str, Any]:
        params = {**self.params, **self._given(rows, settings)}
        if "class_weight" in params:
            weights = self._class_weight(params["class_weight"], rows.table.schema)
            params["class_weight"] = weights
        return params

    def _class_weight(self, given: Any, schema: pa.Schema) -> Any:
        """Return weights by the places of classes, as the estimator is trained on them.

        Weights by class are text where they come from JSON; one that is not named weighs 1.
        Anything else is scikit-learn's own affair.
        """
        if not isinstance(given, dict) or self.predicts == "regression":
            return given
        named = self.label_classes(schema)
        classes = range(self._n_classes()) if named is None else named[1].to_pylist()
        is_text = any(isinstance(each, str) for each in classes)
        places = {_spelled(each, is_text): place for place, each in enumerate(classes)}
        if unknown := [each for each in given if _spelled(each, is_text) not in places]:
            names = [str(each) for each in classes]
            raise InputError(
                f"class_weight names {unknown[0]!r}, which is none of the classes: "
                f"{', '.join(names)}.{did_you_mean(str(unknown[0]), names)}"
            )
        weights = dict.fromkeys(range(len(classes)), 1.0)
        return weights | {places[_spelled(each, is_text)]: w for each, w in given.items()}

    def _enough(self, train: np.ndarray) -> Skip | None:
        count = int(train.sum())
        return Skip(f"too few rows: {count} of {self.min_rows}") if count < self.min_rows else None

    def _design(self, rows: PreparedPlain, train: np.ndarray, *, one_hot: bool) -> Design:
        """Return how features become numbers, as the rows trained on say."""
        columns = self._choose_features(rows.table.schema, rows.context.key_columns)
        table = with_calendar(rows.table.filter(pa.array(train)), columns.names)
        categories = {name: find_categories(table.column(name)) for name in columns.categorical}
        found = feature_matrix(table, columns.names, categories).astype(np.float64)
        found = Design.usable(found, one_hot=one_hot)
        fills = []
        for place, name in enumerate(columns.names):
            present = found[~np.isnan(found[:, place]), place]
            # No code is -1: a tree can tell what is missing from all categories.
            middle = float(np.median(present)) if len(present) else 0.0
            fills.append(-1.0 if name in categories else middle)
        return Design(
            names=columns.names, categories=categories, fills=tuple(fills), one_hot=one_hot
        )


def _spelled(value: Any, is_text: bool) -> str:
    """Return a class as a key of JSON has it: true, where Python has True."""
    return str(value) if is_text else str(value).lower()


class Linear(_ScikitLearnTrainer):
    """Train a linear model: Ridge of scikit-learn, and LogisticRegression for classes.

    Features are scaled to one variance. Missing values are the median of the rows trained on, and a
    category is a column of its own.

    Example:
        >>> Linear(label="sales", params={"alpha": 10}).kind
        'linear'
    """

    model_config = ConfigDict(title="Linear model")

    kind: Literal["linear"] = kind_field("linear")

    @property
    def modules(self) -> tuple[str, ...]:
        """What is imported to train."""
        return ("sklearn.linear_model",)

    def _estimator(self) -> type[Any]:
        models = _scikit_learn("linear_model")
        is_number = self.predicts == "regression"
        found: type[Any] = models.Ridge if is_number else models.LogisticRegression
        return found

    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,  # noqa: ARG002 (no matter to this one)
        settings: Mapping[str, Any],
    ) -> LinearModel | Skip:
        if (skip := self._enough(train)) is not None:
            return skip
        design = self._design(rows, train, one_hot=True)
        matrix, labels = design.matrix(rows.table.filter(pa.array(train))), rows.labels[train]
        centres, scales = _centres_and_scales(matrix)
        scaled = (matrix - centres) / scales
        n_columns = scaled.shape[1]
        if not n_columns:
            # Of categories alone, and each is missing in every row: no column is one to Ridge.
            scaled = np.zeros((len(labels), 1))
        params = self._params(rows, settings)
        if self.predicts == "regression":
            fitted = self._estimator()(**params).fit(scaled, labels)
            weights, intercepts = fitted.coef_[:, None], np.array([fitted.intercept_])
        else:
            n_classes, met = self._n_classes(), np.unique(labels.astype(np.int64))
            if len(met) == 1:  # which LogisticRegression refuses
                weights = np.zeros((scaled.shape[1], n_classes))
                intercepts = np.where(np.arange(n_classes) == met[0], 0.0, _NOT_MET)
                if self.predicts == "binary":
                    weights, intercepts = weights[:, :1], np.diff(intercepts)
            else:
                fitted = self._estimator()(**params).fit(scaled, labels.astype(np.int64))
                weights, intercepts = _of_classes(fitted, n_classes, self.predicts)
        return LinearModel(
            design=design,
            centres=centres,
            scales=scales,
            weights=weights[:n_columns],
            intercepts=intercepts,
            link={"regression": "identity", "binary": "logistic", "multiclass": "softmax"}[  # type: ignore[arg-type]
                self.predicts
            ],
        )


def _centres_and_scales(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and standard deviations of columns, to the bit as StandardScaler has them.

    Deviations by the corrected algorithm of two passes, and 1 for a column whose deviations may all
    be rounding: Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983).
    """
    count, epsilon = len(matrix), np.finfo(np.float64).eps
    centres = matrix.sum(axis=0) / count
    deviations = matrix - centres
    correction = deviations.sum(axis=0) ** 2 / count
    variances = ((deviations**2).sum(axis=0) - correction) / count
    is_constant = variances <= count * epsilon * variances + (count * centres * epsilon) ** 2
    return centres, np.where(is_constant, 1.0, np.sqrt(np.maximum(variances, 0.0)))


def _of_classes(fitted: Any, n_classes: int, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and intercepts of a classifier for all classes."""
    coefficients, intercepts = fitted.coef_.T, fitted.intercept_
    if task == "binary":
        return coefficients, intercepts
    if coefficients.shape[1] == 1:  # two classes, of which the second has the weights
        coefficients = np.hstack([np.zeros_like(coefficients), coefficients])
        intercepts = np.append(0.0, intercepts)
    weights = np.zeros((len(coefficients), n_classes))
    all_intercepts = np.full(n_classes, _NOT_MET)
    weights[:, fitted.classes_] = coefficients
    all_intercepts[fitted.classes_] = intercepts
    return weights, all_intercepts


class RandomForest(_ScikitLearnTrainer):
    """Train a random forest of scikit-learn.

    Missing values are the median of the rows trained on, and a category is a number.

    Example:
        >>> RandomForest(label="sales", params={"n_estimators": 50}).kind
        'random_forest'
    """

    model_config = ConfigDict(title="Random forest")

    kind: Literal["random_forest"] = kind_field("random_forest")

    @property
    def modules(self) -> tuple[str, ...]:
        """What is imported to train."""
        return ("sklearn.ensemble",)

    def _estimator(self) -> type[Any]:
        ensemble = _scikit_learn("ensemble")
        found: type[Any] = (
            ensemble.RandomForestRegressor
            if self.predicts == "regression"
            else ensemble.RandomForestClassifier
        )
        return found

    def _fit(
        self,
        rows: PreparedPlain,
        train: np.ndarray,
        test: np.ndarray | None,  # noqa: ARG002 (no matter to this one)
        settings: Mapping[str, Any],
    ) -> ForestModel | Skip:
        if (skip := self._enough(train)) is not None:
            return skip
        design = self._design(rows, train, one_hot=False)
        matrix = design.matrix(rows.table.filter(pa.array(train))).astype(np.float32)
        params = {
            "random_state": rows.context.seed,
            "n_jobs": rows.context.threads,
            **self._params(rows, settings),
        }
        labels, is_number = rows.labels[train], self.predicts == "regression"
        forest = self._estimator()(**params)
        # It adds all numbers up to look for infinite ones, and looks at each where the sum is one.
        with np.errstate(over="ignore", invalid="ignore"):
            forest.fit(matrix, labels if is_number else labels.astype(np.int64))
        if is_number:
            return _forest(forest, design, np.arange(1), 1, is_binary=False)
        is_binary = self.predicts == "binary"
        return _forest(forest, design, forest.classes_, self._n_classes(), is_binary=is_binary)


def _forest(
    fitted: Any, design: Design, outputs: np.ndarray, n_outputs: int, *, is_binary: bool
) -> ForestModel:
    """Return the trees of a forest one after another."""
    trees = [estimator.tree_ for estimator in fitted.estimators_]
    counts = [tree.node_count for tree in trees]
    roots = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)
    values = np.zeros((sum(counts), n_outputs))
    values[:, outputs] = np.concatenate([tree.value[:, 0, :] for tree in trees])
    if n_outputs > 1:
        values /= values.sum(axis=1, keepdims=True)

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(tree, name) for tree in trees])

    def nodes(name: str) -> np.ndarray:
        shifted = [getattr(tree, name) + root for tree, root in zip(trees, roots, strict=True)]
        return np.concatenate(shifted).astype(np.int32)

    features = joined("feature").astype(np.int32)
    return ForestModel(
        design=design,
        roots=roots,
        features=np.where(joined("children_left") < 0, -1, features).astype(np.int32),
        thresholds=joined("threshold"),
        left=nodes("children_left"),
        right=nodes("children_right"),
        values=values,
        is_binary=is_binary,
    )


def _scikit_learn(module: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise InputError(
            "Linear models and random forests need scikit-learn: install partwise[sklearn]."
        ) from error
