"""XGBoost models as ONNX: onnxmltools writes the trees, we what stands around them.

XGBoost (3.2) casts features to float32 and compares `value < threshold` in it, as ONNX' operator of
trees does in float32; so nothing is lost. What onnxmltools (1.16) and onnxruntime (1.31) get wrong
without a word was found by measuring, and is refused by name or put right:

- onnxmltools takes features for f0, f1 ..., thresholds of integer features for whole numbers, and
  the best iteration for a number of trees; it guesses a Booster's objective from its covers. So it
  gets a wrapper, made of a copy with other names and types and only the trees that `predict` uses.
- It takes the base score for a margin where a binary model's first tree has no split, and mixes up
  the classes of forests (num_parallel_tree); and a sum that does not begin with the base rounds
  otherwise than XGBoost's. So the operator's base, leaves and classes are set anew.
- Where all leaves of a binary model are positive, onnxruntime's label asks for a margin above 0.5.
  So labels are made of the probabilities, as XGBoost itself does.
- XGBoost cuts a category's code to a whole number, where ONNX compares it as it is. So codes are
  floored. A negative code, or one that training had not met, is in no set for either.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError, ExportRefused, InputError
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.exports.xgboost.graph import OPSETS, onnx_of_booster
from partwise.exports.xgboost.trees import (
    CLASSIFIERS,
    IDENTITY,
    LOG_LINK,
    Forest,
    base_margins,
    class_count,
    classes_of_trees,
    learner_of,
    read_forest,
    used_booster,
)
from partwise.models.export_options import ExportOptions, refuse_optimization
from partwise.models.onnx_files import save_onnx
from partwise.models.signature import (
    Feature,
    Feeds,
    Outputs,
    Signature,
    Tensor,
    feature_tensors,
    matrix_of_feeds,
    type_name,
)
from partwise.trainers.xgboost import booster_features

_TYPES = ("Booster", "XGBRegressor", "XGBClassifier", "XGBRFRegressor", "XGBRFClassifier")
_INSTEAD = {
    "reg:logistic": "train with binary:logistic, whose trees and probabilities are the same",
    "binary:logitraw": "train with binary:logistic, which gives probabilities",
    "multi:softmax": "train with multi:softprob, whose trees and most probable class are the same",
}
_SLOPES = {"binary:logistic": 0.25, "multi:softprob": 0.5}
_LEAST_TOLERANCE = 1e-6
_MOST_LOST = 0.05
"""Of a sum of leaves, what may depend on the order in which it is added up."""


class XGBoostOnnxExporter:
    """Writes Boosters and scikit-learn's wrappers of XGBoost as ONNX in float32.

    A regression gives "prediction", a classification "label" and "probabilities".
    """

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        _refuse_options(options)

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """Return what the export will take and give.

        Raises:
            ExportRefused: The model, or an option for it, would not come out right.
            ColumnError: The rows lack a feature of the model.
        """
        self.check(options)
        _need_onnxmltools()
        _refuse_type(model)
        booster = used_booster(model)
        learner = learner_of(booster)
        _refuse_learner(model, learner)
        forest = read_forest(booster)
        return ModelDescription(
            signature=_signature(model, learner, rows, feeds, options),
            tolerance=_tolerance(learner, forest),
            is_constant=forest.is_constant,
            opset=options.opset or OPSETS[-1],
        )

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,  # noqa: ARG002 (what other writers capture graphs with)
        options: ExportOptions,  # noqa: ARG002 (they are in the description)
        file_path: str,
    ) -> None:
        """Write the model, with its signature in its metadata; equal models give equal bytes."""
        booster = used_booster(model)
        signature = description.signature
        onnx_model = onnx_of_booster(booster, signature, description.opset or OPSETS[-1])
        save_onnx(onnx_model, signature, file_path)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the model itself gives, in float32 as the export does.

        A Booster predicts in place, which gives what `Booster.predict` does and, unlike it, takes
        infinite values.
        """
        matrix = np.ascontiguousarray(_matrix(signature, feeds), dtype=np.float32)
        is_classifier = signature.class_labels is not None
        if hasattr(model, "predict_proba"):
            probabilities = np.asarray(model.predict_proba(matrix), dtype=np.float32)
            labels = np.asarray(model.predict(matrix))
        else:
            wrapper = hasattr(model, "get_booster")
            found = model.predict(matrix) if wrapper else model.inplace_predict(matrix)
            if not is_classifier:
                return {"prediction": np.asarray(found, dtype=np.float32).reshape(len(matrix))}
            n_classes = len(signature.class_labels or ())
            probabilities, labels = _probabilities(np.asarray(found, np.float32), n_classes)
        shape = (len(matrix), len(signature.class_labels or ()))
        return {
            "label": labels.astype(np.int64).reshape(len(matrix)),
            "probabilities": probabilities.reshape(shape),
        }


