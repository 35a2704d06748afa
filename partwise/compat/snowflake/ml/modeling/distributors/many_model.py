"""One model for each partition: training and inference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import partwise.connector.context as our_context
import partwise.connector.data_connector as our_data
from partwise.compat.snowflake.ml.data.data_connector import DataConnector
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.dpf import (
    DPF,
    given,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.dpf_run import (  # noqa: E501
    DPFRun,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.partition_context import (  # noqa: E501
    PartitionContext,
    pickled,
)
from partwise.compat.snowflake.snowpark.context import get_active_session
from partwise.compat.snowflake.snowpark.session import Session
from partwise.errors import InputError
from partwise.models.serdes import KerasSerde, ModelSerde, PickleSerde
from partwise.models.serdes import TorchSerde as OwnTorchSerde
from partwise.runs.run import Run

if TYPE_CHECKING:
    from partwise.flows.orchestration.started_run import StartedRun

__all__ = [
    "ManyModelInference",
    "ManyModelRun",
    "ManyModelTraining",
    "ModelSerde",
    "PickleSerde",
    "TensorFlowSerde",
    "TorchSerde",
]

OUTPUT_FILE = "output.pkl"
"""What a function of inference returned, whatever that is."""

TensorFlowSerde = KerasSerde


def TorchSerde(  # noqa: N802
    filename: str = "model.pt",
    weights_only: bool = False,
    *,
    mode: Literal["module", "state"] = "module",
    factory: Callable[[], Any] | None = None,
    classes: Sequence[type] = (),
) -> OwnTorchSerde:
    """Return the serde of modules; the last arguments are those of `partwise.TorchSerde`.

    Raises:
        InputError: `weights_only`, which here needs to know what the weights are loaded into.
    """
    if weights_only:
        raise InputError(
            "TorchSerde(weights_only=True) cannot read the weights into a module: pass "
            'partwise.TorchSerde(mode="state", factory=make_model) as serde.'
        )
    return OwnTorchSerde(filename=filename, mode=mode, factory=factory, classes=tuple(classes))


@dataclass(frozen=True)
class TrainFunction:
    """A function of theirs as `train_models` calls it."""

    function: Callable[[DataConnector, PartitionContext], Any]
    session: Session = field(default_factory=get_active_session)

    def __call__(self, data: our_data.DataConnector, context: our_context.PartitionContext) -> Any:
        """Train the model of one partition."""
        return self.function(*given(data, context, self.session))


@dataclass(frozen=True)
class InferenceFunction:
    """A function of theirs as `run_inference` calls it; what it returns is kept as a file."""

    function: Callable[[DataConnector, Any, PartitionContext], Any]
    session: Session = field(default_factory=get_active_session)

    def __call__(
        self, data: our_data.DataConnector, model: Any, context: our_context.PartitionContext
    ) -> None:
        """Infer one partition."""
        rows, theirs = given(data, context, self.session)
        context.upload(pickled(self.function(rows, model, theirs)), OUTPUT_FILE)


class ManyModelRun(DPFRun):
    """A run of training, or of inference."""

    def __init__(
        self,
        run_id: str,
        store: str,
        work: "StartedRun[Run] | None" = None,
        serde: ModelSerde | None = None,
    ) -> None:
        super().__init__(run_id, store, work)
        self._serde = serde or PickleSerde()

    def get_model(self, partition_id: str) -> Any:
        """Return the model of a partition, by the text of its key.

        Raises:
            ModelNotFoundError: It has none; says why.
        """
        return Run.open(self.run_id, self._store).model(partition_id, self._serde)


class ManyModelTraining(DPF):
    """A function that trains a model for each partition, which is kept by pickle."""

    def __init__(
        self,
        train_func: Callable[[DataConnector, PartitionContext], Any],
        stage_name: str,
        serde: ModelSerde | None = None,
    ) -> None:
        super().__init__(train_func, stage_name)
        self._serde = serde or PickleSerde()

    def _call(self) -> tuple[Any, dict[str, Any]]:
        from partwise.flows import train_models

        trainer = TrainFunction(self._function, self._session())
        return train_models, {"trainer": trainer, "serde": self._serde}

    def _handle(self, run_id: str, work: Any) -> ManyModelRun:
        return ManyModelRun(run_id, self._store, work, self._serde)

    @classmethod
    def restore_from(cls, run_id: str, stage_name: str) -> ManyModelRun:
        """Return a run of a stage, only to be read.

        Raises:
            RunNotFoundError: It is not there.
        """
        return ManyModelRun.restore_from(run_id, stage_name)


class ManyModelInference(DPF):
    """A function that is called for each partition with the model of a run of training."""

    def __init__(
        self,
        inference_func: Callable[[DataConnector, Any, PartitionContext], Any],
        stage_name: str,
        training_run_id: str,
        serde: ModelSerde | None = None,
    ) -> None:
        super().__init__(inference_func, stage_name)
        self._training_run_id = training_run_id
        self._serde = serde or PickleSerde()

    def _call(self) -> tuple[Any, dict[str, Any]]:
        from partwise.flows import run_inference

        return run_inference, {
            "predict": InferenceFunction(self._function, self._session()),
            "training_run_id": self._training_run_id,
            "serde": self._serde,
        }

    def _handle(self, run_id: str, work: Any) -> ManyModelRun:
        return ManyModelRun(run_id, self._store, work, self._serde)
