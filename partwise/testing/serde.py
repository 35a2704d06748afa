"""What every serde keeps to. Inherit it to check your own.

Example:
    class TestSkopsSerde(SerdeContract):
        serde = SkopsSerde()

        def model(self):
            return LinearRegression().fit(X, y)

        def predictions(self, model):
            return model.predict(X)
"""

import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from partwise.connector.context import check_filename
from partwise.models.serdes import ModelSerde
from partwise.models.serdes.protocol import reads_streams, writes_streams
from partwise.runs.bundle import read_model


class SerdeContract:
    """Set `serde`, and define `model` and `predictions`."""

    serde: ClassVar[ModelSerde]

    def model(self) -> Any:
        """Make a trained model."""
        raise NotImplementedError

    def predictions(self, model: Any) -> np.ndarray:
        """Predict a few rows with a model; the values vary."""
        raise NotImplementedError

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Return where the model is written."""
        return tmp_path / self.serde.filename

    def test_predictions_are_equal_to_the_last_bit(self, path: Path) -> None:
        model = self.model()
        before = np.asarray(self.predictions(model))
        self.serde.write(model, str(path))
        after = np.asarray(self.predictions(self.serde.read(str(path))))
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
        assert len(np.unique(before)) > 1, "predictions that do not vary prove nothing"

    def test_a_model_that_was_read_can_be_written_and_read_again(self, path: Path) -> None:
        model = self.model()
        self.serde.write(model, str(path))
        # The end of the name stays: some libraries know the format by it.
        again = path.with_name(f"again-{path.name}")
        first = self.serde.read(str(path))
        self.serde.write(first, str(again))
        second = self.serde.read(str(again))
        assert type(first) is type(second) is type(model)
        np.testing.assert_array_equal(self.predictions(first), self.predictions(second))

    def test_writing_leaves_the_model_as_it_was(self, path: Path) -> None:
        model = self.model()
        before = np.asarray(self.predictions(model)).copy()
        self.serde.write(model, str(path))
        content = path.read_bytes()
        np.testing.assert_array_equal(before, self.predictions(model))
        self.serde.write(model, str(path))
        assert len(path.read_bytes()) == len(content)

    def test_one_flat_file_is_written_and_nothing_beside_it(self, path: Path) -> None:
        check_filename(self.serde.filename)
        self.serde.write(self.model(), str(path))
        assert [entry.name for entry in path.parent.iterdir()] == [self.serde.filename]
        assert path.stat().st_size > 0

    def test_an_open_file_is_written_and_read_as_a_path_is(self, path: Path) -> None:
        model, file = self.model(), io.BytesIO()
        self.serde.write(model, str(path))
        if writes_streams(self.serde):
            self.serde.write_stream(model, file)
            assert file.getvalue() == path.read_bytes()
        if reads_streams(self.serde):
            read = read_model(self.serde, path.read_bytes(), path.name)
            np.testing.assert_array_equal(self.predictions(model), self.predictions(read))

    def test_the_serde_travels_between_processes(self) -> None:
        copy = pickle.loads(pickle.dumps(self.serde))
        assert copy == self.serde
        assert copy.filename == self.serde.filename

    @pytest.mark.parametrize("content", [b"", b"not a model"])
    def test_what_is_no_model_is_refused(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(Exception, match=r"\w"):
            self.serde.read(str(path))