def _matrix(signature: Signature, feeds: Feeds) -> np.ndarray:
    if signature.layout == "custom":
        return feeds[signature.inputs[0].name]
    return matrix_of_feeds(signature, feeds)


def _probabilities(found: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of all classes and labels as XGBoost's own wrappers derive them."""
    if found.ndim == 1 and n_classes == 2:
        return np.column_stack([1 - found, found]), found > 0.5
    found = found.reshape(-1, n_classes)  # no rows have no columns either
    return found, found.argmax(axis=1)


def _refuse_options(options: ExportOptions) -> None:
    if options.precision != "full":
        raise ExportRefused(
            f'The precision "{options.precision}" is for PyTorch modules; an XGBoost model compares'
            ' float32 with its thresholds, and would take other branches: use "full".'
        )
    refuse_optimization(options)
    if options.opset is not None and options.opset not in OPSETS:
        raise ExportRefused(
            f"XGBoost models are written in ONNX' opsets {OPSETS[0]} to {OPSETS[-1]}, and "
            f"{options.opset} is none of them: leave opset out for {OPSETS[-1]}."
        )


def _need_onnxmltools() -> None:
    try:
        importlib.import_module("onnxmltools")
    except ImportError as error:
        raise ExportRefused(
            "XGBoost models are written by onnxmltools, which is not installed: pip install "
            "'partwise[xgboost-onnx]', on the workers too."
        ) from error


def _refuse_type(model: Any) -> None:
    import xgboost

    if not any(type(model) is getattr(xgboost, name) for name in _TYPES):
        raise ExportRefused(
            f"A {type_name(model)} is not exported to ONNX, only {', '.join(_TYPES)}: return one "
            'of these, or export in the format "native".'
        )
    missing = getattr(model, "missing", None)
    if missing is not None and not np.isnan(missing):
        raise ExportRefused(
            f"The model takes {missing!r} as missing (its setting missing), which ONNX' trees have "
            "no word for: train it with missing=nan, and null where a value is missing."
        )


def _refuse_learner(model: Any, learner: dict[str, Any]) -> None:
    name = learner["gradient_booster"]["name"]
    if name != "gbtree":
        raise ExportRefused(
            f'The model\'s booster is "{name}", and only "gbtree" is exported to ONNX: train it '
            'with booster="gbtree", or export in the format "native".'
        )
    objective, n_classes = learner["objective"]["name"], class_count(learner)
    if objective not in (*IDENTITY, *LOG_LINK, *CLASSIFIERS):
        instead = _INSTEAD.get(objective, 'export in the format "native"')
        raise ExportRefused(
            f"The objective {objective} is not exported to ONNX, since what comes out would not be "
            f"what the model predicts: {instead}."
        )
    if (n_targets := int(learner["learner_model_param"]["num_target"])) > 1:
        raise ExportRefused(
            f"The model predicts {n_targets} targets at once (num_target), which are not exported "
            "to ONNX rightly: train a model for each target or quantile."
        )
    if objective == "multi:softprob" and n_classes < 3:
        raise ExportRefused(
            f"The objective multi:softprob of {n_classes} classes (num_class) is not exported to "
            "ONNX, whose trees take two classes for one: train it with binary:logistic."
        )
    if hasattr(model, "predict_proba") and objective not in CLASSIFIERS:
        raise ExportRefused(
            f"The {type(model).__name__} has the objective {objective}, with which it gives no "
            "probabilities: train it with binary:logistic or multi:softprob, or an XGBRegressor."
        )


def _tolerance(learner: dict[str, Any], forest: Forest) -> Tolerance:
    """Return what two sums of the same leaves in float32 may differ by.

    Each of n additions rounds by half an ulp of a partial sum at most, which is below S, the sum of
    the trees' largest leaves and the base: eps * S / 2 each. Roundings of both signs add up as
    sqrt(n), and both sides may round differently: 2 * eps * sqrt(n) * S. Leaves of about an ulp of
    S or less are rounded away with one sign, in one order only: that is added. With one thread both
    sides add the same numbers in the same order, and differ by what exp and so on do; with four, on
    models of 50 to 1,000 trees, by 0.7 of this at most. Probabilities have slopes up to 1/4 and
    1/2; exp turns a difference into a relative one.

    Raises:
        ExportRefused: Leaves are so small beside the base that they are rounded away in one order,
            and not in that of several threads.
    """
    margins = np.abs(base_margins(learner))
    largest = forest.largest_leaves
    classes = classes_of_trees(np.arange(len(largest)), learner)
    of_leaves = np.bincount(classes, largest).max()
    ulp = np.finfo(np.float32).eps * (of_leaves + margins[np.isfinite(margins)].max(initial=0))
    # Leaves of more than four ulps of the sum are rounded up as often as down.
    lost = np.where(largest < 4 * ulp, np.minimum(largest, ulp / 2), 0)
    most = np.bincount(classes, lost).max()
    if not forest.is_constant and most > _MOST_LOST * of_leaves:
        raise ExportRefused(
            f"The leaves of the XGBoost model are so small beside its base of {margins.max():.7g} "
            f"that float32 may round away {most:.2g} of them, and with several threads would do so "
            "otherwise: train it on the label less its mean."
        )
    spread = float(2 * np.sqrt(np.bincount(classes).max() + 1) * ulp + most)
    objective = learner["objective"]["name"]
    if objective in LOG_LINK:
        return Tolerance(atol=_LEAST_TOLERANCE, rtol=max(_LEAST_TOLERANCE, spread))
    spread *= _SLOPES.get(objective, 1.0)
    return Tolerance(atol=max(_LEAST_TOLERANCE, spread), rtol=0.0)


def _signature(
    model: Any,
    learner: dict[str, Any],
    rows: pa.Table,
    feeds: Feeds | None,
    options: ExportOptions,
) -> Signature:
    objective = learner["objective"]["name"]
    outputs: tuple[Tensor, ...] = (Tensor(name="prediction", dtype="float32", shape=(None,)),)
    prediction, column, labels = "prediction", None, None
    if objective in CLASSIFIERS:
        labels = tuple(range(max(2, class_count(learner))))
        outputs = (
            Tensor(name="label", dtype="int64", shape=(None,)),
            Tensor(name="probabilities", dtype="float32", shape=(None, len(labels))),
        )
        gives_labels = hasattr(model, "predict_proba") or objective == "binary:hinge"
        prediction = "label" if gives_labels else "probabilities"
        column = 1 if prediction == "probabilities" and objective == "binary:logistic" else None
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    features = () if feeds is not None else _features(booster, rows)
    inputs = (
        (_given_matrix(feeds, booster.num_features()),)
        if feeds is not None
        else feature_tensors(features, "float32", options.inputs)
    )
    _refuse_names([tensor.name for tensor in inputs], [tensor.name for tensor in outputs])
    return Signature(
        inputs=inputs,
        outputs=outputs,
        layout="custom" if feeds is not None else options.inputs,
        features=features,
        prediction=prediction,
        prediction_column=column,
        class_labels=labels,
        model_type=type_name(model),
    )


def _features(booster: Any, rows: pa.Table) -> tuple[Feature, ...]:
    if booster.feature_names is None:
        raise ExportRefused(
            "The XGBoost model has no feature names, so that its columns are not known: train it on"
            " a frame or with feature_names, or pass inputs=, a function that makes its matrix."
        )
    try:
        names, categories = booster_features(booster, rows.schema)
    except ColumnError:
        raise
    except InputError as error:
        raise ExportRefused(str(error)) from error
    return tuple(
        Feature(name=name, categories=tuple(categories[name]) if name in categories else None)
        for name in names
    )


def _given_matrix(feeds: Feeds, n_features: int) -> Tensor:
    found = {name: (values.dtype.name, values.shape) for name, values in feeds.items()}
    for name, values in feeds.items():
        if len(feeds) == 1 and values.dtype == np.float32 and values.shape[1:] == (n_features,):
            return Tensor(name=name, dtype="float32", shape=(None, n_features))
    raise ExportRefused(
        f"An XGBoost model of {n_features} features takes one float32 matrix (n, {n_features}), but"
        f" the inputs function made {found}."
    )


def _refuse_names(names: Sequence[str], outputs: Sequence[str]) -> None:
    if unfit := [name for name in names if name in outputs or not name]:
        raise ExportRefused(
            f"The column {unfit[0]!r} cannot be the name of an input, since outputs are named "
            f'{" and ".join(outputs)} and no name is empty: rename it, or use inputs="tensor".'
        )
