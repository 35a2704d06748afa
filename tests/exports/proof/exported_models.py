"""Models of each library with their right files, for mutants to be made of."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ExportMismatchError
from partwise.exports.works import ComparedRows, Inputs, Proof, Subject
from partwise.models.export_options import ExportOptions, ValidationOptions
from partwise.models.signature import Feeds, Origin, Signature, feeds_of_matrix, matrix_of_feeds
from tests.exports.proof.mutation import Exported
from tests.thoroughness import THOROUGH

ORIGIN = Origin(
    training_run_id="run", partition_id="a", model_file="model", model_serde="", model_sha256=""
)
HELD_OUT_ROWS = 300
"""What the proof gets: as many as a partition holds out."""
ORDINARY_ROWS = 3000
"""What mutants are run on."""
TOKENS = 99
POSITIONS = 64


class _Checks(logging.Handler):
    """Keeps which checks the proof told of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(str(record.args[0] if record.args else record.msg))


@dataclass(frozen=True)
class Export:
    """A model with a file that was written as a run writes it."""

    proof: Proof
    subject: Subject
    data: DataConnector
    """The rows that are held out."""

    @property
    def signature(self) -> Signature:
        """Return what the file takes and gives."""
        return self.subject.signature

    def feeds(self, rows: pa.Table) -> Feeds:
        """Return rows as inputs of the file."""
        return self.proof.feeds(rows, self.subject, PartitionContext())

    def compare(
        self, file_path: str, logger: logging.Logger | None = None, *, is_new: bool = False
    ) -> None:
        """Compare a file with the model as a run does it.

        Raises:
            ExportMismatchError: It does not give what the model gives.
        """
        context = PartitionContext(logger=logger or logging.Logger("proof"))
        self.proof.compare(file_path, self.subject, self.data, context, is_new=is_new)

    def checks(self, file_path: str) -> list[str]:
        """Return which checks of the proof find something in a file."""
        logger, checks = logging.Logger("proof"), _Checks()
        logger.addHandler(checks)
        try:
            self.compare(file_path, logger)
        except ExportMismatchError as error:
            return [*checks.found, error.check]
        return []


def export(
    model: Any,
    rows: pa.Table,
    path: Path,
    options: ExportOptions | None = None,
    inputs: Inputs | None = None,
) -> Export:
    """Write a model's file as a run does, and prove it.

    Raises:
        ExportRefusedError: The model cannot be exported.
        ExportMismatchError: The file is not right.
    """
    options = options or ExportOptions()
    proof = Proof(
        validation=ValidationOptions(),
        rows=ComparedRows(trainer=None, most=HELD_OUT_ROWS),
        inputs=inputs,
        exporter=None,
    )
    data = DataConnector(rows)
    subject = proof.describe(model, "onnx", options, ORIGIN, data, PartitionContext())
    exported = Export(proof, subject, data)
    sample = exported.feeds(rows.take(pa.array(np.arange(4) % rows.num_rows)))
    subject.exporter.write(model, subject.description, sample, options, str(path))
    exported.compare(str(path), is_new=True)
    return exported


def of_trees(
    name: str, library: str, model: Any, rows: Callable[[int, int], pa.Table], folder: Path,
    inputs: Literal["tensor", "columns", "custom"] = "tensor",
) -> Exported:  # fmt: skip
    """Return a model of trees with its file."""
    path = folder / f"{name}.onnx"
    if inputs == "custom":
        dtype = np.float64 if library == "lightgbm" else np.float32
        exported = export(model, rows(400, 1), path, inputs=partial(matrix_of_rows, dtype))
    else:
        exported = export(model, rows(400, 1), path, ExportOptions(input_layout=inputs))
    ordinary, signature = exported.feeds(rows(ORDINARY_ROWS, 2)), exported.signature

    def feeds(matrix: np.ndarray) -> Feeds:
        if inputs == "custom":
            return {"matrix": matrix.astype(dtype)}
        return feeds_of_matrix(signature, matrix)

    matrix = ordinary["matrix"] if inputs == "custom" else matrix_of_feeds(signature, ordinary)
    return Exported(
        name=name, library=library, path=path, prove=exported.checks, ordinary=[ordinary],
        matrix=np.asarray(matrix, np.float64), feeds=feeds,
    )  # fmt: skip


