import numpy as np

from partwise.models.serdes import PickleSerde
from partwise.testing import SerdeContract


class TestPickleSerde(SerdeContract):
    serde = PickleSerde(filename="line.pkl")

    def model(self):
        slope = 3.0

        class Line:
            def predict(self, rows):
                return rows * slope

        return Line()

    def predictions(self, model):
        return model.predict(np.arange(4.0))

    def test_a_model_that_was_read_can_be_written_and_read_again(self, path):
        """A local class comes back as a class of its own, so types are not compared."""
        self.serde.write(self.model(), str(path))
        model = self.serde.read(str(path))
        self.serde.write(model, str(path))
        np.testing.assert_array_equal(
            self.predictions(self.serde.read(str(path))), self.predictions(model)
        )
