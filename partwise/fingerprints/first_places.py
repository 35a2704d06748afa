"""Where classes and functions of partwise's own stood when fingerprints first named them.

A fingerprint names what is not the user's own code by its module. A class that moves keeps the name
that it had, so that a run which an earlier release began goes on.
"""

_READY = ("boosting", "lightgbm", "naive", "scikit_learn", "stats_forecast", "xgboost")
_FIRST = {
    "partwise.exports.trees.lightgbm": "partwise.exports.lightgbm.exporter",
    "partwise.exports.trees.native": "partwise.exports.native",
    "partwise.exports.trees.xgboost": "partwise.exports.xgboost.exporter",
    **{f"partwise.trainers.ready.{name}": f"partwise.trainers.{name}" for name in _READY},
    **{
        f"partwise.trainers.choosing.{name}": f"partwise.trainers.{name}"
        for name in ("best", "tuned")
    },
    "partwise.trainers.ranks.boosting": "partwise.trainers.distributed_boosting",
    "partwise.trainers.ranks.lightgbm": "partwise.trainers.distributed_lightgbm",
    "partwise.trainers.ranks.xgboost": "partwise.trainers.distributed_xgboost",
    "partwise.trainers.ranks.torch": "partwise.trainers.torch_distributor",
    "partwise.ranks.context": "partwise.connector.rank_context",
    "partwise.ranks.current_context": "partwise.connector.current_context",
    "partwise.ranks.script_context": "partwise.connector.script_context",
}


def first_place(module: str) -> str:
    """Return the module in which fingerprints first met what now stands in this one.

    Example:
        >>> first_place("partwise.trainers.ready.lightgbm")
        'partwise.trainers.lightgbm'
    """
    return _FIRST.get(module, module)
