"""An experiment: a name that the IDs of its runs begin with."""

import uuid
from typing import Any, Protocol, runtime_checkable

from partwise.compat.azureml.core.run import Run
from partwise.compat.azureml.core.script_run_config import ScriptRunConfig
from partwise.compat.azureml.core.workspace import Workspace
from partwise.errors import InputError


@runtime_checkable
class Mapped(Protocol):
    """What is run by `map_partitions`, such as a `ParallelRunStep`."""

    append_row_file_name: str

    def arguments_of_map(self, workspace: Workspace) -> dict[str, Any]:
        """Return the arguments of `map_partitions`."""


@runtime_checkable
class Submitted(Protocol):
    """What is run by `run_script`: a `ScriptRunConfig` or an estimator."""

    def arguments_of_run(self, workspace: Workspace) -> dict[str, Any]:
        """Return the arguments of `run_script`."""


class Experiment:
    """Runs of one name in the store of a workspace."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.workspace, self.name = workspace, name

    def submit(self, config: Submitted | Mapped, tags: object = None) -> Run:
        """Start a run in a process of its own, and return at once; it ends with this process.

        Raises:
            InputError: It cannot be run, or an argument cannot be used; nothing was started.
        """
        if tags:
            raise InputError("tags= has no counterpart: a run has its ID. Leave it out.")
        # A script that only logs needs nothing of flows, nor of Prefect.
        from partwise.flows import map_partitions, run_script

        own = {"run_id": f"{self.name}_{uuid.uuid4().hex[:8]}", "store": self.workspace.store}
        if isinstance(config, Mapped):
            given = config.arguments_of_map(self.workspace)
            return Run(map_partitions.start(**given, **own), self, config.append_row_file_name)
        if isinstance(config, Submitted):
            return Run(run_script.start(**config.arguments_of_run(self.workspace), **own), self)
        raise InputError(
            f"A {type(config).__name__} cannot be submitted: give a {ScriptRunConfig.__name__}, an "
            "estimator or a ParallelRunStep; of several steps submit one after the other."
        )
