"""PyTorch modules as TorchScript and as .pt2: written, loaded, and run on any number of rows."""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partwise.errors import ExportRefusedError, InputError, IntegrityError, SerdeError
from partwise.exports.protocol import Exporter
from partwise.exports.torch.pt2 import Pt2Exporter
from partwise.exports.torch.torchscript import TorchScriptExporter
from partwise.models.export_options import ExportOptions
from partwise.models.serdes import Pt2Serde, TorchScriptSerde
from partwise.models.signature import Feeds, feeds_of_rows, take_rows
from partwise.models.torch_programs import Pt2Model, TorchScriptModel
from partwise.testing import SerdeContract
from tests.lazily import Lazily

models, torch = Lazily("tests.exports.torch_models"), Lazily("torch")

FULL = ExportOptions()


@dataclass(frozen=True)
class Format:
    exporter: Exporter
    model: Any
    serde: Any


FORMATS = {
    "torchscript": Format(TorchScriptExporter(), TorchScriptModel, TorchScriptSerde()),
    "pt2": Format(Pt2Exporter(), Pt2Model, Pt2Serde()),
}


@pytest.fixture(params=FORMATS, scope="module")
def made(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def export(
    made: Format,
    model: "torch.nn.Module",
    feeds: Feeds | None,
    path: Path,
    options: ExportOptions = FULL,
) -> Any:
    described = made.exporter.describe(model, models.ROWS, feeds, options)
    sample = feeds_of_rows(described.signature, models.ROWS) if feeds is None else feeds
    made.exporter.write(model, described, sample, options, str(path))
    return made.model.from_file(str(path))


@pytest.mark.parametrize("layout", ["tensor", "columns"])
def test_rows_get_the_predictions_of_the_module(made, layout, tmp_path):
    model = models.make_mlp()

    loaded = export(made, model, None, tmp_path / "m", ExportOptions(input_layout=layout))

    features = np.column_stack([models.ROWS[name].to_numpy() for name in models.COLUMNS])
    with torch.no_grad():
        expected = model.eval()(torch.tensor(features, dtype=torch.float32)).numpy()[:, 0]
    np.testing.assert_allclose(loaded.predict(models.ROWS), expected, rtol=0, atol=1e-6)
    assert len(np.unique(expected)) == 20
    assert loaded.predict(models.ROWS.slice(0, 0)).shape == (0,)
    assert loaded.predict(models.ROWS.slice(3, 1)).shape == (1,)


def test_inputs_and_outputs_by_name_come_out_right(made, tmp_path):
    model = models.ShopModel()

    loaded = export(made, model, models.SHOP_FEEDS, tmp_path / "m")

    assert [tensor.name for tensor in loaded.signature.inputs] == ["shop", "numbers"]
    for count in (0, 1, 7):
        feeds = take_rows(models.SHOP_FEEDS, count)
        expected = made.exporter.predict(model, loaded.signature, feeds)
        found = loaded.run(dict(reversed(feeds.items())))
        assert list(found) == ["mean", "spread"] == list(expected)
        for name, values in expected.items():
            assert (found[name].shape, found[name].dtype) == (values.shape, values.dtype)
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)
    with pytest.raises(InputError, match="inputs of this export were made by a function of yours"):
        loaded.predict(models.ROWS)


def test_double_precision_is_kept(made, tmp_path):
    model = models.make_mlp(2).double()

    loaded = export(made, model, None, tmp_path / "m")

    assert loaded.signature.inputs[0].dtype == "float64"
    feeds = feeds_of_rows(loaded.signature, models.ROWS)
    expected = made.exporter.predict(model, loaded.signature, feeds)["output"]
    np.testing.assert_allclose(loaded.predict(models.ROWS), expected, rtol=0, atol=1e-14)


def test_a_view_that_numpy_has_not_is_an_output_as_any_other(made, tmp_path):
    model = models.Function(lambda x: torch.complex(x, x + 1).conj().imag)
    loaded = export(made, model, models.FEEDS, tmp_path / "m")
    assert np.array_equal(loaded.run(models.FEEDS)["output"], -1 - models.FEEDS["x"])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: models.branch(x),
        lambda x: x if x.shape[0] < 5 else x * 2,
        lambda x: x * float(x.shape[0]),
        lambda x: x + 1 if x.shape[0] == 1 else x,
    ],
)
def test_what_holds_for_some_rows_only_is_refused(made, function, tmp_path):
    model = models.Function(function)

    with pytest.raises(ExportRefusedError, match=r"another|does not capture"):
        export(made, model, models.FEEDS, tmp_path / "m")

    assert list(tmp_path.iterdir()) == []
    assert model.training


def test_modules_are_left_as_they_were_and_nothing_is_said(made, tmp_path, capfd, caplog):
    model = models.make_mlp()
    model[1].eval()
    random_state = torch.get_rng_state()

    export(made, model, None, tmp_path / "m")

    assert [part.training for part in model] == [True, False, True, True, True]
    assert torch.equal(random_state, torch.get_rng_state())
    assert tuple(capfd.readouterr()) == ("", "")
    assert [record for record in caplog.records if record.levelno > 10] == []


