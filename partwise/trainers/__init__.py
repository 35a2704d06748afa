"""Trainers: train functions with typed settings, ready for use without code."""

from typing import Annotated

from pydantic import Field

from partwise.trainers.best import Best
from partwise.trainers.lightgbm import LightGBMTrainer
from partwise.trainers.naive import LastValue, Mean, SeasonalNaive
from partwise.trainers.predict import default_predict
from partwise.trainers.protocol import Trainer
from partwise.trainers.ready import READY_TRAINERS, ReadyTrainer
from partwise.trainers.resolving import resolve_trainer
from partwise.trainers.scikit_learn import Linear, RandomForest
from partwise.trainers.scored import HoldoutTrainer, libraries_of
from partwise.trainers.stats_forecast import StatsForecast
from partwise.trainers.tuned import Tuned
from partwise.trainers.xgboost import XGBoostTrainer

__all__ = [
    "READY_TRAINERS",
    "TRAINERS",
    "Trainer",
    "TrainerSettings",
    "Best",
    "HoldoutTrainer",
    "LastValue",
    "LightGBMTrainer",
    "Linear",
    "Mean",
    "RandomForest",
    "SeasonalNaive",
    "StatsForecast",
    "Tuned",
    "XGBoostTrainer",
    "default_predict",
    "libraries_of",
    "resolve_trainer",
]

TRAINERS: dict[str, type[LightGBMTrainer] | type[XGBoostTrainer]] = {
    "lightgbm": LightGBMTrainer,
    "xgboost": XGBoostTrainer,
}
"""The trainers of boosted trees by their `kind`."""

TrainerSettings = Annotated[ReadyTrainer | Best | Tuned, Field(discriminator="kind")]
"""A built-in trainer as a document or a flow parameter has it."""
