"""What stands at `snowflake.ml.modeling.distributors.pytorch.scaling_config`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerResourceConfig:
    """What each worker may use; 0 CPUs: what there is."""

    num_cpus: int = 0
    num_gpus: int = 0


@dataclass(frozen=True)
class PyTorchScalingConfig:
    """How many workers train, and what each may use."""

    num_nodes: int
    num_workers_per_node: int
    resource_requirements_per_worker: WorkerResourceConfig
