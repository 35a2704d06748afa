"""Models of partwise's own: plain values that predict by themselves.

They need no library where they are used, and are kept as JSON (`partwise.models.serdes.plain`).
"""

import base64
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError, InputError
from partwise.tables.features import feature_matrix, find_columns, within_single
from partwise.tables.steps import StepScale

Link = Literal["identity", "logistic", "softmax"]
"""What makes predictions of a linear model's sums."""


LARGEST_LINEAR = 1e100
"""What of features and labels a linear model can compute with."""


class PlainModel:
    """A model that is a frozen dataclass of plain values and arrays of numbers."""

    KIND: ClassVar[str]

    @property
    def format_version(self) -> int:
        """The least version of `PlainSerde` that reads the model."""
        return 1

    @abstractmethod
    def predict(self, table: pa.Table) -> np.ndarray:
        """Predict rows.

        The table has the needed columns in any order, among others. Doubles of shape (n,), or (n,
        classes) for several classes.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the model as JSON has it."""
        values = {
            field.name: _to_json(getattr(self, field.name))
            for field in fields(self)  # type: ignore[arg-type]
        }
        return {"kind": self.KIND, **values}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConstantModel(PlainModel):
    """Predicts the same for every row."""

    KIND: ClassVar[str] = "constant"

    values: np.ndarray
    """A number of shape (1,), or the probabilities of classes, of shape (classes,)."""

    def predict(self, table: pa.Table) -> np.ndarray:
        """Predict rows; see `PlainModel.predict`."""
        if len(self.values) == 1:
            return np.full(table.num_rows, self.values[0])
        return np.tile(self.values, (table.num_rows, 1))


def steps_of(table: pa.Table, time: str, scale: StepScale) -> np.ndarray:
    """Return by how many steps rows are after the last one trained on; see `StepScale.steps`."""
    if time not in table.column_names:
        raise ColumnError(f"The data lacks the time column of the model: {time!r}.")
    return scale.steps(table.column(time), f"The time column {time!r}")


