"""What a child process makes of a partition's rows to compare a model with its export."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from partwise.errors import ExportRefusedError, InputError
from partwise.exports.trees.native import NativeExporter
from partwise.exports.works import ComparedRows, Proof
from partwise.models.export_options import ExportOptions, ValidationOptions

ROWS = pa.table({"x": [1.0, 2.0]})


@pytest.mark.parametrize(
    "made", [np.zeros((2, 1)), None, {}, {"input": [1.0, 2.0]}, {0: np.zeros((2, 1))}]
)
def test_inputs_that_are_no_named_arrays_are_refused(made):
    proof = Proof(
        validation=ValidationOptions(),
        rows=ComparedRows(trainer=None, most=10),
        exporter=None,
        inputs=lambda data, model, context: made,
    )
    with pytest.raises(
        InputError, match=f"example_inputs= returned a {type(made).__name__}: return a map"
    ):
        proof.feeds(ROWS, SimpleNamespace(model=None), None)


def test_a_native_file_takes_rows_by_name_only():
    made = {"input": np.zeros((2, 1))}
    with pytest.raises(ExportRefusedError, match="leave example_inputs= out"):
        NativeExporter().describe(None, ROWS, made, ExportOptions())


def test_inputs_have_the_byte_order_of_the_machine():
    """LightGBM and onnxruntime take the bytes as they are."""
    matrix = np.array([[1.5], [2.5]])
    proof = Proof(
        validation=ValidationOptions(),
        rows=ComparedRows(trainer=None, most=10),
        exporter=None,
        inputs=lambda data, model, context: {"input": matrix.astype(">f8")},
    )
    made = proof.feeds(ROWS, SimpleNamespace(model=None), None)["input"]
    assert made.dtype.str == "<f8"
    np.testing.assert_array_equal(made, matrix)
