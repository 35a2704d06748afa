"""Check: an export that exists, compared with the model that it is said to be of."""

import os
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from partwise.choices import TransformersFormat
from partwise.errors import InputError
from partwise.exports.proof.verdict import Verdict
from partwise.models.onnx_files import read_graph
from partwise.models.signature import METADATA_KEY, Signature
from partwise.models.torch_programs import neuron_tracer
from partwise.transformers import loading
from partwise.transformers.all_outputs import FORMATS_OF_ALL, with_all_outputs
from partwise.transformers.checkpoint_files import find_checkpoint, read_config
from partwise.transformers.checkpoints import Checkpoint, OwnConfig, open_checkpoint
from partwise.transformers.export import LIBRARIES, format_by_name, prefill_name, report_file
from partwise.transformers.feature_choice import architecture_of, config_for
from partwise.transformers.installed import check_installed
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.proof import Expected, configs_of, expect, judge_file, judge_generation
from partwise.transformers.report import ExportReport, FileReport
from partwise.transformers.torch_programs import fixed_to, with_neuron_tolerance
from partwise.transformers.traced_sizes import TOKEN_AXES, sizes_in_words, traced_sizes

_OPTION_OF_AXIS = {"batch": "batch_size", **dict.fromkeys(TOKEN_AXES, "sequence_length")}
"""The options that fix the size of an axis, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    """What a file says of itself."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    opset: int | None = None
    is_ours: bool = True
    """Whether it has a signature, which other writers do not leave in it."""
    is_int8: bool = False
    """Whether it multiplies integers."""
    signature: Signature | None = None
    """Of what is not an ONNX file."""


def check_export(
    file: Path,
    name: str,
    feature: str = "",
    options: TransformersOptions | None = None,
    own_config: OwnConfig | None = None,
) -> ExportReport:
    """Compare an export with its model. What is wrong stands in the report.

    An ONNX file may be anybody's: without our signature in its metadata it is compared without it,
    by the names, dtypes and shapes of its inputs and outputs, and their values. Files of the other
    formats run code when they are read: those without our signature are refused, and one with it is
    as safe as whoever gave it is. What is fixed to its sizes is compared on these.

    Of an encoder and a decoder with past, the file that reads the prompt, such as prefill.onnx, has
    to lie beside it and is checked as well.

    Args:
        file: The export.
        name: A directory with config.json and weights, or the ID of a model on the hub.
        feature: What it was exported for. Empty: what its inputs and outputs say, and where that
            fits several features, the class of the model in config.json.
        options: The tolerances, and which preprocessor makes inputs; the format is the file's.
            Where they do not say how it is quantized, its graph does.
        own_config: What the model takes and gives, where it is not in the table of architectures.
    """
    check_installed()
    start = time.monotonic()
    form = format_by_name(file)
    if form is None:
        raise InputError(
            f"The file {file} is not an export by its name, which ends in .onnx, .pt or .pt2."
        )
    options = (options or TransformersOptions()).model_copy(update={"format": form})
    if not os.path.isfile(file):
        raise InputError(f"There is no file {file}.")
    graph = _read_graph(file, options.format)
    if options.format == "neuron":
        neuron_tracer()
    if graph.is_int8 and "quantize" not in options.model_fields_set:
        options = options.model_copy(update={"quantize": "int8"})
    folder = find_checkpoint(name, trusts_code=options.trust_remote_code)
    feature = feature or ("default" if own_config else _feature_of(folder, graph, options))
    checkpoint = open_checkpoint(name, feature, options, own_config)
    report = ExportReport(
        model_type=checkpoint.config.config.model_type,
        feature=feature,
        format=options.format,
        opset=graph.opset,
        files=tuple(_check_files(file, graph, checkpoint, options)),
        seconds=time.monotonic() - start,
        versions={name: version(name) for name in LIBRARIES},
    )
    return checkpoint.noted(report)


def _check_files(
    file: Path, graph: _Graph, checkpoint: Checkpoint, options: TransformersOptions
) -> list[FileReport]:
    model, config = checkpoint.model, checkpoint.config
    if options.format in FORMATS_OF_ALL and set(graph.outputs) - set(config.outputs):
        config = with_all_outputs(model, config, checkpoint.missing)
    prefill = file.with_name(prefill_name(file.name))
    configs = configs_of(config)
    if len(configs) > 1 and not prefill.is_file():
        raise InputError(
            f"There is no file {prefill}: of {config.task!r}, it starts what {file.name} goes on "
            "with. Put it there."
        )
    reports = []
    for each in configs:
        path, found, real = file, graph, checkpoint.real
        if each is not config:
            path, found, real = prefill, _read_graph(prefill, options.format), {}
        expected = _as_it_is(found, model, each, expect(model, each, options, None, real), options)
        verdict = judge_file(str(path), model, expected)
        # After the judge, which knows nothing of other writers.
        if not found.is_ours:
            verdict = without_signature(verdict)
        start = prefill if len(configs) > 1 else file
        count = options.generated_tokens
        verdict = judge_generation(verdict, model, each, expected.expectation, path, start, count)
        reports.append(report_file(path, each, expected, verdict))
    return reports


