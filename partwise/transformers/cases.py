"""Cases: inputs of sizes that a graph was not captured with, and what the model gives for them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partwise.exports.networks import refusing
from partwise.exports.proof.verdict import Case, Expectation, MetricGate
from partwise.exports.protocol import Tolerance
from partwise.models.signature import Signature, Tensor, type_name
from partwise.transformers.features import Axes
from partwise.transformers.flat_model import run_model
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.sizes import Sizes

_SEED = 1
"""Another one than that of the inputs that a graph is captured with."""


def make_cases(
    model: Any,
    config: OnnxConfig,
    sizes: Mapping[str, Sizes],
    real: Mapping[str, Mapping[str, np.ndarray]],
) -> list[Case]:
    """Return inputs of each of the sizes, and real ones, with what the model gives for them.

    `sizes` and `real`, which a preprocessor made, are by the name of the case.
    """
    feeds = {
        name: config.generate_dummy_inputs(each, _SEED + place)
        for place, (name, each) in enumerate(sizes.items())
    }
    what = f"{type(model).__name__} does not run as {type(config).__name__} says of {config.task!r}"
    with refusing(what):
        return [
            Case(name=name, feeds=given, expected=run_model(model, config, given))
            for name, given in {**feeds, **real}.items()
        ]


def make_expectation(
    model: Any,
    config: OnnxConfig,
    options: TransformersOptions,
    cases: Sequence[Case],
    opset: int | None,
) -> Expectation:
    """Return what the exported file has to be.

    There is at least one case; of two and more, sizes that differ are free.
    """
    tolerance = Tolerance(
        atol=0.0, rtol=config.rtol_for_validation, scaled=config.scaled_for_validation
    )
    atol = config.atol_for_validation if options.atol is None else options.atol
    gate = None
    if options.quantize != "none":
        # All outputs of all cases are judged, whatever they are for.
        gate = MetricGate(
            case=cases[0].name,
            labels=None,
            task="regression",
            max_loss=options.max_metric_loss,
            outputs="all",
        )
    return Expectation(
        format=options.format,
        signature=make_signature(model, config, cases),
        tolerance=tolerance.given(atol, options.rtol),
        opset=opset,
        gate=gate,
        when_late="compare shorter texts (longest_text)",
    )


def make_signature(model: Any, config: OnnxConfig, cases: Sequence[Case]) -> Signature:
    """Return what the file takes and gives, with the free axes that the configuration declares."""
    inputs = [case.feeds for case in cases]
    outputs = [case.expected for case in cases]
    return Signature(
        inputs=tuple(_tensor(name, axes, inputs) for name, axes in config.inputs.items()),
        outputs=tuple(_tensor(name, axes, outputs) for name, axes in config.outputs.items()),
        layout="custom",
        prediction=next(iter(config.outputs)),
        model_type=type_name(model),
    )


def _tensor(name: str, axes: Axes, found: Sequence[Mapping[str, np.ndarray]]) -> Tensor:
    """Return a tensor whose axis is free if it is declared so, or has several sizes."""
    shapes = [each[name].shape for each in found]
    sizes = [
        None if axis in axes or len(set(along)) > 1 else along[0]
        for axis, along in enumerate(zip(*shapes, strict=True))
    ]
    return Tensor(name=name, dtype=found[0][name].dtype.name, shape=tuple(sizes))
