"""The built-in trainers of one kind of model."""

from partwise.trainers.ready.lagged import Lagged
from partwise.trainers.ready.lightgbm import LightGBMTrainer
from partwise.trainers.ready.naive import LastValue, Mean, SeasonalNaive
from partwise.trainers.ready.scikit_learn import Linear, RandomForest
from partwise.trainers.ready.stats_forecast import StatsForecast
from partwise.trainers.ready.xgboost import XGBoostTrainer
from partwise.trainers.scored import ScoredTrainer

ReadyTrainer = (
    LightGBMTrainer
    | XGBoostTrainer
    | Linear
    | RandomForest
    | SeasonalNaive
    | LastValue
    | Mean
    | StatsForecast
    | Lagged
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
"""Those that need no other trainer, by their `kind`."""
