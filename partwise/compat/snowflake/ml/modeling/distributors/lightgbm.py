"""What stands at `snowflake.ml.modeling.distributors.lightgbm`."""

from collections.abc import Mapping
from typing import Any

from partwise.compat.snowflake.boosting import BoostingEstimator, BoostingScalingConfig
from partwise.engine.scaling import ScalingConfig
from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from partwise.trainers.ready.lightgbm import lightgbm_names

LightGBMScalingConfig = BoostingScalingConfig


class LightGBMEstimator(BoostingEstimator):
    """One LightGBM model on all rows; `BoostingEstimator` says what it takes."""

    _kind = DistributedLightGBM
    _rounds_name = "num_iterations"
    _stopping_name = "early_stopping_round"

    def __init__(
        self,
        n_estimators: int = 100,
        objective: str = "regression",
        params: Mapping[str, Any] | None = None,
        scaling_config: LightGBMScalingConfig | ScalingConfig | None = None,
    ) -> None:
        # By first names, so that an alias in `params` overrides both.
        super().__init__(n_estimators, objective, lightgbm_names(params or {}), scaling_config)
