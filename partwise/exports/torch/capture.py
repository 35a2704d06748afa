"""Graphs of PyTorch modules: captured for any number of rows, without a word, and compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from partwise.errors import ExportRefusedError
from partwise.exports.networks import is_close
from partwise.exports.protocol import ModelDescription
from partwise.exports.quiet import quietly
from partwise.exports.torch.modules import evaluation_mode, flat_module, run_module
from partwise.formatting import reason
from partwise.models.signature import Feeds, Signature, take_rows
from partwise.models.torch_programs import run_program, tensors_of
from partwise.processes.garbage import collecting_rarely

CAPTURED_ROWS = 3
"""Graphs are captured with so many rows: torch treats sizes of 0 and 1 as constants."""

_BATCH = "batch"


def capture(model: Any, signature: Signature, sample: Feeds) -> Any:
    """Return a module's graph for any number of rows, as a `torch.export.ExportedProgram`.

    torch.onnx.export would capture it as well, but lets pass what holds for some numbers only. A
    graph that depends on the rows, or on their number, is refused.
    """
    import torch

    batch = torch.export.Dim(_BATCH)
    try:
        with capturing(model):
            return torch.export.export(
                flat_module(model, signature),
                tensors_of(take_rows(sample, CAPTURED_ROWS)),
                dynamic_shapes=(tuple({0: batch} for _ in signature.inputs),),
            )
    except Exception as error:  # of torch there are dozens without a common base
        if f"Constraints violated ({_BATCH})" in str(error):
            raise ExportRefusedError(
                f"{signature.model_type} gives another graph for another number of rows: it "
                "branches on shape[0], or makes it a Python number. Compute with it as it is, and "
                "use -1 in place of a number."
            ) from error
        raise ExportRefusedError(
            f"torch.export does not capture {signature.model_type}: {reason(error)} Where its path "
            "depends on its rows, torch.where or torch.cond can stand in for `if`."
        ) from error


def check_captured(model: Any, program: Any, description: ModelDescription, sample: Feeds) -> None:
    """Run what was captured on other numbers of rows than it was captured with."""
    signature, tolerance = description.signature, description.tolerance
    for count in (1, 2, CAPTURED_ROWS + 4):
        feeds = take_rows(sample, count)
        expected = run_module(model, signature, feeds)
        try:
            found = run_program(program, signature, feeds)
        except RuntimeError as error:
            raise ExportRefusedError(
                f"{signature.model_type} was captured with {CAPTURED_ROWS} rows, and does not run "
                f"on {count} any more: {reason(error)}"
            ) from error
        for name, values in expected.items():
            if not is_close(found[name], values, tolerance):
                raise ExportRefusedError(
                    f"{signature.model_type} was captured with {CAPTURED_ROWS} rows, and gives "
                    f"another {name!r} than the module on {count}: a size or a number of those "
                    "rows is built into it. Compute with tensors, and with shape[0] unconverted."
                )


def forget_origin(program: Any) -> None:
    """Take out of a captured graph what it was captured with, and stack traces, which name folders.

    Those of the branches of torch.cond as well, which are graphs of their own.
    """
    import torch

    # Real rows of the partition.
    program.example_inputs = None
    for part in program.graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                node.meta.pop("stack_trace", None)


@contextmanager
def capturing(model: Any) -> Iterator[None]:
    """Let torch capture a module in evaluation mode, and keep what it says of that to itself.

    While torch captures, it warns of deprecated parts of itself, logs which packages it misses, and
    prints graphs when it fails. What it raises says as much. The module's own warnings have been
    heard when it was described: now it runs on stand-ins.
    """
    with collecting_rarely(), evaluation_mode(model), quietly():
        yield
