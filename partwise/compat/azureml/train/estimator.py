"""The estimator: a script with all of its settings in one call."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from partwise.calls.script import MONTH_S
from partwise.compat.azureml.core.environment import Environment
from partwise.compat.azureml.core.runconfig import MpiConfiguration
from partwise.compat.azureml.core.workspace import Workspace
from partwise.environments.environment import Environment as Packages
from partwise.errors import InputError
from partwise.scripts.infrastructure import Infrastructure

# All that theirs knew, the versions of torch up to 2020.
_TOO_OLD = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")

_PRIORITIES = {None: "dedicated", "dedicated": "dedicated", "lowpriority": "low"}


@dataclass(slots=True)
class Estimator:
    """What `Experiment.submit` runs by `run_script`.

    Example:
        >>> estimator = Estimator("project", entry_script="a.py", script_params={"--fast": ""})
        >>> estimator.arguments_of_run(Workspace())["arguments"]
        ['--fast']
    """

    source_directory: str
    _: KW_ONLY
    compute_target: Any = None
    vm_size: str | None = None
    vm_priority: str | None = None
    entry_script: str | None = None
    script_params: dict[str, Any] | None = None
    node_count: int = 1
    process_count_per_node: int = 1
    distributed_backend: str | None = None
    distributed_training: Any = None
    use_gpu: bool = False
    use_docker: bool = True
    """Not used: an image says it."""
    custom_docker_image: str | None = None
    image_registry_details: str | None = None
    """The name of a block, docker-registry-credentials/NAME."""
    user_managed: bool = False
    conda_packages: list[str] | None = None
    pip_packages: list[str] | None = None
    conda_dependencies_file: str | None = None
    pip_requirements_file: str | None = None
    environment_variables: dict[str, str] | None = None
    environment_definition: Environment | None = None
    inputs: dict[str, Any] | None = None
    """By name, as `run_script` takes them."""
    source_directory_data_store: Any = None
    shm_size: str | None = None
    resume_from: str | None = None
    max_run_duration_seconds: float | None = None
    framework_version: str | None = None
    custom_docker_base_image: str | None = None
    pip_requirements_file_path: str | None = None
    conda_dependencies_file_path: str | None = None

    def __post_init__(self) -> None:
        if self.conda_packages:
            raise InputError(
                f"conda_packages={self.conda_packages} are not added one by one: name them in "
                "pip_packages, or write an environment.yml for conda_dependencies_file."
            )
        if self.source_directory_data_store is not None:
            raise InputError(
                "source_directory_data_store= has no counterpart: the source directory is packed "
                "into the run. Leave it out."
            )
        if self.vm_priority not in _PRIORITIES:
            raise InputError(f"vm_priority={self.vm_priority!r} is none of {list(_PRIORITIES)}.")
        if self.framework_version in _TOO_OLD:
            raise InputError(
                f"framework_version={self.framework_version!r} has no wheels for the Python that "
                "partwise needs: leave it out for the torch that is installed, or name a newer "
                "one, such as '2.9'."
            )
        if not isinstance(self.inputs, dict | None):
            raise InputError(
                f"inputs= is a {type(self.inputs).__name__}: give the inputs by name, "
                "{'sales': 'a path or URL'}."
            )

    def arguments_of_run(self, workspace: Workspace) -> dict[str, Any]:
        """Return the arguments of `run_script`."""
        arguments = [
            str(each)
            for name, value in (self.script_params or {}).items()
            for each in ((name,) if value == "" else (name, value))
        ]
        environment = self.environment_definition
        variables = environment.environment_variables if environment else {}
        spread = self._spread()
        seconds = self.max_run_duration_seconds
        return {
            "entry_script": self.entry_script or "",
            "source_directory": self.source_directory,
            "arguments": arguments,
            "nodes": self.node_count,
            "ranks_per_node": spread.process_count_per_node,
            "backend": self._backend(spread),
            "gpus": 1 if self.use_gpu else -1,
            "environment": environment.packages if environment else self._packages(),
            "environment_variables": variables | (self.environment_variables or {}),
            "inputs": self.inputs or {},
            "cluster": workspace.cluster(self.compute_target),
            "resume_from": self.resume_from or "",
            "timeout_s": MONTH_S if seconds is None else seconds,
            "infrastructure": self._infrastructure(),
        }

    def _spread(self) -> MpiConfiguration:
        given = self.distributed_training
        ranks = getattr(given, "process_count_per_node", self.process_count_per_node)
        return MpiConfiguration(ranks, self.node_count)

    def _backend(self, spread: MpiConfiguration) -> str:
        given = self.distributed_training
        named = type(given).__name__ if given is not None else self.distributed_backend
        if named in ("MpiConfiguration", "Mpi", "mpi"):
            return str(spread.arguments()["backend"])
        return (named or "none").lower()

    def _packages(self) -> Packages:
        # Of one that is named and none; its wheels are those of its own index.
        torch = [f"torch=={self.framework_version}"] if self.framework_version else []
        return Packages(
            packages=(*torch, *(self.pip_packages or ())),
            conda_file=self.conda_dependencies_file or self.conda_dependencies_file_path or "",
            requirements_file=self.pip_requirements_file or self.pip_requirements_file_path or "",
            user_managed=self.user_managed,
        )

    def _infrastructure(self) -> Infrastructure:
        image = self.custom_docker_image or self.custom_docker_base_image or ""
        settings: dict[str, Any] = {
            "image": image,
            "registry_credentials": self.image_registry_details or "",
            "vm_class": self.vm_size or "",
            "vm_priority": _PRIORITIES[self.vm_priority],
            "shm_gib": _gib(str(self.shm_size)) if self.shm_size else None,
        }
        return Infrastructure(**settings)


def _gib(size: str) -> float:
    """Return a size as Docker writes it, such as "512m", in GiB."""
    units = {"k": 1024**-2, "m": 1 / 1024, "g": 1.0}
    number, unit = size[:-1], size[-1:].lower()
    if unit not in units or not number.isdecimal():
        raise InputError(f"shm_size={size!r} is no number with k, m or g, such as '2g'.")
    return int(number) * units[unit]
