"""Predictions for models that say what their features are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partwise.connector.data_connector import DataConnector
from partwise.errors import InputError
from partwise.models.serdes import library_of
from partwise.tables.calendar import with_calendar
from partwise.tables.features import find_columns
from partwise.trainers.lightgbm import predict_lightgbm
from partwise.trainers.xgboost import predict_xgboost

if TYPE_CHECKING:
    from partwise.connector.context import PartitionContext


def default_predict(
    data: DataConnector,
    model: Any,
    context: PartitionContext,
) -> Any:
    """Predict a partition where the user gave no `predict` function.

    Boosters of LightGBM and XGBoost take their features by name, with the categories of training;
    so do exports.
    Other models need a `predict` and, as scikit-learn's have, `feature_names_in_`.

    Args:
        data: The partition's rows.
        model: As the training run returned it.
        context: Of the inference run.

    Returns:
        What the model predicts: shape (n,), or (n, classes) for a Booster of several classes.

    Raises:
        ColumnError: The data lacks features of the model, or their types do not fit.
        InputError: The model does not say what its features are.
    """
    library = library_of(model)
    if library is None and hasattr(model, "signature"):
        return model.predict(data.to_arrow())  # an export, which says what it takes
    if library == "plain":
        return model.predict(data.to_arrow())
    if library == "lightgbm" and hasattr(model, "pandas_categorical"):
        return predict_lightgbm(data, model, context.threads)
    if library == "xgboost" and hasattr(model, "get_categories"):
        return predict_xgboost(data, model)
    names = getattr(model, "feature_names_in_", None)
    if names is None or not hasattr(model, "predict"):
        raise InputError(
            f"A {type(model).__module__}.{type(model).__qualname__} does not say what its features "
            "are: pass predict=, a function of (data, model, context)."
        )
    table = data.to_arrow()
    columns = find_columns([str(name) for name in names], table.schema)
    return model.predict(DataConnector(with_calendar(table, columns)).to_pandas()[columns])
