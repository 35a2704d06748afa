"""What stands at `snowflake.ml.modeling.distributors.pytorch`."""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import partwise.ranks.current_context as our_context
from partwise.compat.counts import count_of
from partwise.compat.snowflake.dataset_maps import Placed, placed, rank_datasets
from partwise.compat.snowflake.ml.data.data_connector import DataConnector
from partwise.compat.snowflake.ml.modeling.distributors.pytorch.scaling_config import (
    PyTorchScalingConfig,
)
from partwise.compat.snowflake.ml.modeling.distributors.pytorch.scaling_config import (
    WorkerResourceConfig as WorkerResourceConfig,
)
from partwise.compat.snowflake.stages import stage_store
from partwise.engine.scaling import ALL, ScalingConfig
from partwise.errors import RunFailedError
from partwise.ranks.context import RankContext
from partwise.runs.bundle import REPORTED_FILE
from partwise.runs.run import Run
from partwise.trainers.ranks.torch import TorchDistributor

LEGACY = "PYTORCH_USE_LEGACY_TRAINER"
"""Their variable: "1" where the function calls `init_process_group` itself."""
STORE = "artifacts"


class MetricsReporter:
    """Keeps metrics of a worker."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank

    def log_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Keep the newest value of each."""
        self._rank.report(**metrics)


class Context:
    """What a training function asks of the worker that it runs in.

    Args:
        rank: The context of partwise.
        datasets: The worker's rows, by name.
    """

    def __init__(self, rank: RankContext, datasets: Mapping[str, DataConnector]) -> None:
        self._rank = rank
        self._datasets = datasets

    def get_world_size(self) -> int:
        """Return how many workers there are."""
        return self._rank.world_size

    def get_rank(self) -> int:
        """Return the number of this worker, from 0."""
        return self._rank.rank

    get_world_rank = get_rank

    def get_local_rank(self) -> int:
        """Return its number on its node."""
        return self._rank.local_rank

    def get_local_world_size(self) -> int:
        """Return how many workers its node has."""
        return self._rank.local_world_size

    def get_node_rank(self) -> int:
        """Return the number of its node."""
        return self._rank.node_rank

    def get_master_addr(self) -> str:
        """Return the host of worker 0."""
        return self._rank.master_address

    def get_master_port(self) -> int:
        """Return where worker 0 listens."""
        return self._rank.master_port

    def get_default_backend(self) -> str:
        """Return what torch exchanges gradients by."""
        return self._rank.default_backend

    def get_supported_backends(self) -> list[str]:
        """Return what torch can exchange gradients by."""
        return list(self._rank.supported_backends)

    def get_hyper_params(self) -> dict[str, Any]:
        """Return the `hyper_params` of the call, as they were given."""
        return dict(self._rank.params)

    def get_dataset_map(self) -> dict[str, Any]:
        """Return the rows by name: of what is sharded this worker's, of all else all."""
        return dict(self._datasets)

    def get_model_dir(self) -> str:
        """Return a folder; what worker 0 leaves there is kept."""
        return str(self._rank.model_directory)

    def get_metrics_reporter(self) -> MetricsReporter:
        """Return what keeps metrics."""
        return MetricsReporter(self._rank)


_current: Context | None = None


def get_context() -> Context:
    """Return the context of the worker that this process is.

    Raises:
        RuntimeError: This process is not a worker.
    """
    return _current or Context(our_context.get_context(), {})


@dataclass(frozen=True)
class TrainFunction:
    """A function of theirs as `train_distributed` calls it; what it returns counts for nothing."""

    function: Callable[[], Any]
    places: Mapping[str, Placed]

    def __call__(self, context: RankContext) -> None:
        """Work as one rank."""
        global _current  # the function asks for it by no argument
        _current = Context(context, rank_datasets(context, self.places))
        try:
            self.function()
        finally:
            _current = None


class PyTorchDistributorResult:
    """What worker 0 has left."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def get_metrics(self) -> dict[str, Any]:
        """Return the newest value of each metric."""
        rows = self.run.metrics.to_pylist()
        first = self.run.partition_id(0)
        metrics = {row["metric"]: row["value"] for row in rows if row["partition_id"] == first}
        if REPORTED_FILE in self.run.artifacts(0):
            metrics |= self.run.artifact(0, REPORTED_FILE)
        return metrics

    def get_model_dir(self) -> str:
        """Return a new local folder with the files, and its log."""
        folder = tempfile.mkdtemp(prefix="partwise-model-")
        self.run.export(folder, keys=[0])
        return f"{folder}/0"

    def get_checkpoint_location(self) -> str:
        """Return where checkpoints of the run stand."""
        return f"{self.run.path}/checkpoints"


class PyTorchDistributor:
    """A function that trains one model on several workers.

    As in their runtime 2.7, the process group is open when the function is called;
    PYTORCH_USE_LEGACY_TRAINER=1 leaves it to the function.
    """

    def __init__(
        self,
        train_func: Callable[[], Any],
        scaling_config: PyTorchScalingConfig | ScalingConfig | None = None,
    ) -> None:
        self._function = train_func
        self._scaling = own_scaling(scaling_config)

    def run(
        self,
        *,
        dataset_map: Mapping[str, Any] | None = None,
        hyper_params: Mapping[str, Any] | None = None,
        artifact_stage_location: str | None = None,
    ) -> PyTorchDistributorResult:
        """Train, and wait for it; without a stage it is kept in the store "artifacts".

        Raises:
            RuntimeError: A worker failed.
        """
        from partwise.flows import train_distributed

        datasets = placed(dataset_map)
        stage = artifact_stage_location
        is_legacy = os.environ.get(LEGACY) == "1"
        try:
            run = train_distributed(
                datasets.data,
                TorchDistributor(
                    TrainFunction(self._function, datasets.places),
                    process_group="function" if is_legacy else "distributor",
                ),
                eval_data=datasets.eval_data,
                params=hyper_params or {},
                scaling=self._scaling,
                store=STORE if stage is None else stage_store(stage),
            )
        except RunFailedError as error:
            raise RuntimeError(str(error)) from error
        return PyTorchDistributorResult(run)


def own_scaling(config: PyTorchScalingConfig | ScalingConfig | None) -> ScalingConfig:
    """Return the scaling of partwise."""
    if config is None or isinstance(config, ScalingConfig):
        return config or ScalingConfig()
    worker = config.resource_requirements_per_worker
    return ScalingConfig(
        ranks=count_of("num_nodes", config.num_nodes)
        * count_of("num_workers_per_node", config.num_workers_per_node),
        cpus=worker.num_cpus or ALL,
        gpus=worker.num_gpus,
    )