def _as_it_is(
    graph: _Graph, model: Any, config: OnnxConfig, expected: Expected, options: TransformersOptions
) -> Expected:
    """Return what a file has to be that is quantized, compiled, or fixed to its sizes."""
    if graph.is_int8 and options.quantize == "int8":
        note = "Its graph multiplies integers: judged as int8, by how far its outputs move."
        expected = replace(expected, notes=(*expected.notes, note))
    if graph.signature is not None:
        size = _fixed_sizes(graph.signature, config)
        if size:
            chosen = options.model_copy(update=size)
            sizes, most = traced_sizes(model, config, chosen)
            words = sizes_in_words(config, sizes, most).rstrip(",")
            note = f"Its sizes are fixed: compared on {words} only."
            expected = fixed_to(model, config, expected, sizes, note)
    return with_neuron_tolerance(expected, options) if options.format == "neuron" else expected


def _fixed_sizes(signature: Signature, config: OnnxConfig) -> dict[str, int]:
    """Return the options that give the sizes which a file is fixed to; none: they are free."""
    found: dict[str, int] = {}
    for tensor in signature.inputs:
        for place, axis in config.inputs.get(tensor.name, {}).items():
            size = tensor.shape[place] if place < len(tensor.shape) else None
            if size is not None and axis in _OPTION_OF_AXIS:
                found.setdefault(_OPTION_OF_AXIS[axis], size)
    return found


def without_signature(verdict: Verdict) -> Verdict:
    """Return a verdict that does not mind a missing signature."""
    return replace(
        verdict,
        findings=tuple(finding for finding in verdict.findings if finding.check != "signature"),
        notes=(*verdict.notes, "Its metadata have no signature: partwise did not write it."),
    )


def _read_graph(file: Path, form: TransformersFormat) -> _Graph:
    """Return what a file says of itself, without running what is in it."""
    if form != "onnx":
        signature = _read_signature(file)
        return _Graph(
            inputs=[tensor.name for tensor in signature.inputs],
            outputs=[tensor.name for tensor in signature.outputs],
            signature=signature,
        )
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model: Any = onnx.load_model_from_string(read_graph(str(file)))
    except DecodeError as error:
        raise InputError(f"The file {file} is broken or no ONNX ({error}).") from error
    # Older writers list weights among the inputs, as defaults.
    weights = {tensor.name for tensor in model.graph.initializer}
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    return _Graph(
        inputs=[each.name for each in model.graph.input if each.name not in weights],
        outputs=[each.name for each in model.graph.output],
        opset=opsets.get("", opsets.get("ai.onnx")),
        is_ours=any(entry.key == METADATA_KEY for entry in model.metadata_props),
        is_int8=any(node.op_type.endswith("Integer") for node in model.graph.node),
    )


def _read_signature(file: Path) -> Signature:
    """Return the signature of a TorchScript or .pt2 file, both of which are zip files."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [each for each in archive.namelist() if each.endswith(f"/extra/{METADATA_KEY}")]
            texts = [archive.read(each).decode() for each in names]
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise InputError(f"The file {file} is broken or no .pt or .pt2 ({error}).") from error
    if not texts:
        raise InputError(
            f"The file {file} has no signature of partwise, and .pt and .pt2 files run code when "
            "they are read: it is not opened. Check an ONNX file, which runs none, or export the "
            "model again."
        )
    return Signature.from_metadata({METADATA_KEY: texts[0]})


def _feature_of(folder: Path, graph: _Graph, options: TransformersOptions) -> str:
    """Return the feature that an export most likely has."""
    said = read_config(folder)
    features = architecture_of(said["model_type"]).features
    model_config = loading.load_config(folder, trusts_code=options.trust_remote_code)
    fitting = [feature for feature in features if _fits(config_for(model_config, feature), graph)]
    kinds = said.get("architectures") or []
    for feature in fitting or features:
        if set(kinds) & _class_names(model_config, feature):
            return feature
    return (fitting or features)[0]


def _fits(config: OnnxConfig, graph: _Graph) -> bool:
    if set(config.inputs) != set(graph.inputs):
        return False
    # Programs of torch give all that a model gives.
    is_more = graph.signature is not None and config.task == "default"
    return set(config.outputs) == set(graph.outputs) or (
        is_more and set(config.outputs) < set(graph.outputs)
    )


def _class_names(model_config: Any, feature: str) -> set[str]:
    """Return the names of the classes of transformers that do something for an architecture."""
    import transformers

    auto = getattr(transformers, config_for(model_config, feature).auto_class)
    # The library has no other way to ask for them; its versions are bounded.
    found = auto._model_mapping.get(type(model_config), ())
    return {kind.__name__ for kind in (found if isinstance(found, list | tuple) else [found])}
