from pathlib import Path

import numpy as np
import onnx
import pytest

from partwise.errors import IntegrityError, SerdeError
from partwise.models.onnx_model import OnnxModel
from partwise.models.serdes import OnnxSerde
from partwise.runs.bundle import read_model
from partwise.testing import SerdeContract
from tests.exports.proof.onnx_examples import ROWS, linear, wide


class TestOnnxSerde(SerdeContract):
    serde = OnnxSerde()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory):
        self.folder = tmp_path_factory.mktemp("model")

    def model(self):
        return OnnxModel.from_file(linear().save(self.folder / "source.onnx"))

    def predictions(self, model):
        return model.run({"features": ROWS})["prediction"]

    def test_a_document_of_onnx_is_written_too(self, path):
        proto = onnx.load(linear().save(self.folder / "source.onnx"))
        self.serde.write(proto, str(path))
        assert (
            self.predictions(self.serde.read(str(path))) == self.predictions(self.model())
        ).all()

    def test_weights_beside_the_model_stay_beside_it(self, path):
        example = wide()
        model = OnnxModel.from_file(example.save(self.folder / path.name, embedded_bytes=0))
        self.serde.write(model, str(path))
        assert {entry.name for entry in path.parent.iterdir()} == {path.name, f"{path.name}.data"}
        (case,) = example.cases
        found = self.serde.read(str(path)).run(case.feeds)["prediction"]
        np.testing.assert_array_equal(found, model.run(case.feeds)["prediction"])

    def test_weights_that_did_not_come_with_the_model_are_asked_for(self, path):
        file = wide().save(self.folder / path.name, embedded_bytes=0)
        with pytest.raises(
            IntegrityError, match=r"\.data', which .* names .*, did not come with it"
        ):
            read_model(self.serde, Path(file).read_bytes(), path.name)

    def test_anything_else_is_refused(self, path):
        with pytest.raises(SerdeError, match=r"cannot write a builtins\.dict: it takes an OnnxMo"):
            self.serde.write({}, str(path))

    def test_a_model_that_was_opened_in_place_is_refused(self, path):
        model = OnnxModel.in_place(wide().save(self.folder / path.name, embedded_bytes=0))
        with pytest.raises(SerdeError, match=r"opened in place.*or open it with OnnxModel\.from_f"):
            self.serde.write(model, str(path))