def test_layers_of_torch_that_check_shapes_are_no_branches(made, tmp_path):
    lstm = torch.nn.LSTM(4, 3, batch_first=True)
    model = models.Function(lambda x: lstm(x)[0][:, -1])
    model.lstm = lstm
    feeds = {"x": np.random.default_rng(0).normal(size=(5, 6, 4)).astype(np.float32)}

    loaded = export(made, model, feeds, tmp_path / "m")

    expected = made.exporter.predict(model, loaded.signature, feeds)["output"]
    np.testing.assert_allclose(loaded.run(feeds)["output"], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x.max().item(),
        lambda x: x + float(x.max()),
        lambda x: x * int(x.max() > 1e3),
        lambda x: x + x[0].tolist()[0],
        lambda x: x + torch.from_numpy((x.detach().numpy() > 1e3).astype("f4")),
    ],
    ids=["item", "float", "int", "tolist", "numpy"],
)
def test_a_value_that_is_taken_out_of_a_tensor_is_no_constant(function, tmp_path):
    """A proof on other rows does not see it where the value is the same for nearly all."""
    with pytest.raises(
        ExportRefusedError, match=r"takes a value out of a tensor.*_export\.py, line"
    ):
        export(FORMATS["torchscript"], models.Function(function), models.FEEDS, tmp_path / "m")


def test_a_branch_is_named_by_its_line(tmp_path):
    with pytest.raises(ExportRefusedError, match=r"another path .*: torch_models\.py, line \d+\."):
        export(FORMATS["torchscript"], models.Function(models.branch), models.FEEDS, tmp_path / "m")


@pytest.mark.parametrize(
    "option", [{"opset": 20}, {"precision": "int8"}, {"optimization": "basic"}]
)
def test_options_of_onnx_are_refused(made, option):
    with pytest.raises(ExportRefusedError, match="is an option of ONNX files"):
        made.exporter.describe(models.make_mlp(), models.ROWS, None, ExportOptions(**option))


def test_files_of_others_are_refused(made, tmp_path):
    path = tmp_path / "m"
    signature = export(made, models.make_mlp(), None, path).signature
    with pytest.raises(IntegrityError, match="export_models did not write it"):
        made.model.from_file(str(_without_metadata(path)))
    path.write_bytes(b"no model")
    with pytest.raises(IntegrityError, match=r"is not a (TorchScript|\.pt2 file)"):
        made.model.from_file(str(path))
    with pytest.raises(SerdeError, match=r"not a Sequential.*export_models"):
        made.serde.write(models.make_mlp(), str(path))
    assert signature.origin is None


def _without_metadata(path: Path) -> Path:
    other = path.with_name("other")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            if "partwise.signature" not in name:
                target.writestr(name, source.read(name))
    return other


def test_equal_models_give_equal_pt2_files(tmp_path):
    for name in ("first", "second"):
        export(FORMATS["pt2"], models.make_mlp(), None, tmp_path / name)

    content = (tmp_path / "first").read_bytes()
    assert content == (tmp_path / "second").read_bytes()
    assert b"torch_models.py" not in content


def test_no_folder_of_this_machine_goes_into_a_graph_within_a_graph(tmp_path):
    export(FORMATS["pt2"], models.Function(models.choose), models.FEEDS, tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    assert b"torch.ops.higher_order.cond" in content
    assert b"torch_models.py" not in content


def test_rows_do_not_go_into_a_file(made, tmp_path):
    export(made, models.Function(torch.exp), models.FEEDS, tmp_path / "m")

    content = b"".join(
        file.read(name) for file in [zipfile.ZipFile(tmp_path / "m")] for name in file.namelist()
    )
    assert models.FEEDS["x"][0].tobytes() not in content


def test_equal_models_give_equal_weights_in_torchscript(tmp_path):
    weights = []
    for name in ("first", "second"):
        export(FORMATS["torchscript"], models.make_mlp(), None, tmp_path / name)
        with zipfile.ZipFile(tmp_path / name) as file:
            weights.append({n: file.read(n) for n in file.namelist() if "/data/" in n})

    assert weights[0] == weights[1]
    assert weights[0]


def test_files_run_where_their_module_is_not_known(tmp_path):
    """In one process for both, since torch takes long to start."""
    loaded = [
        export(made, models.ShopModel(), models.SHOP_FEEDS, tmp_path / name)
        for name, made in FORMATS.items()
    ]
    code = """
import sys, numpy
from partwise.models.torch_programs import Pt2Model
from partwise.models.torch_programs import TorchScriptModel
feeds = {"shop": numpy.arange(4), "numbers": numpy.ones((4, 2), "float32")}
print([model.from_file(path).run(feeds)["spread"].tolist()
       for model, path in zip((TorchScriptModel, Pt2Model), sys.argv[1:], strict=True)])
"""

    paths = [str(tmp_path / name) for name in FORMATS]
    command = [sys.executable, "-W", "error", "-c", code, *paths]
    output = subprocess.run(command, capture_output=True, text=True, timeout=240)

    feeds = {"shop": np.arange(4), "numbers": np.ones((4, 2), np.float32)}
    expected = [model.run(feeds)["spread"].tolist() for model in loaded]
    assert (output.stderr, output.stdout.strip()) == ("", str(expected))


class _LoadedContract(SerdeContract):
    name: str

    def model(self) -> Any:
        path = self.folder / "made"
        if not path.exists():
            export(FORMATS[self.name], models.make_mlp(), None, path)
        return FORMATS[self.name].model.from_file(str(path))

    def predictions(self, model: Any) -> np.ndarray:
        return model.predict(models.ROWS)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.folder = tmp_path_factory.mktemp(self.name)


class TestTorchScriptSerde(_LoadedContract):
    name = "torchscript"
    serde = TorchScriptSerde()


class TestPt2Serde(_LoadedContract):
    name = "pt2"
    serde = Pt2Serde()
