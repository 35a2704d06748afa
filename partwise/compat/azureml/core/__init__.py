"""Names of `azureml.core`."""

from partwise.compat.azureml.core.environment import Environment
from partwise.compat.azureml.core.experiment import Experiment
from partwise.compat.azureml.core.run import Run, ScriptRun
from partwise.compat.azureml.core.runconfig import RunConfiguration
from partwise.compat.azureml.core.script_run_config import ScriptRunConfig
from partwise.compat.azureml.core.workspace import Workspace

__all__ = [
    "Environment",
    "Experiment",
    "Run",
    "RunConfiguration",
    "ScriptRun",
    "ScriptRunConfig",
    "Workspace",
]
