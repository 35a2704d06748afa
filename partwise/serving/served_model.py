"""A model that answers: rows as JSON or Arrow has them, to predictions.

What it predicts is what `run_inference` predicts with the same model, to the bit. The general way
is that of an inference. Numbers and text of JSON take a shorter one to the same matrix of features,
since to make columns of Arrow costs five times as much as to predict a row.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import returned_table
from partwise.connector.trained_rows import with_class, with_trained_categories
from partwise.errors import ColumnError, InputError, PartwiseError
from partwise.formatting import did_you_mean
from partwise.models.onnx_model import OnnxModel
from partwise.models.signature import Signature, feeds_of_matrix
from partwise.serving.columns import columns_of_json, source_of
from partwise.serving.questions import Values
from partwise.tables.calendar import SEPARATOR, zones_among
from partwise.tables.classes import classes_among
from partwise.tables.column_names import names_in_words
from partwise.tables.dictionaries import decoded_column
from partwise.tables.features import REFUSED_BY_LIGHTGBM, REFUSED_BY_XGBOOST, feature_names
from partwise.trainers.predict import default_predict

_OVERHEAD_BYTES = 64 * 1024
"""What a session of onnxruntime takes beside the model's own bytes, about; measured on trees."""

_NUMBERS = {int, float, type(None)}
_TEXTS = {str, type(None)}


class ServedModel:
    """A model that is ready to predict, from several threads at a time."""

    def __init__(self, model: Any, categories: pa.Table | None, content_bytes: int) -> None:
        """`content_bytes`: of its files."""
        self._model = model
        self._categories = categories
        self._context = PartitionContext()
        self.size_bytes = _OVERHEAD_BYTES + 2 * content_bytes
        self.signature: Signature | None = None
        """Of an export; None: it is a model as it was trained."""
        if isinstance(model, OnnxModel):
            self.signature = model.signature
        self.column_names = _column_names(model, self.signature)
        """The columns of features that it takes; None: it does not say."""
        names = self.column_names or ()
        self.sources = frozenset((*names, *map(source_of, names)))
        """Those, and what they are made of."""
        known = self.sources.union(*map(_spellings, self.sources))
        self._known = None if self.column_names is None else known
        named = None if categories is None else classes_among(categories)
        self._has_classes = named is not None
        self._encoders = _encoders(self.signature)

    def check_columns(self, names: Collection[str], also_known: Collection[str]) -> None:
        """Refuse columns that the model does not know: a misspelled one would be "missing".

        Raises:
            ColumnError: There is such a column, beside those in `also_known`.
        """
        if self._known is None:
            return
        unknown = [
            name
            for name in names
            if name not in self._known
            and name not in also_known
            and self._known.isdisjoint(_spellings(name))
        ]
        if unknown:
            hint = did_you_mean(unknown[0], sorted(self._known))
            raise ColumnError(
                f"The model does not know the columns {names_in_words(unknown)}.{hint} Leave them "
                'out, or send extra="ignore".'
            )

    def predict(self, columns: Mapping[str, Values], n_rows: int) -> dict[str, np.ndarray]:
        """Predict rows.

        Args:
            columns: Those of the model, and others, which are not looked at.
            n_rows: The length of each.

        Returns:
            Arrays of shape (n,) by name, as the predictions of a run have them.

        Raises:
            ColumnError: A column is missing, or its values do not fit.
            InputError: The model refuses the rows, or fails with them.
        """
        try:
            outcome = self._predict_short(columns, n_rows)
            if outcome is None:
                outcome = self._predict(columns, n_rows)
        except PartwiseError:
            raise
        except Exception as error:
            raise InputError(
                f"The model failed with these rows: it raised {type(error).__name__}."
            ) from error
        return _outputs(outcome)

    def _predict_short(self, columns: Mapping[str, Values], n_rows: int) -> Any:
        """Predict with an export whose features are numbers or text, as JSON has them.

        None: the rows, or the model, need the general way, which also says what is wrong.
        """
        if self.signature is None or self._encoders is None or self._has_classes or not n_rows:
            return None
        matrix = np.empty((n_rows, len(self._encoders)), np.float64)
        for place, (name, codes) in enumerate(self._encoders):
            values = columns.get(name)
            if type(values) is not list:
                return None
            if codes is None:
                if not _NUMBERS.issuperset(map(type, values)):
                    return None
                # None becomes NaN; whole numbers are rounded as Arrow casts them.
                matrix[:, place] = values
            else:
                if not _TEXTS.issuperset(map(type, values)):
                    return None
                matrix[:, place] = [codes.get(value, np.nan) for value in values]
        outputs = self._model.run(feeds_of_matrix(self.signature, matrix))
        return self.signature.predictions(outputs)

    def _predict(self, columns: Mapping[str, Values], n_rows: int) -> Any:
        trained = self._categories
        encoded = frozenset() if trained is None else frozenset(trained.column_names)
        zones = {} if trained is None else zones_among(trained)
        times = _time_columns(self._model, self.column_names, zones)
        table = columns_of_json(columns, n_rows, encoded=encoded, times=times)
        rows = with_trained_categories(DataConnector(table), trained)
        return with_class(default_predict(rows, self._model, self._context), trained)


def _outputs(outcome: Any) -> dict[str, np.ndarray]:
    """Return predictions by name, as `run_inference` names them."""
    if isinstance(outcome, np.ndarray) and outcome.ndim == 1:
        return {"prediction": outcome}
    table = returned_table(outcome, "prediction")
    return {name: _array(table.column(name)) for name in table.column_names}


def _array(column: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_dictionary(column.type):
        # Arrow (26.0) would give a null the value of another row.
        column = decoded_column(column)
    values: np.ndarray = column.to_numpy()
    return values


def _encoders(signature: Signature | None) -> list[tuple[str, dict[str, float] | None]] | None:
    """Return for each feature its column and the codes of its text; None: there is more to do."""
    if signature is None or signature.layout == "custom":
        return None
    found: list[tuple[str, dict[str, float] | None]] = []
    for feature in signature.features:
        if SEPARATOR in feature.name:
            return None
        codes = None
        if feature.categories is not None:
            if not all(isinstance(each, str) for each in feature.categories):
                return None
            codes = {str(text): float(code) for code, text in enumerate(feature.categories)}
        found.append((feature.name, codes))
    return found


def _column_names(model: Any, signature: Signature | None) -> tuple[str, ...] | None:
    """Return the columns that a model takes; None: nobody knows."""
    if signature is not None:
        return tuple(signature.column_names()) or None
    if (design := getattr(model, "design", None)) is not None:
        return tuple(design.names)
    for attribute in ("feature_name", "feature_names", "feature_names_in_", "feature_names_"):
        names = getattr(model, attribute, None)
        if callable(names):
            names = names()
        if names is not None and len(names):
            return tuple(map(str, names))
    return None


def _spellings(name: str) -> set[str]:
    """Return how libraries spell the name of a column, some characters of which they refuse.

    LightGBM itself has _ in place of spaces.
    """
    ours = (feature_names([name], each)[0] for each in (REFUSED_BY_LIGHTGBM, REFUSED_BY_XGBOOST))
    return {re.sub(r"\s", "_", name), *ours}


def _time_columns(
    model: Any, names: Collection[str] | None, zones: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the columns of which a model looks at dates or times, with the zone of training."""
    found: dict[str, str | None] = {
        source: zones.get(source) for name in names or () if (source := source_of(name)) != name
    }
    inside = model
    while inside is not None:
        if isinstance(time := getattr(inside, "time", None), str):
            found.setdefault(time, zones.get(time))
        inside = getattr(inside, "model", None)
    return found
