"""Trainers: train functions with typed settings, ready for use without code."""

from typing import Annotated

from pydantic import Field

from partwise.trainers.choosing.best import Best
from partwise.trainers.choosing.tuned import Tuned
from partwise.trainers.predict import default_predict
from partwise.trainers.protocol import Trainer
from partwise.trainers.ready.every import READY_TRAINERS, ReadyTrainer
from partwise.trainers.ready.lagged import Lagged
from partwise.trainers.ready.lightgbm import LightGBMTrainer
from partwise.trainers.ready.naive import LastValue, Mean, SeasonalNaive
from partwise.trainers.ready.scikit_learn import Linear, RandomForest
from partwise.trainers.ready.stats_forecast import StatsForecast
from partwise.trainers.ready.xgboost import XGBoostTrainer
from partwise.trainers.resolving import resolve_trainer
from partwise.trainers.scored import HoldoutTrainer, libraries_of

__all__ = [
    "READY_TRAINERS",
    "Trainer",
    "TrainerSettings",
    "Best",
    "HoldoutTrainer",
    "Lagged",
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

TrainerSettings = Annotated[ReadyTrainer | Best | Tuned, Field(discriminator="kind")]
"""A built-in trainer as a document or a flow parameter has it."""
