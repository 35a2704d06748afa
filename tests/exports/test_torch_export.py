"""PyTorch modules as ONNX: what comes out is what the module gives, on any number of rows."""

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from partwise.errors import ColumnError, ExportRefusedError
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.exports.torch.modules import weights_of
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_files import open_session, read_onnx
from partwise.models.onnx_model import OnnxModel
from partwise.models.signature import Feeds, feeds_of_rows, take_rows
from tests.lazily import Lazily

models, torch = Lazily("tests.exports.torch_models"), Lazily("torch")

EXPORTER = TorchOnnxExporter()
FULL = ExportOptions()


@dataclass(frozen=True)
class Exported:
    model: "torch.nn.Module"
    description: ModelDescription
    feeds: Feeds
    path: Path

    def graph(self) -> Any:
        return onnx.load(self.path)

    def check(self, atol: float, counts: tuple[int, ...] = (0, 1, 7)) -> None:
        """Compare names, order, shapes, dtypes and values on numbers of rows not captured."""
        session = open_session(read_onnx(str(self.path)))
        signature = self.description.signature
        assert [value.name for value in session.get_inputs()] == [t.name for t in signature.inputs]
        names = [value.name for value in session.get_outputs()]
        assert names == [tensor.name for tensor in signature.outputs]
        for count in counts:
            feeds = take_rows(self.feeds, count)
            expected = EXPORTER.predict(self.model, signature, feeds)
            found = dict(zip(names, session.run(None, feeds), strict=True))
            for tensor in signature.outputs:
                values = expected[tensor.name]
                assert values.shape == (count, *tensor.shape[1:]) == found[tensor.name].shape
                assert str(values.dtype) == tensor.dtype == str(found[tensor.name].dtype)
                np.testing.assert_allclose(found[tensor.name], values, rtol=0, atol=atol)
                assert count < 2 or len(np.unique(values)) > 1


def export(
    model: "torch.nn.Module", feeds: Feeds | None, path: Path, options: ExportOptions = FULL
) -> Exported:
    description = EXPORTER.describe(model, models.ROWS, feeds, options)
    made = feeds_of_rows(description.signature, models.ROWS) if feeds is None else feeds
    EXPORTER.write(model, description, made, options, str(path))
    return Exported(model, description, made, path)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory) -> Exported:
    return export(models.make_mlp(), None, tmp_path_factory.mktemp("mlp") / "model.onnx")


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Exported:
    path = tmp_path_factory.mktemp("shop") / "model.onnx"
    return export(models.ShopModel(), models.SHOP_FEEDS, path)


def assert_quiet(capfd: Any, caplog: Any) -> None:
    assert tuple(capfd.readouterr()) == ("", "")
    # torch's trace for its developers is at the level DEBUG, and nobody listens to it.
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_a_matrix_of_features_comes_out_right(mlp):
    mlp.check(atol=1e-6)
    signature = mlp.description.signature
    assert signature.layout == "tensor"
    assert signature.column_names() == models.COLUMNS
    assert (signature.inputs[0].dtype, signature.inputs[0].shape) == ("float32", (None, 4))
    expected = EXPORTER.predict(mlp.model, signature, mlp.feeds)
    assert signature.predictions(expected).shape == (20,)


def test_the_file_is_what_was_declared(mlp):
    graph = mlp.graph()
    onnx.checker.check_model(graph, full_check=True)
    ends = [*graph.graph.input, *graph.graph.output]
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in ends] == ["batch", "batch"]
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", 20)]
    assert mlp.description.opset == 20
    content = mlp.path.read_bytes()
    assert OnnxModel.from_file(str(mlp.path)).signature == mlp.description.signature
    assert b"torch_models.py" not in content
    assert b"site-packages" not in content


def test_torch_lists_its_operators_once_however_many_models_are_exported(mlp, tmp_path):
    """A list of each export is half of its time; this says where a torch has it elsewhere."""
    from torch.onnx._internal._lazy_import import onnxscript_apis

    before = onnxscript_apis.get_torchlib_ops.cache_info()
    export(mlp.model, None, tmp_path / "model.onnx")
    after = onnxscript_apis.get_torchlib_ops.cache_info()
    assert (after.hits - before.hits, after.misses) == (1, 1)
    assert (tmp_path / "model.onnx").read_bytes() == mlp.path.read_bytes()


def test_inputs_and_outputs_by_name_come_out_right(shop):
    shop.check(atol=1e-6)
    signature = shop.description.signature
    assert [(t.name, t.dtype, t.shape) for t in signature.inputs] == [
        ("shop", "int64", (None,)),
        ("numbers", "float32", (None, 2)),
    ]
    assert [(t.name, t.shape) for t in signature.outputs] == [
        ("mean", (None, 1)),
        ("spread", (None,)),
    ]
    assert (signature.layout, signature.prediction, signature.prediction_column) == (
        "custom",
        "mean",
        0,
    )


