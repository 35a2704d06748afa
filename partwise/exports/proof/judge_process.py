"""The process that judges exports: it runs them where nothing of their training is loaded.

It is started by `judge.py`, lives on between files, and dies with its parent. A request is a line
of JSON on its standard input, as `case_files` has it. It answers with lines of JSON: {"at": [what,
case]} before each step, so that its parent knows what it died of, then {"verdict": ...}.
"""

import faulthandler
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from partwise.errors import InputError
from partwise.exports.proof.case_files import ArrayReader, read_request
from partwise.exports.proof.comparison import Comparison
from partwise.exports.proof.onnx_checks import (
    brief,
    check_interface,
    check_onnx_file,
    check_signature,
)
from partwise.exports.proof.verdict import Case, Expectation, Finding, Verdict
from partwise.models.export_options import ModelFormat
from partwise.models.guards import Guard, guards_in_words
from partwise.models.onnx_model import OnnxModel
from partwise.models.signature import Feeds, Outputs, Signature
from partwise.processes.starting import become_child

TRAINING_LIBRARIES = (
    *("keras", "lightgbm", "sklearn", "tensorflow", "tf2onnx", "torch", "transformers", "xgboost"),
)

_MODELS: dict[ModelFormat, tuple[str, str]] = {
    "onnx": ("partwise.models.onnx_model", "OnnxModel"),
    "torchscript": ("partwise.models.torch_programs", "TorchScriptModel"),
    "pt2": ("partwise.models.torch_programs", "Pt2Model"),
    "neuron": ("partwise.models.torch_programs", "NeuronModel"),
    "native": ("partwise.exports.native", "NativeModel"),
}
"""By format, what opens a file. A class for the format "native" has no signature in its file, so
its `from_file` also takes the serde's name and the expected signature."""


class ExportedModel(Protocol):
    """An export that is ready to run."""

    @property
    def signature(self) -> Signature:
        """What it takes and gives, as its file says."""

    def run(self, feeds: Feeds) -> Outputs:
        """Return its outputs."""


Tell = Callable[[str, str], None]
"""Takes what is done next: "load", or "run" and a case."""


def examine(file_path: str, expectation: Expectation, cases: Sequence[Case], tell: Tell) -> Verdict:
    """Load an export in this process, run it on every case, and compare.

    Whatever is wrong with the file is a finding; nothing is raised.
    """
    checked = Verdict()
    tell("load", "")
    if expectation.format == "onnx":
        checked = check_onnx_file(file_path, expectation.opset, expectation.trees)
        if any(finding.check in ("load", "checker") for finding in checked.findings):
            return checked
    try:
        model = open_export(file_path, expectation)
    except Exception as error:
        failed = Finding(check="load", message=f"It fails: {brief(error)}")
        return replace(checked, findings=(*checked.findings, failed))
    findings = [*checked.findings, *_check_model(model, expectation)]
    comparison = Comparison(expectation, cases)
    # What is known to be called wrongly would fail once more for every case.
    is_callable = not any(finding.check == "inputs" for finding in findings)
    guards = model.guards if isinstance(model, OnnxModel) else ()
    for case in cases:
        given = _run(model, case, tell) if is_callable else None
        if isinstance(given, Finding):
            if case.raises or _is_refused(given, case, guards):
                comparison.add_failed(case)
                continue
            findings.append(given)
        if given is None or isinstance(given, Finding):
            comparison.add_reference(case)
        elif case.raises:
            findings.append(_predicts(case))
        else:
            comparison.add(case, given)
    findings += _foreign(expectation)
    verdict = comparison.verdict().added_to(replace(checked, findings=tuple(findings)))
    if not guards:
        return verdict
    what = guards_in_words(guards)
    note = f"The file refuses {what}: it would predict otherwise than its model."
    return replace(verdict, notes=(*verdict.notes, note))


def open_export(file_path: str, expectation: Expectation) -> ExportedModel:
    """Open an export by its format."""
    module, name = _MODELS[expectation.format]
    # By its name: a judge of one format loads the library of no other.
    kind = getattr(importlib.import_module(module), name)
    model: ExportedModel
    match expectation.format:
        case "native":
            model = kind.from_file(file_path, expectation.serde, expectation.signature)
        case "onnx":
            model = kind.in_place(file_path)
        case _:
            model = kind.from_file(file_path)
    return model


def loaded_libraries() -> tuple[str, ...]:
    """Return which libraries that train models this process has loaded."""
    return tuple(name for name in TRAINING_LIBRARIES if name in sys.modules)


def _check_model(model: Any, expectation: Expectation) -> list[Finding]:
    try:
        found = check_signature(model.signature, expectation.signature)
    except Exception as error:
        found = [Finding(check="signature", message=str(error))]
    if expectation.format == "onnx":
        found += check_interface(model.session, expectation.signature)
    return found


def _run(model: ExportedModel, case: Case, tell: Tell) -> Outputs | Finding:
    tell("run", case.name)
    try:
        return model.run(case.feeds)
    except Exception as error:
        is_guard = isinstance(error, InputError)
        return Finding(
            check="guard" if is_guard else "run",
            message=f"The export does not run on the case {case.name!r}: {brief(error)}",
            case=case.name,
        )


def _is_refused(finding: Finding, case: Case, guards: Sequence[Guard]) -> bool:
    """Whether a guard failed that had to, on a case that only a guard may refuse."""
    return (
        finding.check == "guard"
        and case.kind == "odd"
        and any(guard.is_met(case.feeds) for guard in guards)
    )


def _predicts(case: Case) -> Finding:
    return Finding(
        check="run",
        message=f"The export predicts for the case {case.name!r}, where the model itself raises: "
        f"{case.raises}",
        case=case.name,
    )


def _foreign(expectation: Expectation) -> list[Finding]:
    """Say so when an ONNX file was run where it could lean on the libraries that made it."""
    found = loaded_libraries()
    if expectation.format != "onnx" or not found:
        return []
    message = (
        f"The process that ran the export had loaded {', '.join(found)}: it proves too little."
    )
    return [Finding(check="load", message=message)]


def _answer(line: bytes, send: Callable[[dict[str, Any]], None]) -> None:
    request = json.loads(line)
    file_path, expectation, cases = read_request(request, ArrayReader(request["cases_path"]))
    verdict = examine(file_path, expectation, cases, lambda what, case: send({"at": [what, case]}))
    send({"verdict": asdict(verdict)})


def main(parent_pid: str) -> None:
    """Answer requests until the standard input ends."""
    become_child(int(parent_pid))
    # An interrupt is for the caller, who ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb", 0)
    # What libraries print goes to the log, and not among the answers.
    os.dup2(2, 1)
    faulthandler.enable(all_threads=False)

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message).encode() + b"\n")

    send({"at": ["wait", ""]})
    for line in sys.stdin.buffer:
        _answer(line, send)
    os._exit(0)