def check_steps(steps: np.ndarray, horizon: int) -> None:
    """Refuse rows that are not within so many steps after the last one trained on."""
    if len(steps) and not (steps.min() >= 1 and steps.max() <= horizon):
        wrong = steps.min() if steps.min() < 1 else steps.max()
        raise InputError(
            f"The model predicts the {horizon} steps of time after the last row that "
            f"it was trained on, and a row is at step {wrong}: leave such rows out, or train "
            "with a longer horizon."
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastModel(PlainModel):
    """Predicts by how many steps of time a row is after the last row trained on."""

    KIND: ClassVar[str] = "forecast"

    time: str
    """The time column."""
    scale: StepScale
    values: np.ndarray
    """For the steps after the last row, shape (steps,)."""
    repeats: bool
    """Whether they start again at their end, and stand before their start as well."""

    @property
    def format_version(self) -> int:
        """See `PlainModel.format_version`."""
        if self.scale.last_instant is not None:
            return 4
        return 2 if self.scale.unit == "business_days" else 1

    def predict(self, table: pa.Table) -> np.ndarray:
        """Predict rows; see `PlainModel.predict`."""
        steps = steps_of(table, self.time, self.scale)
        if self.repeats:
            return np.asarray(self.values[(steps - 1) % len(self.values)])
        check_steps(steps, len(self.values))
        return np.asarray(self.values[steps - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How columns become the numbers that a model of scikit-learn takes."""

    names: tuple[str, ...]
    """The features, in the model's order."""
    categories: Mapping[str, list[Any]]
    """Those of the categorical ones, as training met them."""
    fills: tuple[float, ...]
    """What stands for a missing value of each feature."""
    one_hot: bool
    """Whether a column of 0 and 1 is made of each category; else a category is its code."""

    @staticmethod
    def usable(found: np.ndarray, *, one_hot: bool) -> np.ndarray:
        """Return features with NaN for what such a model cannot use: infinities, as missing ones.

        A linear model can neither square nor add up numbers beyond 1e100; the trees of scikit-learn
        are of single precision, where what is beyond is the largest number. `found` are doubles of
        any shape; `one_hot` says that the model is the linear one.
        """
        if one_hot:
            return np.where(np.abs(found) <= LARGEST_LINEAR, found, np.nan)
        return np.where(np.isinf(found), np.nan, within_single(found))

    def matrix(self, table: pa.Table) -> np.ndarray:
        """Return features as doubles of shape (n, k), without NaN."""
        find_columns(self.names, table.schema)
        found = feature_matrix(table, self.names, self.categories).astype(np.float64)
        found = self.usable(found, one_hot=self.one_hot)
        columns = []
        for place, name in enumerate(self.names):
            column = found[:, place]
            if self.one_hot and name in self.categories:
                codes = np.arange(len(self.categories[name]))
                columns.append((column[:, None] == codes).astype(np.float64))
            else:
                filled = np.where(np.isnan(column), self.fills[place], column)
                columns.append(filled[:, None])
        return np.hstack(columns) if columns else np.empty((table.num_rows, 0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearModel(PlainModel):
    """Sums of weighted features, each of which is first centred and scaled.

    The centres stand beside the weights: folded into the intercepts, they would leave of features
    such as 2^53 + 3 nothing but what is rounded away.
    """

    KIND: ClassVar[str] = "linear"

    design: Design
    centres: np.ndarray
    """What each feature is less by, shape (k,)."""
    scales: np.ndarray
    """What it is then divided by, shape (k,)."""
    weights: np.ndarray
    """Shape (k, outputs)."""
    intercepts: np.ndarray
    """Shape (outputs,)."""
    link: Link

    @property
    def format_version(self) -> int:
        """See `PlainModel.format_version`."""
        return 2

    def predict(self, table: pa.Table) -> np.ndarray:
        """Predict rows; see `PlainModel.predict`."""
        scaled = (self.design.matrix(table) - self.centres) / self.scales
        sums = scaled @ self.weights + self.intercepts
        if self.link == "softmax":
            # Less the largest of each row, so that no power overflows; the shares are the same.
            powers = np.exp(sums - sums.max(axis=1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        if self.link == "identity":
            return np.asarray(sums[:, 0])
        # As tanh, which does not overflow.
        return np.asarray(0.5 * (1 + np.tanh(sums[:, 0] / 2)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForestModel(PlainModel):
    """The mean of decision trees, whose nodes stand one after another, t of them."""

    KIND: ClassVar[str] = "forest"

    design: Design
    roots: np.ndarray
    """The first node of each tree, shape (trees,)."""
    features: np.ndarray
    """The feature that a node looks at, shape (t,); -1: it is a leaf."""
    thresholds: np.ndarray
    """A row whose feature, as a single number, is at most this goes to the left; shape (t,)."""
    left: np.ndarray
    """Nodes, shape (t,)."""
    right: np.ndarray
    """Nodes, shape (t,)."""
    values: np.ndarray
    """Shape (t, outputs)."""
    is_binary: bool
    """Whether the second of two outputs is what is predicted."""

    def predict(self, table: pa.Table) -> np.ndarray:
        """Predict rows; see `PlainModel.predict`."""
        # As scikit-learn's trees, which compare single numbers with thresholds that are doubles.
        rows = self.design.matrix(table).astype(np.float32)
        total = np.zeros((len(rows), self.values.shape[1]))
        for root in self.roots:
            nodes = np.full(len(rows), root)
            going = np.arange(len(rows))
            while len(going):
                at = nodes[going]
                inner = self.features[at] >= 0
                going, at = going[inner], at[inner]
                is_left = rows[going, self.features[at]] <= self.thresholds[at]
                nodes[going] = np.where(is_left, self.left[at], self.right[at])
            total += self.values[nodes]
        mean = total / len(self.roots)
        if self.is_binary:
            return np.asarray(mean[:, 1])
        return np.asarray(mean[:, 0] if mean.shape[1] == 1 else mean)


def _to_json(value: Any) -> Any:
    """Return a field of a model as JSON has it; models inside stay what they are."""
    if isinstance(value, Design):
        return asdict(value)
    if isinstance(value, StepScale):
        return value.to_json()
    return _array_to_json(value) if isinstance(value, np.ndarray) else value


def _array_to_json(array: np.ndarray) -> dict[str, Any]:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    return {
        "dtype": little.dtype.str,
        "shape": list(little.shape),
        "base64": base64.b64encode(little.tobytes()).decode(),
    }