def test_equal_models_give_equal_bytes(mlp, tmp_path):
    again = export(models.make_mlp(), None, tmp_path / "model.onnx")

    assert again.path.read_bytes() == mlp.path.read_bytes()


def test_double_columns_in_another_opset_with_weights_beside_it(tmp_path):
    """One export for four things that have nothing to do with each other: each takes a second."""
    options = ExportOptions(input_layout="columns", opset=21, embedded_bytes=0)
    exported = export(models.make_mlp(2).double(), None, tmp_path / "model.onnx", options)

    exported.check(atol=1e-12)
    signature = exported.description.signature
    assert [(t.name, t.dtype) for t in signature.inputs] == [(c, "float64") for c in models.COLUMNS]
    assert exported.description.tolerance.scaled == 1e-12
    assert signature.prediction_column is None
    assert exported.graph().opset_import[0].version == 21
    assert (tmp_path / "model.onnx.data").stat().st_size >= 64 * 4 * 8
    assert exported.path.stat().st_size < 8000


def test_precision_and_optimization_are_in_the_file(tmp_path):
    options = ExportOptions(precision="int8", optimization="extended")
    exported = export(models.make_mlp(), None, tmp_path / "model.onnx", options)

    exported.check(atol=0.2)
    operators = {node.op_type for node in exported.graph().graph.node}
    assert "DynamicQuantizeMatMul" in operators


def test_modules_are_left_as_they_were(mlp):
    model = models.make_mlp()
    model[1].eval()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    random_state = torch.get_rng_state()

    description = EXPORTER.describe(model, models.ROWS, None, FULL)
    EXPORTER.predict(model, description.signature, mlp.feeds)
    with pytest.raises(ExportRefusedError, match="does not run on 1 row"):
        EXPORTER.describe(model, models.ROWS, {"x": np.ones((3, 5), np.float32)}, FULL)

    assert [part.training for part in model] == [True, False, True, True, True]
    assert model.training
    assert all(torch.equal(before[name], values) for name, values in model.state_dict().items())
    assert torch.equal(random_state, torch.get_rng_state())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: models.branch, "Could not guard on data-dependent expression"),
        (lambda: torch.special.bessel_j0, "No ONNX function found for .*bessel_j0"),
    ],
)
def test_what_torch_does_not_translate_is_refused_with_its_reason(
    function, said, tmp_path, capfd, caplog
):
    model = models.Function(function())
    description = EXPORTER.describe(model, models.ROWS, models.FEEDS, FULL)
    disabled = logging.root.manager.disable

    with pytest.raises(ExportRefusedError, match=said) as raised:
        EXPORTER.write(model, description, models.FEEDS, FULL, str(tmp_path / "model.onnx"))

    assert raised.value.__cause__ is not None
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []
    assert model.training
    assert logging.root.manager.disable == disabled
    assert_quiet(capfd, caplog)


def test_exports_are_quiet(tmp_path, capfd, caplog):
    filters = list(warnings.filters)
    lstm = torch.nn.LSTM(4, 3, batch_first=True)
    model = models.Function(lambda x: lstm(x)[0][:, -1])
    model.lstm = lstm
    feeds = {"x": np.random.default_rng(0).normal(size=(5, 6, 4)).astype(np.float32)}

    exported = export(model, feeds, tmp_path / "model.onnx")

    # onnxruntime 1.31 ends its process when its LSTM gets no rows, so OnnxModel gives it none.
    exported.check(atol=1e-6, counts=(1, 7))
    nothing = OnnxModel.from_file(str(exported.path)).run({"x": feeds["x"][:0]})
    assert [(name, found.shape) for name, found in nothing.items()] == [("output", (0, 3))]
    assert_quiet(capfd, caplog)
    assert warnings.filters == filters


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x.reshape(3, 4) * 2, "does not run on 1 row"),
        (lambda x: x.sum(0), r"'output' .* shapes \[\(4,\), \(4,\), \(4,\)\] for 1, 2 and 3 rows"),
        (lambda x: x[:, :1].squeeze(), r"\[\(\), \(2,\), \(3,\)\] .*squeeze\(-1\)"),
        (lambda x: x.T, r"the first axis has to be that of rows"),
        (lambda x: x.new_zeros(2, 1) + x.sum(), r"\[\(2, 1\), \(2, 1\), \(2, 1\)\]"),
        (lambda x: {"y": x, "z": 3}, "output 'z' is a int"),
        (lambda x: "text", "output 'output' is a str"),
        (lambda x: (x, (x, x)), "output 'output_1' is a tuple"),
        (lambda x: {}, "returns nothing"),
        (lambda x: x.bfloat16(), "is torch.bfloat16: cast it"),
        (lambda x: torch.complex(x, x), "is complex"),
        (
            lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
            "is a nested or sparse tensor",
        ),
        (lambda x: x.to_sparse(), r"is a nested or sparse tensor, of torch\.sparse_coo"),
        (lambda x: torch.complex(x, x).conj(), "is complex"),
        (lambda x: 1 / 0, "does not run on 1 row .*division by zero"),
    ],
)
def test_outputs_that_are_no_rows_of_tensors_are_refused(function, said):
    with pytest.raises(ExportRefusedError, match=said):
        EXPORTER.describe(models.Function(function), models.ROWS, models.FEEDS, FULL)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x, ["output"]),
        (lambda x: (x, x + 1), ["output_0", "output_1"]),
        (lambda x: [x, None, x + 1], ["output_0", "output_2"]),
        (lambda x: {"y": x, "z": x[:, 0]}, ["y", "z"]),
        (lambda x: models.Pair(x, x[:, 0]), ["first", "second"]),
    ],
)
def test_outputs_have_the_names_that_the_module_gives(function, names):
    description = EXPORTER.describe(models.Function(function), models.ROWS, models.FEEDS, FULL)

    assert [tensor.name for tensor in description.signature.outputs] == names
    assert description.signature.prediction == names[0]


