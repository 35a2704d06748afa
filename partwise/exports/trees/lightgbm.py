"""LightGBM models as ONNX, in double: Boosters and scikit-learn's estimators."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.exports.trees.exporter import TreeExporter, TreeModel
from partwise.exports.trees.lightgbm_graph import (
    DOUBLE,
    link_of,
    missing_zeros,
    objective_of,
    write_graph,
)
from partwise.exports.trees.lightgbm_trees import ZERO, LightGBMTrees, read_trees
from partwise.exports.trees.linear_leaves import numbers_of_leaves
from partwise.models.signature import Feature, Feeds, features_of, type_name
from partwise.tables.column_names import names_in_words
from partwise.trainers.ready.lightgbm import features_of_booster

if TYPE_CHECKING:
    import pyarrow as pa

    from partwise.models.export_options import ExportOptions

_CLASSIFIERS = ("binary", "multiclass", "multiclassova")
# Both add the same leaves in the same order, in one thread; exp and the like round differently.
_TOLERANCE = Tolerance(atol=0.0, rtol=1e-13, scaled=1e-13)


@dataclass(frozen=True, slots=True, kw_only=True)
class LightGBMDescription(ModelDescription):
    """A description with the trees as they were read, which takes most of an export's time."""

    model_trees: LightGBMTrees = field(compare=False)