def matrix_of_rows(dtype: Any, data: DataConnector, _model: Any, _context: Any) -> Feeds:
    """Return columns of numbers as one matrix, as a user's function for example_inputs= does."""
    table = data.to_arrow()
    columns = [table[name].to_numpy(zero_copy_only=False) for name in table.column_names]
    with np.errstate(over="ignore"):
        return {"matrix": np.column_stack(columns).astype(dtype)}


def numbers(scale: float = 1.0, features: int = 6) -> Callable[[int, int], pa.Table]:
    """Return what makes rows: normal numbers, zeros, missing ones, a count, a time stamp."""

    def make(n: int, seed: int) -> pa.Table:
        random = np.random.default_rng(seed)
        matrix = random.normal(size=(n, features)) * scale
        matrix[random.random(n) < 0.1, 0] = np.nan
        matrix[random.random(n) < 0.2, 1] = 0.0
        matrix[:, 2] = random.integers(0, 50, n)
        matrix[:, 3] = 1.7e9 + 3600 * random.random(n)
        return pa.table({f"x{place}": matrix[:, place] for place in range(features)})

    return make


def target_of(table: pa.Table, seed: int = 0) -> np.ndarray:
    """Return labels that depend on all columns."""
    columns = [_as_numbers(column) for column in table.columns]
    matrix = np.column_stack(columns)
    matrix = (matrix - np.nanmean(matrix, axis=0)) / (np.nanstd(matrix, axis=0) + 1e-9)
    matrix = np.nan_to_num(matrix)
    noise = np.random.default_rng(seed).normal(size=len(matrix)) * 0.3
    return np.asarray(matrix @ np.arange(1, matrix.shape[1] + 1) + 3 * matrix[:, 0] ** 2 + noise)


def _as_numbers(column: pa.ChunkedArray) -> np.ndarray:
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.indices
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)


def with_categories(n: int, seed: int) -> pa.Table:
    """Return rows with a column of text, and one of whole numbers that are categories."""
    random = np.random.default_rng(seed)
    shops = pa.DictionaryArray.from_arrays(
        pa.array(random.integers(0, 40, n), pa.int32()), [f"shop {place}" for place in range(40)]
    )
    grades = pa.DictionaryArray.from_arrays(
        pa.array(random.integers(0, 5, n), pa.int32()), pa.array([10, 20, 30, 40, 50])
    )
    price = random.normal(size=n)
    price[random.random(n) < 0.1] = np.nan
    return pa.table({"shop": shops, "price": price, "grade": grades, "size": random.normal(size=n)})


