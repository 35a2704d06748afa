"""What every exporter keeps to. Inherit it to check your own.

Example:
    class TestRidgeExporter(ExporterContract):
        exporter = RidgeExporter()
        form = "onnx"

        def model(self):
            return Ridge().fit(X, y)

        def rows(self):
            return pa.table({"x": [1.0, 2.0], "z": [0.5, 0.1]})
"""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from partwise.exports.proof.cases import make_cases
from partwise.exports.proof.guarding import judge_and_guard
from partwise.exports.proof.judge import close_judges
from partwise.exports.proof.verdict import Expectation
from partwise.exports.protocol import Exporter, ModelDescription
from partwise.models.export_options import ExportOptions, ModelFormat
from partwise.models.serdes import SERDES
from partwise.models.signature import Feeds, Outputs, Signature, feeds_of_rows


class ExporterContract:
    """Set `exporter` and `form`, and define `model` and `rows`."""

    exporter: ClassVar[Exporter]
    form: ClassVar[ModelFormat]
    serde: ClassVar[str] = ""
    """For the format "native": the serde that reads the file."""

    def model(self) -> Any:
        """Make a trained model."""
        raise NotImplementedError

    def rows(self) -> pa.Table:
        """A few rows of the partition; the model's predictions for them vary."""
        raise NotImplementedError

    def feeds(self) -> Feeds | None:
        """What a user's inputs function makes of the rows; None: there is none."""
        return None

    @property
    def file_name(self) -> str:
        """The name that the file has in a run."""
        return SERDES[self.serde or self.form]().filename

    @pytest.fixture(scope="module", autouse=True)
    @classmethod
    def judges(cls) -> Iterator[None]:
        """End the processes that load files, after the last test."""
        yield
        close_judges()

    def described(self, model: Any) -> tuple[ModelDescription, Feeds]:
        """Describe a model, and make its inputs of the rows."""
        description = self.exporter.describe(model, self.rows(), self.feeds(), ExportOptions())
        feeds = self.feeds()
        if feeds is None:
            feeds = feeds_of_rows(description.signature, self.rows())
        return description, feeds

    def write(self, model: Any, path: Path) -> tuple[ModelDescription, Feeds]:
        """Describe a model and write it."""
        description, feeds = self.described(model)
        self.exporter.write(model, description, feeds, ExportOptions(), str(path))
        return description, feeds

    def test_the_judge_finds_nothing_wrong(self, tmp_path: Path) -> None:
        model = self.model()
        description, feeds = self.write(model, tmp_path / self.file_name)
        signature = description.signature
        expectation = Expectation(
            format=self.form,
            signature=signature,
            tolerance=description.tolerance,
            opset=description.opset,
            is_constant=description.is_constant,
            trees=description.trees,
            serde=self.serde,
        )

        def predict(given: Feeds) -> Outputs:
            return self.exporter.predict(model, signature, given)

        cases = make_cases(description, feeds, predict).cases
        verdict = judge_and_guard(str(tmp_path / self.file_name), expectation, cases)
        found = [f"{finding.check}: {finding.message}" for finding in verdict.findings]
        assert not found, found
        assert verdict.metrics["export_values"] > 0

    def test_predictions_are_what_the_signature_says(self) -> None:
        model = self.model()
        description, feeds = self.described(model)
        signature = description.signature
        assert [tensor.name for tensor in signature.inputs] == list(feeds)
        for count in (len(next(iter(feeds.values()))), 1, 0):
            few = {name: values[:count] for name, values in feeds.items()}
            found = self.exporter.predict(model, signature, few)
            assert list(found) == [tensor.name for tensor in signature.outputs]
            for tensor in signature.outputs:
                values = found[tensor.name]
                assert values.shape == (count, *tensor.shape[1:])
                assert tensor.dtype in (values.dtype.name, "string")
        predictions = signature.predictions(self.exporter.predict(model, signature, feeds))
        assert len(np.unique(predictions)) > 1, "predictions that do not vary prove nothing"

    def test_one_file_is_written_and_the_model_left_as_it_was(self, tmp_path: Path) -> None:
        model = self.model()
        description, feeds = self.described(model)
        signature = description.signature
        before = self.exporter.predict(model, signature, feeds)
        self.write(model, tmp_path / self.file_name)
        assert [path.name for path in tmp_path.iterdir()] == [self.file_name]
        after = self.exporter.predict(model, signature, feeds)
        for name, values in before.items():
            np.testing.assert_array_equal(values, after[name])

    def test_describing_twice_says_the_same(self) -> None:
        model = self.model()
        first, second = self.described(model)[0], self.described(model)[0]
        assert first.signature == second.signature
        assert Signature.model_validate_json(first.signature.to_json()) == first.signature
        # Trees consist of arrays, which == does not compare as a whole.
        plain = [replace(description, trees=None) for description in (first, second)]
        assert plain[0] == plain[1]

    def test_the_exporter_travels_between_processes(self) -> None:
        copy = pickle.loads(pickle.dumps(self.exporter))
        assert isinstance(copy, Exporter)
        assert type(copy) is type(self.exporter)
