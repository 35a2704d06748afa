"""Libraries that are slow to import, of which processes that come later may find some loaded."""

import sys

LIBRARIES = (
    *("pandas", "sklearn.ensemble", "sklearn.linear_model", "scipy.stats", "lightgbm", "xgboost"),
    *("torch", "optuna", "partwise.trainers"),
)
"""What the next child may find loaded when one has used it: slow to import, and neither a thread
is started nor a device opened by that."""


def loaded_libraries() -> frozenset[str]:
    """Return those that this process has imported so far."""
    return frozenset(LIBRARIES) & sys.modules.keys()
