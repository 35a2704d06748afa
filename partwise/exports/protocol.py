"""What an exporter is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from partwise.errors import InputError
from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feeds, Outputs, Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Values may differ by atol + rtol * |expected| + scaled * (the scale of their output).

    The scale is measured on what the model itself gives for real rows (`proof/scale.py`), so that
    outputs of 1e-13 and of 1e13 are judged alike. `atol` is for outputs whose size is known.

    Raises:
        InputError: A number is negative, infinite or NaN.
    """

    atol: float
    rtol: float
    scaled: float = 0.0
    variation: float = 100.0
    """An output that varies between rows by less than so many times what it may differ by proves
    nothing: the export of another model would pass too."""

    def __post_init__(self) -> None:
        for name in ("atol", "rtol", "scaled", "variation"):
            if not 0 <= (value := getattr(self, name)) < inf:
                raise InputError(
                    f"A tolerance has {name}={value!r}, by which no export could be proved: give "
                    "a finite number of 0 or more."
                )

    def allowed(self, expected: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return for each expected value by how much a given one may differ.

        Args:
            expected: Finite, in double.
            scale: Of its output, of a shape that fits.
        """
        return np.asarray(self.atol + self.rtol * np.abs(expected) + self.scaled * scale)

    def given(self, atol: float | None, rtol: float | None) -> "Tolerance":
        """Return what the user gave in its place: an atol in place of `scaled` as well.

        What a constant passes proves nothing, with any tolerance: it has to vary by twice
        that.
        """
        if atol is None and rtol is None:
            return self
        return Tolerance(
            atol=self.atol if atol is None else atol,
            rtol=self.rtol if rtol is None else rtol,
            scaled=self.scaled if atol is None else 0.0,
            variation=2.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What has to be known of a model to export it and to prove the export."""

    signature: Signature
    tolerance: Tolerance
    """What the arithmetic of the exported format allows for."""
    trees: TreeEnsemble | None = None
    """Those that an ONNX file of the model has to hold; None: the model has no trees."""
    zeros_are_missing: Sequence[int] = ()
    """The features of which the trees see NaN for a zero."""
    largest_zero: float = 0.0
    """What is taken for zero there: |x| up to this."""
    missing_number: float | None = None
    """What the model takes for a missing value, beside NaN."""
    is_constant: bool = False
    """Whether the model, by its structure, gives the same for all rows: trees without a split."""
    opset: int | None = None
    """The version of ONNX' default operators that the file is to have; None: it is not ONNX."""
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    """Numbers that the file holds beside its trees, and that are compared bit by bit, as the
    tensors are which an exporter's `weights` returns."""


@runtime_checkable
class Exporter(Protocol):
    """Writes the models of one library in one format.

    With a further method `check(options)`, it can refuse options before any work. With
    `weights(model)`, which returns the model's tensors by name as numpy arrays, the initializers of
    its ONNX files are compared with them, bit by bit (`proof/weights.py`).

    An exporter has no state, travels to workers, and is part of a run's fingerprint: it should be a
    frozen dataclass. `partwise/testing/exporter.py` holds the tests that every exporter
    passes, ready to be inherited. `describe` comes first, and refuses by name what would come out
    wrong; then `write`, and `predict` for what the export is compared with.
    """

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """Return what the export will take and give.

        Args:
            model: As its serde read it.
            rows: Rows of the partition, for the names and types of columns; may be empty.
            feeds: The inputs that the user's function made of rows, or None where it gave none.
            options: How to export.

        Raises:
            ExportRefusedError: This model, or this option for it, cannot be exported rightly; the
                sentence says which property and what to do.
            ColumnError: The rows lack a feature of the model.
        """

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,
        options: ExportOptions,
        file_path: str,
    ) -> None:
        """Write the model to this path, with `description.signature` in its metadata.

        Equal models give equal bytes. Weights that do not fit stand beside it in a file named
        `<file name>.data`.

        Args:
            model: As its serde read it.
            description: From `describe`.
            sample: Inputs of one row or more, which graphs are captured with.
            options: How to export.
            file_path: Where to.
        """

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the model itself gives, under the names, dtypes and shapes of the export."""