@pytest.mark.parametrize(("kind", "name"), [("ByPlace", "inputs"), ("ByName", "x")])
def test_a_module_that_takes_any_inputs_gets_them_as_it_can(kind, name):
    model = getattr(models, kind)(lambda x: 2 * x)
    feeds = {name: models.FEEDS["x"]}
    description = EXPORTER.describe(model, models.ROWS, feeds, FULL)
    found = EXPORTER.predict(model, description.signature, feeds)
    np.testing.assert_array_equal(found["output"], 2 * models.FEEDS["x"])


def test_an_input_may_have_a_name_that_torch_gives_to_a_value_of_its_own(tmp_path):
    model = models.Function(lambda x: torch.cat([x, 2 * x], 1) + 1)
    exported = export(model, {"cat": models.FEEDS["x"]}, tmp_path / "model.onnx")

    onnx.checker.check_model(exported.path, full_check=True)
    exported.check(atol=1e-6)


def test_an_input_that_has_the_name_of_an_output_or_none_is_refused():
    for name in ("x", ""):
        with pytest.raises(ExportRefusedError, match=f"'{name}' cannot be the name of an input"):
            EXPORTER.describe(
                models.Function(lambda x: {"x": x}), models.ROWS, {name: models.FEEDS["x"]}, FULL
            )


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        (None, "pass example_inputs=.* or set the attribute feature_names_in_"),
        ({"x": np.array(["a"], object)}, "'x' is object of shape"),
        ({"x": np.float32(1)}, r"'x' is float32 of shape \(\)"),
        ({"x": np.ones((2, 4), np.float32), "y": np.ones(3)}, "one row for each row of the data"),
        ({"x": np.ones((2, 4), np.float32), "y": np.ones(2)}, "does not run on 1 row"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(feeds, said):
    with pytest.raises(ExportRefusedError, match=said):
        EXPORTER.describe(models.Function(torch.exp), models.ROWS, feeds, FULL)


def test_a_column_that_is_missing_is_named():
    with pytest.raises(ColumnError, match=r"lacks features of the model: .d"):
        EXPORTER.describe(models.make_mlp(), models.ROWS.drop_columns(["d"]), None, FULL)


def test_no_rows_at_all_are_enough_to_describe():
    described = EXPORTER.describe(models.make_mlp(), models.ROWS.slice(0, 0), None, FULL)

    assert described == EXPORTER.describe(models.make_mlp(), models.ROWS, None, FULL)


def test_a_type_that_numpy_lacks_is_refused():
    with pytest.raises(ExportRefusedError, match=r"'0.weight' .* bfloat16"):
        EXPORTER.describe(models.make_mlp().bfloat16(), models.ROWS, None, FULL)


def test_a_graph_for_some_numbers_of_rows_only_is_refused(tmp_path):
    model = models.Function(lambda x: x if x.shape[0] < 5 else x * 2)
    description = EXPORTER.describe(model, models.ROWS, models.FEEDS, FULL)

    with pytest.raises(ExportRefusedError, match=r"another graph for another number of rows"):
        EXPORTER.write(model, description, models.FEEDS, FULL, str(tmp_path / "model.onnx"))


def test_weights_are_known_that_are_views_which_numpy_has_not():
    model = torch.nn.Linear(2, 1)
    model.register_buffer("negated", torch.tensor([1 + 2j]).conj().imag)
    assert weights_of(model)["negated"].tolist() == [-2.0]
