"""What people start: flows that compose the tasks, and the command line.

A flow is imported when it is first asked for: Prefect and Dask take seconds, which help texts and
lists of runs do without.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partwise.flows.compare_models import compare_models
    from partwise.flows.evaluate_predictions import evaluate_predictions
    from partwise.flows.export_models import export_models
    from partwise.flows.export_transformers import export_transformers
    from partwise.flows.find_portfolio import find_portfolio
    from partwise.flows.lifecycle import lifecycle
    from partwise.flows.map_partitions import map_partitions
    from partwise.flows.model_pipeline import model_pipeline
    from partwise.flows.promote_models import promote_models
    from partwise.flows.run_inference import run_inference
    from partwise.flows.run_script import run_script
    from partwise.flows.scale_cluster import scale_cluster
    from partwise.flows.tidy_store import tidy_store
    from partwise.flows.train_distributed import train_distributed
    from partwise.flows.train_models import train_models
    from partwise.flows.tune_model import tune_model
    from partwise.flows.validate_exports import validate_exports

__all__ = [
    "compare_models",
    "evaluate_predictions",
    "export_models",
    "export_transformers",
    "find_portfolio",
    "lifecycle",
    "map_partitions",
    "model_pipeline",
    "promote_models",
    "run_inference",
    "run_script",
    "scale_cluster",
    "tidy_store",
    "train_distributed",
    "train_models",
    "tune_model",
    "validate_exports",
]


class _Flows(ModuleType):
    """A package in which a flow stands in the place of the module that it is named like."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Python sets a module as an attribute of its package once it is imported.
        if name in __all__ and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # As cloudpickle does with plain modules, where a user's function refers to one.
        return importlib.import_module, (self.__name__,)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module(f"{__name__}.{name}")
    return globals()[name]


sys.modules[__name__].__class__ = _Flows
