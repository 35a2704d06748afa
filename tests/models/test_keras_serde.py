import numpy as np
import pytest

from partwise.errors import SerdeError
from partwise.models.serdes import KerasSerde, serde_for
from partwise.testing import SerdeContract
from tests.lazily import Lazily

keras = Lazily("keras")

ROWS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
# Keras' own, when it takes NumPy 2 arrays of tensors.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class TestKerasSerde(SerdeContract):
    @property
    def serde(self):
        from tests.models.doubled import Doubled

        return KerasSerde(classes=(Doubled,))

    def model(self):
        keras.utils.set_random_seed(0)
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), self.serde.classes[0]()])

    def predictions(self, model):
        return keras.ops.convert_to_numpy(model(ROWS))

    def test_the_type_decides(self):
        assert serde_for(self.model()) == KerasSerde()

    def test_classes_not_given_are_refused(self, path):
        KerasSerde().write(self.model(), str(path))
        with pytest.raises(SerdeError, match=r"pass serde=KerasSerde\(classes="):
            KerasSerde().read(str(path))

    def test_code_in_a_file_is_refused(self, path):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda rows: rows * 2)])
        self.serde.write(model, str(path))
        with pytest.raises(SerdeError, match="Lambda"):
            self.serde.read(str(path))

    def test_the_columns_that_a_model_takes_are_kept(self, path):
        model = self.model()
        model.feature_names_in_ = np.array(["price", "día", "z"], dtype=object)
        self.serde.write(model, str(path))
        assert list(self.serde.read(str(path)).feature_names_in_) == ["price", "día", "z"]

    def test_a_keras_without_a_safe_mode_that_holds_is_refused(self, path, monkeypatch):
        monkeypatch.setattr("keras.__version__", "3.11.0")
        with pytest.raises(SerdeError, match=r"Keras 3\.11\.0 .* install keras>=3\.13\.2"):
            self.serde.read(str(path))

    def test_a_release_candidate_is_a_version(self, path, monkeypatch):
        self.serde.write(self.model(), str(path))
        monkeypatch.setattr("keras.__version__", "3.15.0rc1")
        assert isinstance(self.serde.read(str(path)), keras.Model)

    def test_what_is_no_model_of_keras_is_refused(self, path):
        with pytest.raises(SerdeError, match=r"writes a keras\.Model, not a dict"):
            self.serde.write({}, str(path))


def test_a_filename_has_to_name_the_format():
    with pytest.raises(SerdeError, match=r"'model.h5'.* end in .keras"):
        KerasSerde(filename="model.h5")
