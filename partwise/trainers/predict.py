"""Predictions for models that say what their features are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partwise.connector.data_connector import DataConnector
from partwise.errors import InputError
from partwise.models.serdes import library_of
from partwise.tables.calendar import with_calendar
from partwise.tables.features import find_columns
from partwise.trainers.ready.predict import predict_ready

if TYPE_CHECKING:
    from partwise.connector.context import PartitionContext

_CONSTANT = "const"


def default_predict(
    data: DataConnector,
    model: Any,
    context: PartitionContext,
) -> Any:
    """Predict a partition where the user gave no `predict` function.

    Boosters of LightGBM and XGBoost take their features by name, with the categories of training;
    so do exports.
    Other models need a `predict`, and to say what their features are: as scikit-learn's and the
    wrappers of LightGBM and XGBoost do (`feature_names_in_`), CatBoost's (`feature_names_`), or
    results of statsmodels, whose formula takes what it names of all columns.

    Returns:
        What the model predicts: shape (n,), or (n, classes) for a Booster of several classes.

    Raises:
        ColumnError: The data lacks features of the model, or their types do not fit.
        InputError: The model does not say what its features are.
    """
    library = library_of(model)
    if library is None and hasattr(model, "signature"):
        return model.predict(data.to_arrow())  # an export, which says what it takes
    if (found := predict_ready(data, model, context.threads)) is not None:
        return found
    table = data.to_arrow()
    # Of a formula the names are terms, such as C(line)[T.2], and not columns: it reads the frame.
    if _has_formula(model):
        return model.predict(DataConnector(table).to_pandas())
    names = _names_of_features(model)
    if names is None or not hasattr(model, "predict"):
        raise InputError(
            f"A {type(model).__module__}.{type(model).__qualname__} does not say what its features "
            "are: pass predict=, a function of (data, model, context)."
        )
    # What statsmodels' add_constant has added, where it is not a column of the data.
    given = [name for name in names if name != _CONSTANT or name in table.column_names]
    columns = find_columns(given, table.schema)
    frame = DataConnector(with_calendar(table, columns)).to_pandas()[columns]
    for place in (place for place, name in enumerate(names) if name not in given):
        frame.insert(place, _CONSTANT, 1.0)
    return model.predict(frame)


def _names_of_features(model: Any) -> list[str] | None:
    """Return what a model says its features are; None: it does not."""
    for attribute in ("feature_names_in_", "feature_names_"):
        if (names := getattr(model, attribute, None)) is not None:
            return [str(name) for name in names]
    fitted = _fitted_by_statsmodels(model)
    if fitted is None or getattr(fitted, "exog", None) is None:
        return None
    return [str(name) for name in fitted.exog_names]


def _has_formula(model: Any) -> bool:
    return getattr(_fitted_by_statsmodels(model), "formula", None) is not None


def _fitted_by_statsmodels(results: Any) -> Any:
    """Return the model behind results of statsmodels; None: they are none."""
    is_theirs = type(results).__module__.startswith("statsmodels.")
    return getattr(results, "model", None) if is_theirs else None
