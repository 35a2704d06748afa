"""XGBoost models as ONNX, in float32: Boosters and scikit-learn's estimators."""

import json
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError, ExportRefusedError, InputError
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.exports.trees.exporter import TreeExporter, TreeModel
from partwise.exports.trees.xgboost_graph import LINKS, SINGLE, write_graph
from partwise.exports.trees.xgboost_trees import XGBoostTrees, read_trees
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feature, Feeds, Signature, features_of, type_name
from partwise.tables.features import within_single
from partwise.trainers.ready.xgboost import booster_features

_TYPES = (
    *("Booster", "XGBRegressor", "XGBClassifier", "XGBRanker"),
    *("XGBRFRegressor", "XGBRFClassifier"),
)
_CLASSIFIERS = ("binary:logistic", "binary:hinge", "multi:softprob", "multi:softmax")
_EPSILON = float(np.finfo(np.float32).eps)
_SMALLEST = float(np.finfo(np.float32).tiny)
_MOST_LOST = 0.05
"""Of a sum of leaves, what may depend on the order in which it is added up."""


class XGBoostOnnxExporter(TreeExporter):
    """Writes Boosters and scikit-learn's wrappers of XGBoost as ONNX in float32."""

    LIBRARY = "XGBoost"

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """Return what the export will take and give.

        Raises:
            ExportRefusedError: The model, or an option for it, would not come out right.
            ColumnError: The rows lack a feature of the model.
        """
        opset = self._opset(options)
        _refuse_type(model)
        trees = read_trees(model)
        _refuse_objective(model, trees)
        _refuse_lost_leaves(trees)
        missing = _missing(model)
        return ModelDescription(
            signature=_signature(model, trees, rows, feeds, options),
            tolerance=_tolerance(trees),
            trees=trees.ensemble,
            missing_number=missing,
            zeros_are_missing=tuple(range(trees.n_features)) if missing == 0 else (),
            is_constant=trees.is_constant(),
            opset=opset,
            constants={"the one of a sigmoid": np.array(1, dtype=np.float32)}
            if LINKS[_name_of(model, "objective")] == "sigmoid"
            else {},
        )

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,  # noqa: ARG002 (no graph is captured)
        options: ExportOptions,
        file_path: str,
    ) -> None:
        """Write the model, with its signature in its metadata; equal models give equal bytes."""
        trees = description.trees or read_trees(model).ensemble
        objective, signature = _name_of(model, "objective"), description.signature
        write_graph(trees, objective, signature, _missing(model), self._opset(options), file_path)

    def _predict(self, model: Any, matrix: np.ndarray) -> np.ndarray:
        return predicted(model, np.ascontiguousarray(matrix, dtype=np.float32))

    def _classify(self, model: Any, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        single = np.ascontiguousarray(matrix, dtype=np.float32)
        if not hasattr(model, "predict_proba"):
            return _probabilities(model, single)
        probabilities = np.asarray(model.predict_proba(single), dtype=np.float32)
        return probabilities, np.asarray(model.predict(single))


def _missing(model: Any) -> float | None:
    """Return the number that a wrapper takes for missing, beside NaN."""
    missing = getattr(model, "missing", None)
    return None if missing is None or np.isnan(missing) else float(missing)


def _name_of(model: Any, part: Literal["gradient_booster", "objective"]) -> str:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    return str(json.loads(booster.save_config())["learner"][part]["name"])


def predicted(model: Any, matrix: np.ndarray, is_margin: bool = False) -> np.ndarray:
    """Return what a model predicts, or the sums of leaves.

    A Booster of trees in place, which gives what its `predict` does and, unlike it, takes infinite
    values. Of dart it gives something else (see `xgboost_trees`), and a linear one cannot.
    """
    import xgboost

    if hasattr(model, "get_booster"):
        return np.asarray(model.predict(matrix, output_margin=is_margin), dtype=np.float32)
    if _name_of(model, "gradient_booster") == "gbtree":
        kind = "margin" if is_margin else "value"
        return np.asarray(model.inplace_predict(matrix, predict_type=kind), dtype=np.float32)
    rows = xgboost.DMatrix(
        within_single(matrix),
        feature_names=model.feature_names,
        feature_types=model.feature_types,
        nthread=1,
    )
    return np.asarray(model.predict(rows, output_margin=is_margin), dtype=np.float32)


def _probabilities(model: Any, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of all classes, and labels, as XGBoost's own wrappers derive them."""
    found = predicted(model, matrix)
    if _name_of(model, "objective") == "multi:softmax":
        from scipy.special import softmax

        return softmax(predicted(model, matrix, is_margin=True), axis=1), found
    if found.ndim == 2:
        return found, found.argmax(axis=1)
    return np.column_stack([1 - found, found]), found > 0.5


def _refuse_type(model: Any) -> None:
    import xgboost

    if not any(type(model) is getattr(xgboost, name) for name in _TYPES):
        raise ExportRefusedError(
            f"A {type_name(model)} is not exported to ONNX, only {', '.join(_TYPES)}: return one "
            'of these, or export in the format "native".'
        )


def _refuse_objective(model: Any, trees: XGBoostTrees) -> None:
    if trees.objective not in LINKS:
        raise ExportRefusedError(
            f"The objective {trees.objective} is not exported to ONNX, since it is not known how "
            'its sums become predictions: export in the format "native".'
        )
    if not hasattr(model, "predict_proba"):
        return
    if trees.objective not in _CLASSIFIERS:
        raise ExportRefusedError(
            f"The {type(model).__name__} has the objective {trees.objective}, with which it gives "
            "no probabilities: train it with binary:logistic or multi:softprob, or an XGBRegressor."
        )
    if trees.n_targets > 1 and trees.n_classes < 3:
        raise ExportRefusedError(
            f"The {type(model).__name__} predicts {trees.n_targets} labels side by side, which are "
            "no classes of one another: return its get_booster(), which gives their probabilities, "
            "or of two classes train it with binary:logistic."
        )


def _refuse_lost_leaves(trees: XGBoostTrees) -> None:
    """Refuse models whose sum depends on the order of additions, which threads change.

    Raises:
        ExportRefusedError: Leaves are so small beside the base that they are rounded away in one
            order, and not in that of several threads.
    """
    largest, margins = trees.largest_leaves.astype(np.float64), np.abs(trees.base)
    of_leaves = np.bincount(trees.tree_targets, largest).max()
    ulp = _EPSILON * (of_leaves + margins[np.isfinite(margins)].max(initial=0))
    # Leaves of more than four ulps of the sum are rounded up as often as down.
    lost = np.where(largest < 4 * ulp, np.minimum(largest, ulp / 2), 0)
    most = np.bincount(trees.tree_targets, lost).max()
    if not trees.is_constant() and most > _MOST_LOST * of_leaves:
        raise ExportRefusedError(
            f"The leaves of the XGBoost model are so small beside its base of {margins.max():.7g} "
            f"that float32 may round away {most:.2g} of them, and with several threads would do so "
            "otherwise: train it on the label less its mean."
        )


def _tolerance(trees: XGBoostTrees) -> Tolerance:
    """Return what the functions after the sum of leaves round.

    With one thread both sides add the same numbers in the same order, so that sums are equal to the
    bit. exp is off by one ulp at most, and so are its quotients; a probability near 1 is off by an
    absolute ulp, as is what is left to 1.
    """
    link = LINKS[trees.objective]
    if link in ("identity", "step"):
        return Tolerance(atol=0.0, rtol=0.0)
    absolute = _EPSILON if link == "sigmoid" else _SMALLEST
    return Tolerance(atol=absolute, rtol=(8 if link == "softmax" else 4) * _EPSILON)


def _signature(
    model: Any,
    trees: XGBoostTrees,
    rows: pa.Table,
    feeds: Feeds | None,
    options: ExportOptions,
) -> Signature:
    labels = None
    if trees.objective in _CLASSIFIERS and trees.n_targets == max(1, trees.n_classes):
        labels = tuple(range(max(2, trees.n_classes)))
    of_labels = ("binary:hinge", "multi:softmax")
    takes = TreeModel(
        dtype=SINGLE,
        n_features=trees.n_features,
        n_targets=trees.n_targets,
        labels=labels,
        gives_labels=hasattr(model, "predict_proba") or trees.objective in of_labels,
    )
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    features = () if feeds is not None else _features(booster, rows, options)
    return takes.signature(model, features, feeds, options)


def _features(booster: Any, rows: pa.Table, options: ExportOptions) -> tuple[Feature, ...]:
    try:
        names, categories = booster_features(booster, rows, options.features)
    except ColumnError:
        raise
    except InputError as error:
        raise ExportRefusedError(str(error)) from error
    return features_of(names, categories)
