"""Neural networks of PyTorch and of Keras: what describing and capturing them has in common."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.proof.comparison import is_near
from partwise.exports.proof.scale import Scale
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.formatting import counted, reason
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feature, Feeds, Signature, Tensor, feature_tensors, type_name
from partwise.store.no_room import NO_ROOM

TRIED_ROWS = (1, 2, 3)
"""A network is run on so many rows, to see which sizes follow their number."""

# Sums of products are taken in another order elsewhere. Of k terms the error grows as
# sqrt(k) * eps (Higham & Mary 2019, doi:10.1137/18M1226312): eps is 6e-8 for single numbers, and
# layers of a thousand inputs in a chain stay below 1e-5; exp, tanh and erf add some units in the
# last place. 1e-4 of a value is what PyTorch's own ONNX tests allow in the mean.
_TOLERANCES = {
    "float16": Tolerance(atol=0.0, rtol=1e-2, scaled=1e-2, variation=10.0),
    "float32": Tolerance(atol=0.0, rtol=2e-5, scaled=1e-5),
    "float64": Tolerance(atol=0.0, rtol=1e-9, scaled=1e-12),
}


def is_close(found: np.ndarray, wanted: np.ndarray, tolerance: Tolerance) -> bool:
    """Return whether an output has the shape that is wanted, and values within the tolerance."""
    if found.shape != wanted.shape:
        return False
    expected, given = wanted.astype(np.float64), found.astype(np.float64)
    scale = np.array(Scale([expected]).output)
    return bool(is_near(expected, given, tolerance, scale).all())


def signature_of_feeds(model: Any, inputs: Sequence[Tensor], feeds: Feeds) -> Signature:
    """Return a signature without outputs for inputs that the user's function makes of rows.

    Raises:
        ExportRefusedError: They have different numbers of rows, or none at all.
    """
    counts = {name: len(values) for name, values in feeds.items() if values.ndim}
    if len(set(counts.values())) != 1 or len(counts) != len(feeds):
        raise ExportRefusedError(
            f"Inputs of a model have one row for each row of the data; these have {counts}."
        )
    return _draft(model, tuple(inputs), "custom", ())


def signature_of_features(
    model: Any, float_dtypes: set[str], layout: Literal["tensor", "columns"]
) -> Signature:
    """Return a signature without outputs for the columns that `feature_names_in_` lists.

    They are double where any of the model's types of numbers is.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None or not len(names):
        raise ExportRefusedError(
            f"Nothing says which columns {type_name(model)} takes: pass example_inputs=, a "
            "function that makes its inputs of rows, or set the attribute feature_names_in_ of the "
            "model to a list of columns when it is trained."
        )
    features = tuple(Feature(name=str(name)) for name in names)
    dtype: Literal["float32", "float64"] = "float64" if "float64" in float_dtypes else "float32"
    return _draft(model, feature_tensors(features, dtype, layout), layout, features)


def _draft(
    model: Any,
    inputs: tuple[Tensor, ...],
    layout: Literal["tensor", "columns", "custom"],
    features: tuple[Feature, ...],
) -> Signature:
    return Signature(
        inputs=inputs,
        outputs=(),
        layout=layout,
        features=features,
        prediction="",
        model_type=type_name(model),
    )


def describe_network(
    draft: Signature, outputs: Sequence[Tensor], float_dtypes: set[str]
) -> ModelDescription:
    """Return a description of a network, whose first output is the prediction.

    Of its types of numbers, the coarsest one's tolerance is that of the network.
    """
    first = outputs[0]
    signature = draft.model_copy(
        update={
            "outputs": tuple(outputs),
            "prediction": first.name,
            "prediction_column": 0 if first.shape[1:] == (1,) else None,
        }
    )
    dtypes = float_dtypes | {tensor.dtype for tensor in outputs}
    tolerance = next(
        (found for name, found in _TOLERANCES.items() if name in dtypes), _TOLERANCES["float32"]
    )
    return ModelDescription(signature=signature, tolerance=tolerance)


def common_shape(where: str, found: Sequence[Any]) -> tuple[int | None, ...]:
    """Return what is the same of an output's shapes; None where it is not, and for rows.

    Found are the arrays or tensors that it was on 1, 2 and 3 rows; None: there was none.

    Raises:
        ExportRefusedError: Its first axis is not that of rows.
    """
    shapes = [None if values is None else tuple(values.shape) for values in found]
    known = [shape for shape in shapes if shape is not None]
    if (
        any(shape[:1] != (count,) for count, shape in zip(TRIED_ROWS, known, strict=False))
        or len(known) < len(shapes)
        or len({len(shape) for shape in known}) > 1
    ):
        raise ExportRefusedError(
            f"{where} has the shapes {shapes} for 1, 2 and 3 rows; the first axis has to be that "
            "of rows. If rows were squeezed away, name the axis: squeeze(-1)."
        )
    axes = (sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known, strict=True))
    return None, *tuple(axes)[1:]


@contextmanager
def refusing(what: str, advice: str = "") -> Iterator[None]:
    """Say in a sentence what a library or a user's network does not do, and why, in its words.

    Raises:
        ExportRefusedError: It raised anything: of torch, TensorFlow and onnxruntime there are
            dozens without a common base. What was refused already stays as it is,
            as does a lack of memory, or of room on a disk.
    """
    try:
        yield
    except (ExportRefusedError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (*NO_ROOM, errno.EFBIG):
            raise
        raise ExportRefusedError(f"{what}: {reason(error)}{advice}") from error


def running(model: Any, feeds: Feeds) -> AbstractContextManager[None]:
    """Say of a network that it fails on some number of rows."""
    n_rows = len(next(iter(feeds.values())))
    return refusing(
        f"{type_name(model)} does not run on {counted(n_rows, 'row')} of its inputs, and has to on "
        "any number of them"
    )


def refuse_onnx_options(options: ExportOptions, name: str) -> None:
    """Refuse options that say nothing of a format without ONNX' operators."""
    defaults = ExportOptions()
    for option in ("opset", "precision", "optimization"):
        if getattr(options, option) != getattr(defaults, option):
            raise ExportRefusedError(
                f"{option}={getattr(options, option)!r} is an option of ONNX files; leave it out "
                f"for {name}, or export as ONNX."
            )
