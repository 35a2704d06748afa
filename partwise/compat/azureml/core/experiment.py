"""An experiment: a name that the IDs of its runs begin with."""

import uuid
from typing import TYPE_CHECKING

from partwise.compat.azureml.core.run import Run
from partwise.compat.azureml.core.script_run_config import ScriptRunConfig
from partwise.compat.azureml.core.workspace import Workspace
from partwise.errors import InputError

if TYPE_CHECKING:
    from partwise.compat.azureml.pipeline.steps import ParallelRunStep
    from partwise.compat.azureml.train.estimator import Estimator


class Experiment:
    """Runs of one name in the store of a workspace."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.workspace, self.name = workspace, name

    def submit(
        self, config: "ScriptRunConfig | Estimator | ParallelRunStep", tags: object = None
    ) -> Run:
        """Start a run in a process of its own, and return at once; it ends with this process.

        Raises:
            InputError: It cannot be run, or an argument cannot be used; nothing was started.
        """
        if tags:
            raise InputError("tags= has no counterpart: a run has its ID. Leave it out.")
        # A script that only logs needs nothing of flows, nor of Prefect.
        from partwise.compat.azureml.pipeline.steps import ParallelRunStep
        from partwise.compat.azureml.train.estimator import Estimator
        from partwise.flows import map_partitions, run_script

        own = {"run_id": f"{self.name}_{uuid.uuid4().hex[:8]}", "store": self.workspace.store}
        if isinstance(config, ParallelRunStep):
            given = config.arguments_of_map(self.workspace)
            return Run(map_partitions.start(**given, **own), self, config.append_row_file_name)
        if isinstance(config, ScriptRunConfig | Estimator):
            return Run(run_script.start(**config.arguments_of_run(self.workspace), **own), self)
        raise InputError(
            f"A {type(config).__name__} cannot be submitted: give a {ScriptRunConfig.__name__}, an "
            "estimator or a ParallelRunStep; of several steps submit one after the other."
        )
