"""The built-in trainers of one kind of model."""

from partwise.trainers.lightgbm import LightGBMTrainer
from partwise.trainers.naive import LastValue, Mean, SeasonalNaive
from partwise.trainers.scikit_learn import Linear, RandomForest
from partwise.trainers.scored import ScoredTrainer
from partwise.trainers.stats_forecast import StatsForecast
from partwise.trainers.xgboost import XGBoostTrainer

ReadyTrainer = (
    LightGBMTrainer
    | XGBoostTrainer
    | Linear
    | RandomForest
    | SeasonalNaive
    | LastValue
    | Mean
    | StatsForecast
)
"""Any of them, as settings have it."""

READY_TRAINERS: dict[str, type[ScoredTrainer]] = {
    "lightgbm": LightGBMTrainer,
    "xgboost": XGBoostTrainer,
    "linear": Linear,
    "random_forest": RandomForest,
    "seasonal_naive": SeasonalNaive,
    "last_value": LastValue,
    "mean": Mean,
    "statsforecast": StatsForecast,
}
"""All of them by their `kind`."""
