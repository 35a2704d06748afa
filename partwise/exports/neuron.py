"""PyTorch modules compiled for AWS Neuron accelerators (Inferentia and Trainium).

Not run on hardware: the tests have a stand-in for the SDK that keeps to what its documentation says
of trace, save and load. `torch_neuronx.trace` compiles for Inf2, Trn1 and newer; the legacy
`torch.neuron.trace` for Inf1, which AWS has not supported since 2026.

A compiled graph takes one number of rows only. The file is a TorchScript, so that torch.jit.load
reads it where the SDK has been imported; it holds code: load only what you trust.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from partwise.exports.networks import refusing
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.exports.torch.capture import capturing
from partwise.exports.torch.modules import flat_module
from partwise.exports.torch.program_exporter import ProgramExporter
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feeds, Tensor, take_rows
from partwise.models.torch_programs import NeuronModel, neuron_tracer, tensors_of

# By default the compiler casts matrix products to bfloat16, which has 8 bits of precision.
NEURON_TOLERANCE = Tolerance(atol=0.0, rtol=1e-2, scaled=1e-2, variation=10.0)


@dataclass(frozen=True, kw_only=True)
class NeuronExporter(ProgramExporter):
    """Any `torch.nn.Module` that the Neuron compiler takes.

    Example:
        >>> NeuronExporter(batch_size=64)  # doctest: +SKIP
    """

    FORMAT: ClassVar[str] = "Neuron"

    batch_size: int = 1
    """The rows that a call takes. More are run in so many calls, and fewer are filled up."""

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """See `describe_module`; raises what it raises.

        Raises:
            ExportRefusedError: The SDK is not installed.
        """
        neuron_tracer()
        signature = super().describe(model, rows, feeds, options).signature
        fixed = {
            "inputs": tuple(self._fixed(tensor) for tensor in signature.inputs),
            "outputs": tuple(self._fixed(tensor) for tensor in signature.outputs),
        }
        return ModelDescription(
            signature=signature.model_copy(update=fixed), tolerance=NEURON_TOLERANCE
        )

    def _fixed(self, tensor: Tensor) -> Tensor:
        return tensor.model_copy(update={"shape": (self.batch_size, *tensor.shape[1:])})

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,
        options: ExportOptions,  # noqa: ARG002 (of the protocol; none is left to use)
        file_path: str,
    ) -> None:
        """Compile the module for `batch_size` rows, and write it.

        Raises:
            ExportRefusedError: The compiler does not take it; its reason is in the message.
        """
        signature = description.signature
        trace = neuron_tracer()
        with refusing(f"Neuron's compiler does not take {signature.model_type}"), capturing(model):
            program = trace(
                flat_module(model, signature), tensors_of(take_rows(sample, self.batch_size))
            )
        NeuronModel(program, signature).save(file_path)
