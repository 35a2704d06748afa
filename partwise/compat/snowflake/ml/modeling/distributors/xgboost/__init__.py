"""What stands at `snowflake.ml.modeling.distributors.xgboost`."""

from partwise.compat.snowflake.ml.modeling.distributors.xgboost.xgboost_estimator import (
    XGBEstimator,
    XGBScalingConfig,
)

__all__ = ["XGBEstimator", "XGBScalingConfig"]
