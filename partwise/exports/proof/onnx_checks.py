"""What has to hold of an ONNX file before it is run: its form, its opset, its interface."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.proof.tree_structure import check_trees
from partwise.exports.proof.verdict import Check, Finding, Verdict
from partwise.models.onnx_files import read_graph
from partwise.models.signature import Signature, Tensor

_LONGEST_ERROR = 400
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    "tensor(string)": "string",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16)},
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (32, 64)},
}
"""onnxruntime's names of dtypes, as numpy has them."""


def check_onnx_file(
    file_path: str, opset: int | None, trees: TreeEnsemble | None = None
) -> Verdict:
    """Return what does not hold of a file: no ONNX, refused by onnx.checker, its opset, its trees.

    An opset of None may be any; trees of None are not known.
    """
    import onnx

    try:
        # Nothing of onnx sees the file before what it names for its weights was looked at.
        model: Any = onnx.load_model_from_string(read_graph(file_path))
        if not model.HasField("graph"):
            # As an empty file has none, which is a document of this format.
            raise ValueError("it has no graph")
    except Exception as error:
        finding = Finding(
            check="load",
            message=f"The file {Path(file_path).name} is broken or no ONNX: {brief(error)}",
        )
        return Verdict(findings=(finding,))
    findings = []
    try:
        # By its path, so that weights beside it are seen as well.
        onnx.checker.check_model(file_path, full_check=True)
    except Exception as error:
        findings.append(
            Finding(check="checker", message=f"onnx.checker refuses the file: {brief(error)}")
        )
    declared = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    if opset is not None and declared.get("ai.onnx") != opset:
        findings.append(
            Finding(
                check="opset",
                message=f"The file declares the opsets {declared}, where ai.onnx {opset} is "
                "expected.",
            )
        )
    found = Verdict(findings=tuple(findings))
    return found if trees is None else check_trees(model, trees).added_to(found)


def check_interface(session: Any, signature: Signature) -> list[Finding]:
    """Return where a graph's own inputs and outputs are not those of the signature.

    A size that the signature leaves open has to be open in the graph: one that is fixed is that of
    the rows which the graph was captured with.
    """
    return [
        *_check_tensors("inputs", "input", session.get_inputs(), signature.inputs),
        *_check_tensors("outputs", "output", session.get_outputs(), signature.outputs),
    ]


def check_signature(found: Signature, expected: Signature) -> list[Finding]:
    """Return where the signature in a file's metadata is another than the expected one."""
    there, wanted = found.model_dump(), expected.model_dump()
    return [
        Finding(
            check="signature",
            message=f"The file's metadata say {name} = {_short(there[name])}, where "
            f"{_short(wanted[name])} is expected.",
        )
        for name in wanted
        if there[name] != wanted[name]
    ]


def brief(error: BaseException) -> str:
    """Return an error's message in one line of bounded length, with its type."""
    message = " ".join(str(error).split())
    if len(message) > _LONGEST_ERROR:
        message = message[:_LONGEST_ERROR] + "..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _check_tensors(
    check: Check, noun: str, found: Sequence[Any], expected: Sequence[Tensor]
) -> list[Finding]:
    names, wanted = [tensor.name for tensor in found], [tensor.name for tensor in expected]
    if names != wanted:
        return [
            Finding(
                check=check,
                message=f"The graph's {noun}s are {_short(names)}, where {_short(wanted)} are "
                "expected, in this order.",
            )
        ]
    problems = [
        (tensor, problem)
        for tensor, declared in zip(expected, found, strict=True)
        for problem in _misfits(tensor, declared)
    ]
    return [
        Finding(
            check=check,
            message=f"The graph's {noun} {tensor.name!r} {problem}.",
            output=tensor.name if noun == "output" else "",
        )
        for tensor, problem in problems
    ]


def _misfits(tensor: Tensor, declared: Any) -> list[str]:
    problems = []
    dtype = _DTYPES.get(declared.type, declared.type)
    if dtype != tensor.dtype:
        problems.append(f"is {dtype}, where {tensor.dtype} is expected")
    if problem := _misfit(list(declared.shape), tensor.shape):
        problems.append(problem)
    return problems


def _misfit(declared: list[Any], expected: Sequence[int | None]) -> str:
    """Say where a declared shape excludes the expected one, or return nothing."""
    shape = ["any" if size is None else str(size) for size in expected]
    described = (
        f"has the shape ({', '.join(map(str, declared))}), where ({', '.join(shape)}) is expected"
    )
    if len(declared) != len(expected):
        return described
    for axis, (size, wanted) in enumerate(zip(declared, expected, strict=True)):
        if not isinstance(size, int):
            continue
        if wanted is None:
            of_what = "batch" if axis == 0 else f"axis {axis}"
            return f"{described}: its {of_what} is fixed at {size}"
        if size != wanted:
            return described
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR] + "..."
