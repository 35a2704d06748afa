"""What answers for a partition that has no model at all: a constant, or a trainer of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from partwise.outcomes import Skip
from partwise.settings import Settings, kind_field

if TYPE_CHECKING:
    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.trainers.ready.every import ReadyTrainer


class Constant(Settings):
    """Predict the same value for every row.

    Example:
        >>> Constant(0).value
        0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, title="Constant")

    kind: Literal["constant"] = kind_field("constant")
    value: bool | int | float | str = Field(description="What is predicted.", kw_only=False)


def fall_back(
    fallback: Constant | ReadyTrainer, data: DataConnector, context: PartitionContext
) -> Any:
    """Return the predictions for rows without a trained model.

    A trainer is fitted on those of the rows that have a label, and predicts all of them.

    Returns:
        An array, or a Skip where the trainer has too few rows.
    """
    if isinstance(fallback, Constant):
        # As objects, texts keep zeros at their end.
        kind = object if isinstance(fallback.value, str) else None
        return np.array([fallback.value], kind).repeat(data.to_arrow().num_rows)
    # Children that use no trainer load none.
    from partwise.trainers.predict import default_predict

    made = fallback(data, context)
    return made if isinstance(made, Skip) else default_predict(data, made.model, context)