def lightgbm_models(folder: Path, small: bool) -> Iterator[Exported]:
    """Yield LightGBM models with their files."""
    import lightgbm

    def booster(rows: pa.Table, target: np.ndarray, rounds: int, **params: Any) -> Any:
        fixed = {"verbosity": -1, "num_threads": 1, "seed": 1, "min_data_in_leaf": 5}
        params = {**fixed, **params}
        return lightgbm.train(params, lightgbm.Dataset(rows.to_pandas(), target), rounds)

    def frame_target(rows: Callable[[int, int], pa.Table], n: int) -> tuple[pa.Table, np.ndarray]:
        table = rows(n, 0)
        return table, target_of(table)

    plain = numbers()
    table, target = frame_target(plain, 2000)
    classes = np.digitize(target, np.quantile(target, [0.3, 0.6]))

    def make(name: str, rows: Any, model: Any, inputs: Any = "tensor") -> Exported:
        return of_trees(f"lightgbm {name}", "lightgbm", model, rows, folder, inputs)

    yield make("10 x 7", plain, booster(table, target, 10, num_leaves=7))
    cats, cat_target = frame_target(with_categories, 2000)
    settings = {"min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 4}
    of_cats = booster(cats, cat_target, 20, num_leaves=15, **settings)
    yield make("categories", with_categories, of_cats, "columns")
    if small:
        return
    yield make("100 x 31", plain, booster(table, target, 100))
    yield make("matrix", plain, booster(table, target, 20), "custom")
    # Many trees, of which each leaf is small beside the sum; large ones are above.
    rows, leaves = (5000, 31) if THOROUGH else (2000, 7)
    many = booster(*frame_target(plain, rows), 400, learning_rate=0.03, num_leaves=leaves)
    yield make(f"400 x {leaves}", plain, many)
    yield make("binary", plain, booster(table, target > 0, 40, num_leaves=15, objective="binary"))
    texts = np.array(["low", "middle", "high"])[classes]
    wrapped = lightgbm.LGBMClassifier(n_estimators=15, num_leaves=15, verbose=-1, n_jobs=1)
    yield make("classes", plain, wrapped.fit(table.to_pandas(), texts))
    zero = booster(table, target, 30, num_leaves=15, zero_as_missing=True)
    yield make("zero as missing", plain, zero)
    positive = np.exp(target / 10)
    yield make("poisson", plain, booster(table, positive, 30, objective="poisson"))
    forest = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
    yield make("forest", plain, booster(table, target, 20, **forest))
    linear = booster(table, target, 10, num_leaves=7, linear_tree=True)
    yield make("linear leaves", plain, linear)
    yield make("labels of 1e-13", plain, booster(table, target * 1e-13, 10, num_leaves=7))
    outlier = target.copy()
    outlier[:30] = 1e20
    yield make("a leaf of 1e20", plain, booster(table, outlier, 10, num_leaves=7))


def xgboost_models(folder: Path, small: bool) -> Iterator[Exported]:
    """Yield XGBoost models with their files."""
    import xgboost

    def booster(rows: pa.Table, target: np.ndarray, rounds: int, **params: Any) -> Any:
        params = {"nthread": 1, "seed": 1, "max_depth": 5, **params}
        matrix = xgboost.DMatrix(rows.to_pandas(), target, enable_categorical=True)
        return xgboost.train(params, matrix, rounds)

    plain = numbers()
    table = plain(2000, 0)
    target = target_of(table)

    def make(name: str, rows: Any, model: Any, inputs: Any = "tensor") -> Exported:
        return of_trees(f"xgboost {name}", "xgboost", model, rows, folder, inputs)

    yield make("10 x 8", plain, booster(table, target, 10, max_depth=3))
    cats = with_categories(2000, 0)
    of_cats = booster(cats, target_of(cats), 20, max_cat_to_onehot=4)
    yield make("categories", with_categories, of_cats, "columns")
    if small:
        return
    yield make("100 x 31", plain, booster(table, target, 100))
    yield make("matrix", plain, booster(table, target, 20), "custom")
    depth = 5 if THOROUGH else 3
    many = booster(table, target, 400, learning_rate=0.03, max_depth=depth)
    yield make(f"400 x {2**depth}", plain, many)
    binary = booster(table, target > 0, 40, objective="binary:logistic")
    yield make("binary", plain, binary)
    classes = np.digitize(target, np.quantile(target, [0.3, 0.6]))
    wrapped = xgboost.XGBClassifier(n_estimators=15, max_depth=4, n_jobs=1)
    yield make("classes", plain, wrapped.fit(table.to_pandas(), classes))
    counts = booster(table, np.exp(target / 10) * 1e-5, 30, objective="count:poisson")
    yield make("poisson of 1e-5", plain, counts)
    forest = booster(table, target, 5, num_parallel_tree=4, subsample=0.7)
    yield make("forest", plain, forest)


def torch_models(folder: Path, small: bool) -> Iterator[Exported]:
    """Yield PyTorch modules with their files."""
    import torch

    from tests.exports.torch_models import ShopModel, make_mlp

    def normal(n: int, seed: int) -> pa.Table:
        random = np.random.default_rng(seed)
        return pa.table({name: random.normal(size=n) for name in "abcd"})

    def make(name: str, model: Any, inputs: Callable[[pa.Table], Feeds] | None) -> Exported:
        path = folder / f"torch {name}.onnx"
        of_rows = inputs and (lambda data, _model, _context: inputs(data.to_arrow()))
        exported = export(model, normal(400, 1), path, inputs=of_rows)
        ordinary = [exported.feeds(normal(1000, 2))]
        odd = [_scaled(ordinary[0], scale) for scale in (10.0, 1e-2, 1e3)]
        return Exported(
            name=f"torch {name}", library="torch", path=path, prove=exported.checks,
            ordinary=ordinary, odd=odd,
        )  # fmt: skip

    def of_shop(rows: pa.Table) -> Feeds:
        found = np.column_stack([rows["a"], rows["b"]]).astype(np.float32)
        return {"numbers": found, "shop": np.arange(rows.num_rows) * 7 % 10}

    yield make("shops", ShopModel().eval(), of_shop)
    if small:
        return
    yield make("mlp", make_mlp().eval(), None)

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.cells = torch.nn.GRU(4, 8, batch_first=True)
            self.last = torch.nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.cells(x)[0][:, -1])

    def of_series(rows: pa.Table) -> Feeds:
        matrix = np.column_stack([rows[name] for name in "abcd"]).astype(np.float32)
        steps = np.arange(1, 7, dtype=np.float32)[None, :, None]
        return {"x": np.sin(matrix[:, None, :] * steps)}

    yield make("gru", Recurrent().eval(), of_series)


