"""Trainers: train functions with typed settings, ready for use without code."""

from typing import Annotated

from pydantic import Field

from partwise.trainers.lightgbm import LightGBMTrainer
from partwise.trainers.predict import default_predict
from partwise.trainers.protocol import Trainer
from partwise.trainers.resolving import resolve_trainer
from partwise.trainers.tuned import Tuned
from partwise.trainers.xgboost import XGBoostTrainer

__all__ = [
    "TRAINERS",
    "Trainer",
    "TrainerSettings",
    "Tuned",
    "LightGBMTrainer",
    "XGBoostTrainer",
    "default_predict",
    "resolve_trainer",
]

TRAINERS: dict[str, type[LightGBMTrainer] | type[XGBoostTrainer]] = {
    "lightgbm": LightGBMTrainer,
    "xgboost": XGBoostTrainer,
}
"""The built-in trainers by their `kind`."""

TrainerSettings = Annotated[LightGBMTrainer | XGBoostTrainer | Tuned, Field(discriminator="kind")]
"""A built-in trainer as a document or a flow parameter has it."""
