"""PyTorch programs that were exported: TorchScript, .pt2 of torch.export, and AWS Neuron's.

Exports write them, and whoever has such a file loads it with its signature. All three hold code:
load only what you trust. torch itself is imported when a program is loaded, as it takes seconds.
"""

import importlib
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError, IntegrityError
from partwise.formatting import reason
from partwise.models.signature import (
    METADATA_KEY,
    Feeds,
    Outputs,
    Signature,
    feeds_of_rows,
    take_rows,
)


@dataclass(frozen=True)
class TorchScriptModel:
    """A TorchScript program with its signature."""

    program: Any
    """A `torch.jit.ScriptModule` of the signature's inputs that returns its outputs as a tuple."""
    signature: Signature

    @classmethod
    def from_file(cls, file_path: str) -> Self:
        """Load what export_models or `save` wrote, on the CPU.

        Raises:
            IntegrityError: It is not a TorchScript, or has no signature that this release knows.
        """
        import torch

        metadata = {METADATA_KEY: ""}
        try:
            with _deprecated(), open(file_path, "rb") as file:
                program = torch.jit.load(file, map_location="cpu", _extra_files=metadata)
        except RuntimeError as error:
            raise IntegrityError(f"{file_path} is not a TorchScript: {reason(error)}") from error
        texts = {key: _text(value) for key, value in metadata.items()}
        return cls(program, Signature.from_metadata(texts))

    def save(self, file_path: str) -> None:
        """Write the program and its signature to one file."""
        import torch

        metadata = {METADATA_KEY: self.signature.to_json()}
        with _deprecated(), open(file_path, "wb") as file:  # a name would stand in the file
            torch.jit.save(self.program, file, _extra_files=metadata)

    def run(self, feeds: Feeds) -> Outputs:
        """Return the outputs by name for inputs by name; no rows give no rows."""
        self.signature.check_sizes(feeds)
        return run_program(self.program, self.signature, feeds)

    def predict(self, rows: pa.Table) -> np.ndarray:
        """Return a prediction for each row."""
        return self.signature.predictions(self.run(feeds_of_rows(self.signature, rows)))


@dataclass(frozen=True)
class Pt2Model:
    """A program of torch.export with its signature."""

    program: Any
    """A `torch.export.ExportedProgram` of the signature's inputs that returns its outputs as a
    tuple."""
    signature: Signature

    @classmethod
    def from_file(cls, file_path: str) -> Self:
        """Load what export_models or `save` wrote.

        Raises:
            IntegrityError: It is not a .pt2 file, or has no signature that this release knows.
        """
        import torch

        metadata = {METADATA_KEY: ""}
        try:
            with open(file_path, "rb") as file:  # torch wants other names to end in .pt2
                program = torch.export.load(file, extra_files=metadata)
        except OSError:
            raise
        except Exception as error:  # its many readers raise anything on damaged bytes
            raise IntegrityError(f"{file_path} is not a .pt2 file: {reason(error)}") from error
        return cls(program, Signature.from_metadata(metadata))

    def save(self, file_path: str) -> None:
        """Write the program and its signature to one file."""
        import torch

        metadata = {METADATA_KEY: self.signature.to_json()}
        with open(file_path, "wb") as opened:  # a name would stand in the file
            file = _PatientFile(opened)
            torch.export.save(self.program, file, extra_files=metadata)
            if file.error is not None:
                raise file.error

    @cached_property
    def _call(self) -> Callable[..., Any]:
        return self.program.module()  # type: ignore[no-any-return]

    def run(self, feeds: Feeds) -> Outputs:
        """Return the outputs by name for inputs by name; no rows give no rows."""
        return run_program(self._call, self.signature, feeds)

    def predict(self, rows: pa.Table) -> np.ndarray:
        """Return a prediction for each row."""
        return self.signature.predictions(self.run(feeds_of_rows(self.signature, rows)))


class _PatientFile(io.BytesIO):
    """A file on which no write seems to fail; `error` has the first one that did.

    Where a write fails, torch's writer (2.13) writes the end of the file once more as it is
    collected, at some later time, and ends the process where that fails too.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self.error: OSError | None = None
        self._file = file

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes


@dataclass(frozen=True)
class NeuronModel(TorchScriptModel):
    """A program compiled for Neuron, with its signature."""

    @classmethod
    def from_file(cls, file_path: str) -> Self:
        """Load what export_models wrote.

        Raises:
            ExportRefusedError: The SDK is not installed.
            IntegrityError: It is not a TorchScript, or has no signature that this release knows.
        """
        neuron_tracer()  # importing the SDK makes its operators known to torch
        return super().from_file(file_path)

    def run(self, feeds: Feeds) -> Outputs:
        """Return the outputs by name: in calls of the compiled number of rows, the last filled up.

        Rows that fill up are repeated ones, and cut off again.
        """
        size = self.signature.inputs[0].shape[0] or 1
        count = len(next(iter(feeds.values())))
        calls = [
            super(NeuronModel, self).run(
                take_rows(
                    {name: values[start : start + size] for name, values in feeds.items()}, size
                )
            )
            for start in range(0, count, size)
        ]
        if not calls:
            return super().run(feeds)
        return {
            tensor.name: np.concatenate([call[tensor.name] for call in calls])[:count]
            for tensor in self.signature.outputs
        }


def neuron_tracer() -> Callable[..., Any]:
    """Return the SDK's function that compiles a module for example inputs."""
    try:
        return importlib.import_module("torch_neuronx").trace  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        if error.name != "torch_neuronx":
            raise
    try:
        importlib.import_module("torch_neuron")
    except ModuleNotFoundError as error:
        raise ExportRefusedError(
            "The AWS Neuron SDK is not installed: on an instance with Inferentia or Trainium "
            "install torch-neuronx and neuronx-cc from AWS' own package index (torch-neuron for "
            "Inf1), as the Neuron documentation says; the common index has placeholders only."
        ) from error
    import torch

    return torch.neuron.trace  # type: ignore[no-any-return]


def run_program(program: Any, signature: Signature, feeds: Feeds) -> Outputs:
    """Return what a function of tensors gives; no rows give no rows without a call of it.

    `program` takes the signature's inputs in order, and returns its outputs as a tuple.
    """
    import torch

    ordered = {
        tensor.name: np.asarray(feeds[tensor.name], tensor.dtype) for tensor in signature.inputs
    }
    if not len(next(iter(ordered.values()))):
        return signature.outputs_of_no_rows()
    with torch.no_grad():
        outputs = program(*tensors_of(ordered))
    if len(outputs) != len(signature.outputs):
        raise ExportRefusedError(
            f"{signature.model_type} gives {len(outputs)} outputs for some rows and "
            f"{len(signature.outputs)} for others: return the same for all."
        )
    return {
        # Also of views of which numpy has no like: conjugated or negated ones, as of an FFT.
        tensor.name: values.numpy(force=True)
        for tensor, values in zip(signature.outputs, outputs, strict=True)
    }


def tensors_of(feeds: Feeds) -> tuple[Any, ...]:
    """Return copies of the inputs as tensors: a module may change its inputs in place."""
    import torch

    return tuple(torch.from_numpy(np.array(values, order="C")) for values in feeds.values())


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _deprecated() -> Iterator[None]:
    """Hide that torch 2.11 deprecated TorchScript: who has such a file cannot change it here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        yield
