import subprocess
import sys

import numpy as np
import onnx
import pyarrow as pa
import pytest

from partwise.errors import ColumnError, InputError, IntegrityError
from partwise.models.onnx_model import OnnxModel
from tests.exports.proof.onnx_examples import ROWS, WEIGHTS, linear, tree
from tests.lazily import Lazily

onnxruntime = Lazily("onnxruntime")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def table(rows=ROWS) -> pa.Table:
    return pa.table({name: rows[:, place] for place, name in enumerate("abc")})


def test_it_predicts_rows_by_the_names_of_their_columns(path):
    example = linear()
    model = OnnxModel.from_file(example.save(path))
    assert model.signature == example.expectation.signature
    rows = table().select(["c", "a", "b"])
    np.testing.assert_allclose(model.predict(rows), ROWS @ WEIGHTS[:, :1], rtol=1e-5, atol=1e-6)
    assert model.predict(table(ROWS[:0])).shape == (0, 1)


@pytest.mark.parametrize(("example", "is_optimized"), [(tree, False), (linear, True)])
@pytest.mark.parametrize("open_model", [OnnxModel.from_file, OnnxModel.in_place])
def test_trees_are_not_optimized_and_give_the_same_bits(path, example, is_optimized, open_model):
    model = open_model(example().save(path))
    level = model.session.get_session_options().graph_optimization_level
    assert (level != onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL) == is_optimized
    plain, *_ = onnxruntime.InferenceSession(path).run(None, {"features": ROWS})
    assert model.run({"features": ROWS})["prediction"].tobytes() == plain.tobytes()


def test_it_gives_its_outputs_in_the_files_order(path):
    model = OnnxModel.from_file(linear(names=("slope", "prediction")).save(path))
    assert [*model.run({"features": ROWS})] == ["slope", "prediction"]


def test_a_column_that_lacks_is_named(path):
    model = OnnxModel.from_file(linear().save(path))
    with pytest.raises(ColumnError, match="lacks features of the model: 'b'"):
        model.predict(table().drop_columns(["b"]))


def test_inputs_that_a_function_made_are_not_made_of_rows(path):
    example = linear()
    own = example.expectation.signature.model_copy(update={"layout": "custom"})
    model = OnnxModel.from_file(example.expecting(signature=own).save(path))
    with pytest.raises(InputError, match="pass predict="):
        model.predict(table())


def test_a_file_without_a_signature_runs_and_says_what_it_lacks(path):
    proto = onnx.load(linear().save(path))
    proto.ClearField("metadata_props")
    onnx.save(proto, path)
    model = OnnxModel.from_file(str(path))
    assert len(model.run({"features": ROWS})["slope"]) == len(ROWS)
    with pytest.raises(IntegrityError, match=r"has no 'partwise\.signature' in its metadata"):
        _ = model.signature


def test_what_onnxruntime_does_not_take_is_named_with_its_reason(path):
    path.write_bytes(b"not a model")
    with pytest.raises(IntegrityError, match=r"onnxruntime does not load the model: .*protobuf"):
        OnnxModel.from_file(str(path))


def test_it_needs_no_library_but_onnxruntime(path):
    code = (
        "import sys; from partwise.models.onnx_model import OnnxModel;"
        "OnnxModel.from_file(sys.argv[1]).signature;"
        "print(*{'onnx', 'torch', 'lightgbm', 'xgboost', 'sklearn', 'pandas'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code, linear().save(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
