"""What stands at `snowflake.ml.modeling.distributors.xgboost.xgboost_estimator`."""

from collections.abc import Callable, Mapping
from typing import Any

from partwise.compat.snowflake.boosting import BoostingEstimator, BoostingScalingConfig
from partwise.engine.scaling import ScalingConfig
from partwise.errors import InputError
from partwise.trainers.ranks.xgboost import DistributedXGBoost

XGBScalingConfig = BoostingScalingConfig


class XGBEstimator(BoostingEstimator):
    """One XGBoost model on all rows; `BoostingEstimator` says what it takes."""

    _kind = DistributedXGBoost
    _rounds_name = "num_boost_round"
    _stopping_name = "early_stopping_rounds"

    def __init__(
        self,
        n_estimators: int = 100,
        objective: str = "reg:squarederror",
        params: Mapping[str, Any] | None = None,
        scaling_config: XGBScalingConfig | ScalingConfig | None = None,
        train_fn_per_worker: Callable[..., Any] | None = None,
    ) -> None:
        if train_fn_per_worker is not None:
            raise InputError(
                "train_fn_per_worker is not taken: pass a function of a rank's context to "
                "train_distributed."
            )
        super().__init__(n_estimators, objective, params, scaling_config)

    def save_model(self, path: str) -> None:
        """Write the booster to a file, in XGBoost's own format."""
        self.get_booster().save_model(path)