class LightGBMOnnxExporter(TreeExporter):
    """Writes LightGBM models as ONNX, every number of them in double."""

    LIBRARY = "LightGBM"

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """Return what the export will take and give. See `Exporter.describe`.

        Raises:
            ExportRefusedError: The model is another than a Booster, LGBMRegressor, LGBMClassifier
                or LGBMRanker; it has an objective that is not known, or a `predict` that stops
                early; or an option does not fit.
            ColumnError: The rows lack a feature of the model.
            InputError: Which features are categorical is unknown.
        """
        opset = self._opset(options)
        booster = _booster(model)
        trees = read_trees(booster.model_to_string())
        link_of(trees)  # refuses objectives that it does not know
        takes = TreeModel(
            dtype=DOUBLE,
            n_features=trees.n_features,
            n_targets=trees.n_targets,
            labels=_class_labels(model, trees),
            gives_labels=hasattr(model, "classes_"),
        )
        features = () if feeds is not None else _features(booster, rows, options)
        return LightGBMDescription(
            model_trees=trees,
            signature=takes.signature(model, features, feeds, options),
            tolerance=_TOLERANCE,
            trees=trees.ensemble(),
            zeros_are_missing=tuple(trees.zero_is_missing.tolist()),
            largest_zero=ZERO,
            is_constant=trees.is_constant(),
            opset=opset,
            constants=_constants(trees),
        )

    def write(
        self,
        model: Any,  # noqa: ARG002 (its text is read once, by describe)
        description: ModelDescription,
        sample: Feeds,  # noqa: ARG002 (no graph is captured)
        options: ExportOptions,
        file_path: str,
    ) -> None:
        """Write the model. See `Exporter.write`."""
        if not isinstance(description, LightGBMDescription) or description.trees is None:
            raise TypeError(f"{description!r} is not what describe returned")
        signature, opset = description.signature, self._opset(options)
        write_graph(description.model_trees, description.trees, signature, opset, file_path)

    def _predict(self, model: Any, matrix: np.ndarray) -> np.ndarray:
        return _quietly(model.predict, matrix)

    def _classify(self, model: Any, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if hasattr(model, "classes_"):
            return _quietly(model.predict_proba, matrix), _quietly(model.predict, matrix)
        found = model.predict(matrix)
        probabilities = found if found.ndim == 2 else np.column_stack((1.0 - found, found))
        return probabilities, probabilities.argmax(axis=1)


def _constants(trees: LightGBMTrees) -> dict[str, np.ndarray]:
    """Return the model's own numbers that its file holds beside the trees."""
    constants = {} if trees.linear is None else numbers_of_leaves(trees, trees.linear)
    if trees.is_average:
        constants["the number of iterations"] = np.array(trees.n_iterations, dtype=np.float64)
    if len(trees.zero_is_missing):
        constants["the zeros that are missing"] = missing_zeros(trees)
    link = link_of(trees)
    if link.function == "sigmoid":
        constants["the steepness"] = np.array(-link.steepness, dtype=np.float64)
        constants["the one of a sigmoid"] = np.array(1, dtype=np.float64)
    if link.function == "log1p_exp":
        for name, value in (("one", 1), ("zero", 0), ("infinity", np.inf)):
            constants[f"the {name} of a logarithm"] = np.array(value, dtype=np.float64)
    return constants


def _booster(model: Any) -> Any:
    """Return the Booster of a model whose `predict` is LightGBM's own."""
    import lightgbm

    if type(model) is lightgbm.Booster:
        return model
    kinds = (lightgbm.LGBMRegressor, lightgbm.LGBMClassifier, lightgbm.LGBMRanker)
    if type(model) not in kinds:
        raise ExportRefusedError(
            f"A {type_name(model)} is not exported: its predict may be one of its own. Return a "
            "Booster, LGBMRegressor, LGBMClassifier or LGBMRanker, or export it as native."
        )
    if not model.__sklearn_is_fitted__():
        raise ExportRefusedError(f"This {type_name(model)} is not fitted.")
    if model.get_params().get("pred_early_stop"):
        raise ExportRefusedError(
            f"This {type_name(model)} has pred_early_stop: its predict leaves out trees, which no "
            "graph does. Call set_params(pred_early_stop=False) before you return it."
        )
    return model.booster_


def _class_labels(model: Any, trees: LightGBMTrees) -> tuple[int, ...] | tuple[str, ...] | None:
    """Return what the columns of probabilities stand for, or None where there are none."""
    import lightgbm

    n_classes = max(trees.n_targets, 2)
    if isinstance(model, lightgbm.Booster):
        return tuple(range(n_classes)) if objective_of(trees) in _CLASSIFIERS else None
    if not isinstance(model, lightgbm.LGBMClassifier):
        return None
    if objective_of(trees) not in (*_CLASSIFIERS, "cross_entropy"):
        raise ExportRefusedError(
            f"This LGBMClassifier has the objective {objective_of(trees) or 'of a function'!r}, "
            "with which it predicts no probabilities: take binary, multiclass or multiclassova."
        )
    labels = model.classes_.tolist()
    if len(labels) != n_classes:
        raise ExportRefusedError(
            f"This LGBMClassifier was trained on {len(labels)} classes but gives {n_classes} "
            "probabilities: train it on rows of two classes or more."
        )
    if all(type(label) is int for label in labels) or all(type(label) is str for label in labels):
        return tuple(labels)
    raise ExportRefusedError(
        f"The class labels of this LGBMClassifier are {model.classes_.dtype}: ONNX gives integers "
        "or text. Train it on either."
    )


def _features(booster: Any, rows: pa.Table, options: ExportOptions) -> tuple[Feature, ...]:
    names, categories = features_of_booster(booster, rows, options.features)
    plain = {}
    for name, found in categories.items():
        # The signature is JSON, which takes no numbers of numpy.
        values = [value.item() if isinstance(value, np.generic) else value for value in found]
        if not any(all(isinstance(v, kind) for v in values) for kind in (str, int, (int, float))):
            raise ExportRefusedError(
                f"The categories of {name!r} are neither all text nor all numbers: "
                f"{names_in_words([str(value) for value in values[:3]])} and so on."
            )
        plain[name] = values
    return features_of(names, plain)


def _quietly(predict: Any, matrix: np.ndarray) -> np.ndarray:
    """Predict from a matrix; scikit-learn would warn of a frame whose names it lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found: np.ndarray = predict(matrix)
    return found
