"""The log of an export of transformers, as `python -m transformers.onnx` once wrote it."""

from typing import TYPE_CHECKING

from rich.text import Text

from partwise.flows.cli.output import tell

if TYPE_CHECKING:
    from partwise.transformers.feature_table import FeatureTable
    from partwise.transformers.options import TransformersOptions
    from partwise.transformers.report import ExportReport, FileReport, OutputReport

_WORDS = {"onnx": "ONNX", "torchscript": "TorchScript", "pt2": ".pt2", "neuron": "Neuron"}
_RIGHT, _WRONG = "-[✓]", "-[x]"


def print_start(model: str, feature: str, options: "TransformersOptions") -> None:
    """Say on stderr what is about to be exported."""
    tell(f"Exporting {model} for {feature!r} as {_WORDS[options.format]}...")


def print_log(report: "ExportReport", options: "TransformersOptions") -> None:
    """Print on stderr how the files were proved, with a tick or a cross for everything."""
    used = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    opset = f", opset {report.opset}" if report.opset else ""
    tell(f"Using {used}{opset}")
    for file in report.files:
        name = f" {file.name}" if len(report.files) > 1 else ""
        tell(f"Validating {_WORDS[report.format]} model{name}...")
        _print_file(file, _WORDS[report.format], options)


def print_mismatch(report: "ExportReport") -> None:
    """Say on stderr, after the log, that an export was not kept."""
    outputs = [output for file in report.files for output in file.outputs]
    wrong = sum(bool(output.findings) for output in outputs)
    where = f"in {wrong} of {len(outputs)} outputs" if wrong else "as a whole"
    tell(f"error: the export differs from its model {where}; nothing was kept.")


def table_of(table: "FeatureTable") -> Text:
    """Return the features of an architecture as lines."""
    text = Text(f"{table.name} ({table.model_type})\n", no_wrap=True)
    for row in table.features:
        text.append(f"\n{row.feature}", "bold")
        text.append(
            f"  ({row.auto_class}; opset {row.opset}, scaled {row.scaled:g}, rtol {row.rtol:g})\n"
        )
        for kind, tensors in (("inputs", row.inputs), ("outputs", row.outputs)):
            width = max(map(len, tensors))
            for place, (name, axes) in enumerate(tensors.items()):
                free = ", ".join(f"{axis}: {meaning}" for axis, meaning in axes.items())
                text.append(f"  {kind if not place else '':<8} {name:<{width}}  {free}\n")
    return text


def _print_file(file: "FileReport", word: str, options: "TransformersOptions") -> None:
    for finding in file.findings:
        tell(f"\t{_WRONG} {finding}")
    if not file.findings:
        names = ", ".join(repr(output.name) for output in file.outputs)
        tell(f"\t{_RIGHT} {word} model output names match reference model ({{{names}}})")
    for output in file.outputs:
        # What was found of the file as a whole may have kept an output from being compared.
        if output.findings or not file.findings:
            _print_output(output, file, word, options)
    if (tokens := file.metrics.get("export_generated_tokens")) and not file.findings:
        tell(f"\t{_RIGHT} {tokens:.0f} generated tokens are the model's own")
    for note in file.notes:
        tell(f"\t- {note}")


def _print_output(
    output: "OutputReport", file: "FileReport", word: str, options: "TransformersOptions"
) -> None:
    tell(f'\t- Validating {word} Model output "{output.name}":')
    for finding in output.findings:
        tell(f"\t\t{_WRONG} {finding}")
    if output.findings:
        return
    tell(f"\t\t{_RIGHT} {output.shape} matches {output.shape}")
    loss = file.metrics.get("export_metric_loss")
    if loss is None:
        allowed = f"scaled: {file.scaled:g}" if file.scaled else f"atol: {file.atol:g}"
        tell(f"\t\t{_RIGHT} all values close ({allowed})")
    else:
        loss = file.metrics.get(f"export_movement_{output.name}", loss)
        tell(f"\t\t{_RIGHT} int8 moves it by {loss:.3g} (allowed: {options.max_metric_loss:g})")
