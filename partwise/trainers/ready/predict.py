"""Predictions of the models of ready trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partwise.connector.data_connector import DataConnector
from partwise.models.composite_models import CompositeModel
from partwise.models.serdes import library_of
from partwise.trainers.ready.lightgbm import predict_lightgbm
from partwise.trainers.ready.xgboost import predict_xgboost

if TYPE_CHECKING:
    import pyarrow as pa


def predict_ready(data: DataConnector, model: Any, threads: int = 1) -> Any:
    """Predict rows with a model of a library's own, or of partwise's; None: it is none of these."""
    library = library_of(model)
    if isinstance(model, CompositeModel):

        def inside(rows: pa.Table, each: Any) -> Any:
            return predict_ready(DataConnector(rows), each, threads)

        return model.predict_with(data.to_arrow(), inside)
    if library == "plain":
        return model.predict(data.to_arrow())
    if library == "lightgbm" and hasattr(model, "pandas_categorical"):
        return predict_lightgbm(data, model, threads)
    if library == "xgboost" and hasattr(model, "get_categories"):
        return predict_xgboost(data, model)
    return None