def transformers_models(folder: Path, small: bool) -> Iterator[Exported]:
    """Yield tiny transformers with their files."""
    from partwise.transformers.export import export as export_transformer
    from partwise.transformers.feature_choice import config_for
    from partwise.transformers.options import TransformersOptions
    from partwise.transformers.proof import validate_model_outputs
    from tests.transformers.tiny_models import tiny_model

    chosen = [("bert", "sequence-classification"), ("gpt2", "causal-lm")]
    for kind, feature in chosen[:1] if small else chosen:
        model = tiny_model(kind, feature, one_layer=not THOROUGH)
        _spread(model)
        config, options = config_for(model.config, feature), TransformersOptions()
        path = folder / f"{kind}.onnx"
        report = export_transformer(model, config, path, options)

        def prove(
            file: str, model: Any = model, config: Any = config, opset: Any = report.opset
        ) -> list[str]:
            try:
                validate_model_outputs(config, model, file, None, opset)
            except ExportMismatchError as error:
                return [error.check]
            return []

        names = [tensor.name for tensor in _inputs(path)]
        yield Exported(
            name=f"transformers {kind}", library="transformers", path=path, prove=prove,
            ordinary=[_tokens(names, 8, 12, seed) for seed in range(4)],
            odd=[*_each_token(names), _tokens(names, 2, POSITIONS, 9)],
        )  # fmt: skip


LIBRARIES: Mapping[str, Callable[[Path, bool], Iterator[Exported]]] = {
    "lightgbm": lightgbm_models,
    "xgboost": xgboost_models,
    "torch": torch_models,
    "transformers": transformers_models,
}


def _spread(model: Any) -> None:
    """Let each weight count, as those of trained models do: drawn as they are, few do."""
    import torch

    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights *= 8


def _scaled(feeds: Feeds, scale: float) -> Feeds:
    return {
        name: (values * scale).astype(values.dtype) if values.dtype.kind == "f" else values
        for name, values in feeds.items()
    }


def _inputs(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()


def _tokens(names: list[str], rows: int, length: int, seed: int) -> Feeds:
    tokens = np.random.default_rng(seed).integers(0, TOKENS, (rows, length))
    return {name: _like(name, tokens) for name in names}


def _each_token(names: list[str]) -> Iterator[Feeds]:
    tokens = np.arange(TOKENS)[:, None] + np.arange(4)
    yield {name: _like(name, tokens % TOKENS) for name in names}
    types = {name: _like(name, tokens % TOKENS) for name in names}
    if "token_type_ids" in types:
        yield {**types, "token_type_ids": np.ones_like(tokens)}


def _like(name: str, tokens: np.ndarray) -> np.ndarray:
    if name.endswith("mask"):
        return np.ones_like(tokens)
    return tokens if name == "input_ids" else np.zeros_like(tokens)
