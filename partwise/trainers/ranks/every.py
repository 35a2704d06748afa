"""The trainers of one model on all rows, by name."""

from typing import Annotated

from pydantic import Field

from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from partwise.trainers.ranks.xgboost import DistributedXGBoost

DISTRIBUTED_TRAINERS: dict[str, type[DistributedLightGBM] | type[DistributedXGBoost]] = {
    "lightgbm": DistributedLightGBM,
    "xgboost": DistributedXGBoost,
}
"""The trainers by the name of their library."""

DistributedSettings = Annotated[
    DistributedLightGBM | DistributedXGBoost, Field(discriminator="kind")
]
"""A trainer as a document has it."""
