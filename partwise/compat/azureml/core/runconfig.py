"""How processes are spread, and the settings of a run."""

from dataclasses import dataclass, field
from typing import Any

from partwise.compat.azureml.core.conda_dependencies import CondaDependencies as CondaDependencies
from partwise.compat.azureml.core.environment import Environment
from partwise.compat.counts import count_of
from partwise.errors import InputError


@dataclass(slots=True)
class PyTorchConfiguration:
    """Processes that find each other by the variables of torch; `process_count` is that of all."""

    communication_backend: str = "Nccl"
    process_count: int | None = None
    node_count: int = 1

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `run_script`."""
        nodes = count_of("node_count", self.node_count)
        given = self.process_count
        count = nodes if given is None else count_of("process_count", given)
        if count % nodes:
            raise InputError(
                f"process_count={count} cannot be spread over node_count={nodes}: it is "
                "that of all nodes, of which each has as many."
            )
        return {
            "nodes": nodes,
            "ranks_per_node": count // nodes,
            "backend": self.communication_backend,
        }


@dataclass(slots=True)
class MpiConfiguration:
    """Processes of one job of Open MPI."""

    process_count_per_node: int = 1
    node_count: int = 1

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `run_script`; a single process needs no Open MPI."""
        nodes = count_of("node_count", self.node_count)
        ranks = count_of("process_count_per_node", self.process_count_per_node)
        backend = "mpi" if nodes * ranks > 1 else "none"
        return {"nodes": nodes, "ranks_per_node": ranks, "backend": backend}


class TensorflowConfiguration:
    """Refused: there are no parameter servers."""

    def __init__(self, worker_count: int = 1, parameter_server_count: int = 0) -> None:
        raise InputError(
            f"TensorflowConfiguration(worker_count={worker_count}, "
            f"parameter_server_count={parameter_server_count}) has no counterpart: give "
            "MpiConfiguration, and have the script set TF_CONFIG by RANK and WORLD_SIZE."
        )


Spread = PyTorchConfiguration | MpiConfiguration


@dataclass(slots=True)
class RunConfiguration:
    """The settings of a run that are not those of one script."""

    environment: Environment = field(default_factory=Environment)
    target: Any = "local"
    environment_variables: dict[str, str] = field(default_factory=dict)
    node_count: int = 1
