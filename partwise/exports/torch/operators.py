"""The operators that torch.onnx translates, listed once in a process."""

from contextlib import suppress
from functools import cache


def list_operators_once() -> None:
    """Have torch.onnx.export keep its list of operators.

    It makes the list anew for each export, from the sources of 557 functions: half of the time that
    a small module takes. A torch that has it elsewhere (2.13 is known) goes on as it is.
    """
    with suppress(ImportError, AttributeError):
        from torch.onnx._internal._lazy_import import onnxscript_apis as apis

        listed = apis.get_torchlib_ops
        if not hasattr(listed, "cache_info"):
            apis._module.get_torchlib_ops = cache(listed)
