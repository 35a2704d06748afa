"""What can be exported to what, told from the libraries alone."""

import pytest

from partwise.errors import ExportRefusedError, FunctionError
from partwise.exports.choice import EXPORTERS, check_formats, resolve_exporter
from partwise.models.export_options import ExportOptions
from tests.exports.ridge_exporter import RidgeExporter

PLAIN = ExportOptions()


@pytest.mark.parametrize(
    ("form", "libraries", "options", "message"),
    [
        ("pt2", ["lightgbm"], {}, "lightgbm cannot be exported to pt2: choose native or onnx"),
        ("native", ["torch"], {}, "torch cannot be exported to native: choose neuron or onnx or"),
        ("onnx", ["lightgbm"], {"precision": "int8"}, "not exported in int8"),
        ("onnx", ["lightgbm", "xgboost"], {"opset": 99}, "opset 99"),
        ("onnx", ["xgboost"], {"optimization": "all"}, "is for PyTorch modules"),
        ("pt2", ["torch"], {"opset": 20}, "option of ONNX files"),
        ("native", ["xgboost"], {"input_layout": "columns"}, "mean nothing there"),
    ],
)
def test_what_would_be_refused_for_every_model_is_refused_at_once(
    form, libraries, options, message
):
    with pytest.raises(ExportRefusedError, match=message):
        check_formats(form, libraries, ExportOptions(**options))


@pytest.mark.parametrize(
    ("form", "libraries", "options"),
    [
        ("onnx", ["lightgbm", "torch"], {"precision": "int8"}),
        ("pt2", ["pickle"], {}),
        ("torchscript", ["mine:Serde", "lightgbm"], {}),
    ],
)
def test_what_some_models_may_take_is_left_to_each(form, libraries, options):
    check_formats(form, libraries, ExportOptions(**options))


@pytest.mark.parametrize("pair", EXPORTERS, ids=lambda pair: "-".join(pair))
def test_defaults_do_for_all(pair):
    check_formats(pair[0], [pair[1]], PLAIN)


def test_an_exporter_of_ones_own_is_given_or_named():
    assert resolve_exporter("") is None
    assert resolve_exporter(RidgeExporter()) == RidgeExporter()
    assert resolve_exporter("tests.exports.ridge_exporter:make") == RidgeExporter()
    with pytest.raises(FunctionError, match="lacks describe, write or predict"):
        resolve_exporter("time:time")
    with pytest.raises(
        FunctionError, match=r"is a class: give an exporter, such as RidgeExporter\(\)"
    ):
        resolve_exporter(RidgeExporter)
