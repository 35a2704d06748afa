"""A script, or a command, with its settings."""

from dataclasses import dataclass
from typing import Any

from partwise.calls.script import MONTH_S
from partwise.compat.azureml.core.environment import Environment
from partwise.compat.azureml.core.runconfig import RunConfiguration, Spread
from partwise.compat.azureml.core.workspace import Workspace
from partwise.errors import InputError


# By slots: `environment`, which is one of run_config, would be passed over where it is set here.
@dataclass(init=False, slots=True)
class ScriptRunConfig:
    """What `Experiment.submit` runs by `run_script`.

    Example:
        >>> config = ScriptRunConfig("project", "train.py", ["--epochs", 3])
        >>> config.arguments_of_run(Workspace())["arguments"]
        ['--epochs', '3']
    """

    source_directory: str | None
    script: str | None
    command: str | list[str] | None
    arguments: list[Any]
    run_config: RunConfiguration
    distributed_job_config: Spread | None
    resume_from: str | None
    max_run_duration_seconds: float | None

    def __init__(
        self,
        source_directory: str | None,
        script: str | None = None,
        arguments: list[Any] | None = None,
        run_config: RunConfiguration | None = None,
        compute_target: Any = None,
        environment: Environment | None = None,
        distributed_job_config: Spread | None = None,
        resume_from: str | None = None,
        max_run_duration_seconds: float | None = MONTH_S,
        command: str | list[str] | None = None,
        docker_runtime_config: object = None,
    ) -> None:
        if docker_runtime_config is not None:
            raise InputError(
                "docker_runtime_config= has no counterpart here: call run_script with "
                "infrastructure=Infrastructure(image=...) on a work pool."
            )
        if bool(script) == bool(command):
            raise InputError(
                f"script={script!r} and command={command!r}: a ScriptRunConfig has one of the two."
            )
        if command and arguments:
            raise InputError("arguments= are those of a script: write them into command=.")
        self.source_directory, self.script, self.command = source_directory, script, command
        self.arguments, self.resume_from = list(arguments or ()), resume_from
        self.max_run_duration_seconds = max_run_duration_seconds
        self.distributed_job_config = distributed_job_config
        self.run_config = run_config or RunConfiguration()
        if compute_target is not None:
            self.run_config.target = compute_target
        if environment is not None:
            self.run_config.environment = environment

    def arguments_of_run(self, workspace: Workspace) -> dict[str, Any]:
        """Return the arguments of `run_script`."""
        settings, spread = self.run_config, self.distributed_job_config
        ranks = spread.arguments() if spread else {"nodes": settings.node_count}
        variables = settings.environment.environment_variables | settings.environment_variables
        seconds = self.max_run_duration_seconds
        return {
            "entry_script": self.script or "",
            "source_directory": self.source_directory or ".",
            "arguments": [str(each) for each in self.arguments],
            "command": self.command or "",
            "resume_from": self.resume_from or "",
            "timeout_s": MONTH_S if seconds is None else seconds,
            "environment": settings.environment.packages,
            "environment_variables": variables,
            "cluster": workspace.cluster(settings.target),
            **ranks,
        }
