"""XGBoost on all ranks of a gang: one model, the same for any number of ranks."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003 (pydantic reads them)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from partwise.choices import Task  # noqa: TC001
from partwise.errors import InputError
from partwise.outcomes import Result
from partwise.ranks.global_labels import global_label_counts
from partwise.ranks.global_sample import global_sample
from partwise.settings import kind_field
from partwise.tables.calendar import source_columns
from partwise.tables.column_names import names_in_words
from partwise.tables.features import REFUSED_BY_XGBOOST, Categories, FeatureColumns, feature_names
from partwise.trainers.ranks.boosting import (
    TRAIN,
    DistributedBoosting,
    named_function,
    report_rounds,
    row_counts,
)
from partwise.trainers.ranks.xgboost_batches import FeatureTables, xgboost_batches
from partwise.trainers.ranks.xgboost_collective import connected
from partwise.trainers.ready.xgboost import (
    XGBoostTrainer,
    booster_features,
    check_mean,
    constraints_as_text,
    first_rounds,
    maximizes,
    metrics_of,
    xgboost_names,
)
from partwise.trainers.ready.xgboost_parameters import check_parameters

if TYPE_CHECKING:
    from partwise.ranks.context import RankContext
    from partwise.ranks.protocols import Share
    from partwise.trainers.ranks.table import RankTable

_NO_SUMS = ("auc", "aucpr", "cox-nloglik")
"""Metrics of XGBoost's that are not sums over rows or queries: of several ranks, it takes the mean
of what each finds for its own rows, which is another number."""
_OF_MEDIANS = ("reg:absoluteerror", "reg:quantileerror")
"""Objectives whose leaves are quantiles: of several ranks, XGBoost takes the mean of what each has
for its own rows, which for sorted rows is far from the truth."""
_OF_MEAN = (
    "reg:squarederror", "reg:gamma", "reg:tweedie", "count:poisson", "binary:logistic",
)  # fmt: skip
_OF_SHARES = ("multi:softprob", "multi:softmax")
"""Objectives whose first prediction is the mean label, or follows from the share of each class.
XGBoost (3.2) adds these up in single precision, so that they depend on ranks and threads, and all
trees with them."""
_LEAST_SHARE = 1e-6
"""XGBoost's, of a class without rows."""


class DistributedXGBoost(DistributedBoosting):
    """Train one XGBoost Booster on the rows of all ranks.

    The bins are found from one sample, so that the trees are the same for any number of ranks and
    any division of the rows. What can differ is the last bit of a sum over very many rows. With
    `subsample` below 1, each rank draws from its own rows, and the trees depend on the division.

    Null and NaN are missing values. Categories are kept in the model, as `XGBoostTrainer` does.

    Example:
        >>> DistributedXGBoost(label="sales", params={"max_depth": 8}).rounds
        100
    """

    model_config = ConfigDict(title="Distributed XGBoost")

    kind: Literal["distributed_xgboost"] = kind_field("distributed_xgboost")
    memory: Literal["internal", "external"] = Field(
        default="internal",
        description="Where the binned rows are: in memory, or in pages on the worker's disk, which "
        "takes longer.",
    )

    DEFAULT_OBJECTIVE: ClassVar[str] = XGBoostTrainer.DEFAULT_OBJECTIVE
    TASKS: ClassVar[Mapping[str, Task]] = {
        **{name: task for name, task in XGBoostTrainer.TASKS.items() if name not in _OF_MEDIANS},
        "multi:softmax": "multiclass",
        "rank:ndcg": "regression",
        "rank:map": "regression",
        "rank:pairwise": "regression",
    }
    RANKING: ClassVar[frozenset[str]] = frozenset({"rank:ndcg", "rank:map", "rank:pairwise"})
    RESERVED: ClassVar[Mapping[str, str]] = {
        **XGBoostTrainer.RESERVED,
        "nthread": "cpus of the scaling",
        "n_jobs": "cpus of the scaling",
    }

    @model_validator(mode="after")
    def _check_params(self) -> DistributedXGBoost:
        if self.group and self.weight:
            raise ValueError("XGBoost weighs whole queries, not rows: leave weight or group out")
        params = self._native_names(self.params)
        if params.get("booster") == "gblinear":
            raise ValueError('the booster "gblinear" has no bins: train it in one process')
        if params.get("tree_method", "hist") not in ("hist", "auto"):
            raise ValueError('tree_method has to be "hist", which alone has bins for all ranks')
        return self

    def _task(self, params: Mapping[str, Any]) -> Task:
        if (objective := params.get("objective")) in _OF_MEDIANS:
            raise InputError(
                f"The leaves of {objective!r} are quantiles, of which XGBoost would take the mean "
                'over ranks: take "reg:pseudohubererror", or train in one process.'
            )
        return super()._task(params)

    def _native_names(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return xgboost_names(params)

    def _meetings_of_tree(self, params: Mapping[str, Any]) -> int:
        # 0 stands for any depth, of which a tree has one level at least.
        return int(params.get("max_depth", 6)) or 1

    def _of_features(self, params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        return constraints_as_text(super()._of_features(params, names))

    def _check_known(self, params: Mapping[str, Any]) -> None:
        # Where it is missing, classes are counted when the rows are known.
        missing = {"num_class": 2} if self.task == "multiclass" else {}
        check_parameters({**missing, **params})

    def __call__(self, context: RankContext) -> Result | None:
        """Train as one rank of a gang, each of which has to call it.

        Returns:
            On rank 0 the Booster, with the metrics rounds, train_rows, null_label_rows, and, of
            each eval set, <eval set>_rows and <eval set>_<metric> after the last round that the
            model keeps. Where training stopped early, trained_rounds and
            last_<eval set>_<metric> are those of the last round that was trained. None on the
            others.

        Raises:
            ColumnError: A column is missing, or of an unfit type.
            InputError: A label or weight does not fit, or a parameter cannot be used.
            PeerLostError: Another rank has ended.
        """
        share = context.share(TRAIN, group=self.group)
        self.check(share.schema)
        sets = self._eval_names(context.sources)
        label = self._label_of(share.schema)
        rows = self._read(share)
        total = self._count(context, rows, TRAIN)
        params = self._all_params(context, share)
        self._check_labels(label, rows.labels, params, self.task)
        columns = self._choose_features(share.schema)
        params = self._of_features(params, columns.names)
        earlier = self._earlier(context)
        is_given = {"base_score", "scale_pos_weight"} & params.keys()
        if not (is_given or earlier or self.objective_function):
            params |= _first_prediction(context, rows, params)
        features = FeatureTables(columns.names, self._categories(context, rows, columns, earlier))
        read = source_columns(columns.names, share.schema)
        sampled = [*read, label, *filter(None, (self.weight, self.group))]
        evaluated = {}
        counts = {}
        for name in sets:
            whole = self._needs_whole_sets(params)
            group = "" if whole else self.group
            given = context.share(name, group=group, whole=whole)
            evaluated[name] = self._read(given, share.schema)
            self._check_labels(label, evaluated[name].labels, params, self.task)
            found = self._count(context, evaluated[name], name)
            counts[f"{name}_rows"] = found // context.world_size if whole else found
        training = _Training(
            rows=rows,
            sample=lambda: self._labelled(global_sample(context, share, sampled, self.sample_rows)),
            eval_sets=evaluated,
            features=features,
            params=params,
            rounds=self.rounds,
            stopping_rounds=self.early_stopping_rounds,
            objective=_objective(named_function(self.objective_function)),
            metric=_metric(self.metric_function),
            earlier=earlier,
            is_external=self.memory == "external",
        )
        booster, metrics = training.run(context)
        if context.rank > 0:
            return None
        null_labels = share.total_rows - total
        counts = {"train_rows": total, "null_label_rows": null_labels, **counts}
        return Result(booster, {**counts, **metrics})

    def _count(self, context: RankContext, rows: RankTable, name: str) -> int:
        """Return how many labelled rows all ranks have, one at least; each has to call it."""
        total = sum(row_counts(context, rows))
        if not total:
            raise InputError(f"The label is null in all rows {name!r}.")
        return total

    def _all_params(self, context: RankContext, share: Share) -> dict[str, Any]:
        """Return XGBoost's parameters, by its first names; the same on every rank."""
        params: dict[str, Any] = {
            "seed": context.seed,
            "objective": self.DEFAULT_OBJECTIVE,
            "nthread": context.threads,
            "device": "cuda" if context.gpus else "cpu",
            **self._native_names(self.params),
        }
        if self.memory == "external" and str(params["device"]).startswith(("cuda", "gpu")):
            raise InputError(
                'memory="external": XGBoost has no pages on disk for a GPU; pass '
                'ScalingConfig(gpus=0), or device="cpu" among the params, or memory="internal".'
            )
        params |= self._class_params(params)
        if self.task == "multiclass" and "num_class" not in params:
            counts = global_label_counts(context, share, self._labels)
            params["num_class"] = int(max(counts, default=0)) + 1
        return params

    def _needs_whole_sets(self, params: Mapping[str, Any]) -> bool:
        """Whether every rank has to have all rows of eval sets for a metric to be right."""
        no_sums = [name for name in metrics_of(params) if str(name).partition("@")[0] in _NO_SUMS]
        return bool(self.metric_function or no_sums)

    def _categories(
        self, context: RankContext, rows: RankTable, columns: FeatureColumns, earlier: bytes
    ) -> Categories:
        """Return the categories of all ranks' rows, those of the model to continue from first."""
        lists = self._own_categories(context, rows, columns)
        if not earlier:
            return lists
        import xgboost

        try:
            booster = xgboost.Booster(model_file=bytearray(earlier))
        except xgboost.core.XGBoostError as error:
            raise InputError(
                f"{self.continue_from!r} is not an XGBoost model to continue from: {error}"
            ) from error
        known = booster.feature_names or []
        if known != feature_names(columns.names, REFUSED_BY_XGBOOST):
            raise InputError(
                f"The model {self.continue_from!r} has the features {names_in_words(known)}; to "
                "continue from it, the trainer has to have the same, in this order."
            )
        _, earlier_lists = booster_features(booster, rows.table.slice(0, 0))
        for name, values in lists.items():
            new = [value for value in values if value not in earlier_lists.get(name, [])]
            if new:
                raise InputError(
                    f"The column {name!r} has the value {new[0]!r}, which the model "
                    f"{self.continue_from!r} has not met: XGBoost adds no categories to a model. "
                    "Leave such rows out, or train again."
                )
        return {name: earlier_lists[name] for name in lists}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Training:
    """What a rank trains on; all but the rows is the same on every rank."""

    rows: RankTable
    sample: Callable[[], RankTable]
    """Asked for when it is needed, so that nobody holds it while trees are grown."""
    eval_sets: Mapping[str, RankTable]
    features: FeatureTables
    params: dict[str, Any]
    rounds: int
    stopping_rounds: int | None
    objective: Callable[..., Any] | None
    metric: Callable[..., Any] | None
    earlier: bytes
    is_external: bool

    def run(self, context: RankContext) -> tuple[Any, dict[str, float]]:
        """Train together with the other ranks; returns the Booster and metrics."""
        # In the rank's own folder: a rank that is killed removes nothing itself.
        scratch = context.scratch_directory
        with tempfile.TemporaryDirectory(prefix="xgboost-", dir=scratch) as pages:
            booster, history = self._train(context, pages)
        trained = booster.num_boosted_rounds()
        measured = _by_name(history, [*self.eval_sets])
        # Rounds of a model that is continued count, and have no values here.
        first = trained - len(next(iter(measured.values()), ())) + 1
        numbers = {"round": list(range(first, trained + 1))} if measured else {}
        report_rounds(context, {**numbers, **measured})
        metrics: dict[str, float] = {}
        kept = trained
        if self.stopping_rounds:
            kept = booster.best_iteration + 1
            booster = first_rounds(booster, kept)
            metrics["trained_rounds"] = trained
        for name, values in measured.items():
            # From the end, for the same reason.
            metrics[name] = values[kept - 1 - trained]
            if self.stopping_rounds:
                metrics[f"last_{name}"] = values[-1]
        return booster, {"rounds": kept, **metrics}

    def _train(
        self, context: RankContext, pages: str
    ) -> tuple[Any, dict[str, dict[str, list[float]]]]:
        import xgboost

        # Before the ranks are connected: each has to find the bins of the sample by itself.
        sample = self._matrix(self.sample(), None, "")
        names, kinds = sample.feature_names, sample.feature_types
        train = self._matrix(self.rows, sample, pages)
        del sample
        # By their places: XGBoost divides its own line of a round at spaces, colons and hyphens.
        evals = [
            (self._matrix(rows, train, pages), str(place))
            for place, rows in enumerate(self.eval_sets.values())
        ]
        progress = _progress(context, self.rounds, [*self.eval_sets])
        callbacks = [progress] if context.rank == 0 else None
        history: dict[str, dict[str, list[float]]] = {}
        with connected(context):
            booster = xgboost.train(
                self.params,
                train,
                num_boost_round=self.rounds,
                evals=evals,
                obj=self.objective,
                custom_metric=self.metric,
                early_stopping_rounds=self.stopping_rounds,
                # XGBoost takes more for better where a function's name begins with "pre" or "map".
                maximize=False if self.metric else maximizes(self.params),
                callbacks=callbacks,
                evals_result=history,
                verbose_eval=False,
                xgb_model=bytearray(self.earlier) if self.earlier else None,
            )
        # XGBoost does not look at those of a rank without rows, which rank 0 may be.
        booster.feature_names, booster.feature_types = names, kinds
        return booster, history

    def _matrix(self, rows: RankTable, ref: Any, pages: str) -> Any:
        import xgboost

        kind: Any = xgboost.QuantileDMatrix
        prefix = None
        if self.is_external and pages:
            kind = xgboost.ExtMemQuantileDMatrix
            prefix = tempfile.mkdtemp(dir=pages) + "/pages"
        return kind(
            xgboost_batches(rows, self.features, prefix),
            ref=ref,
            max_bin=int(self.params.get("max_bin", 256)),
            nthread=self.params["nthread"],
            enable_categorical=True,
        )


def _by_name(
    history: Mapping[str, Mapping[str, Sequence[float]]], names: Sequence[str]
) -> dict[str, Sequence[float]]:
    """Return what XGBoost measured in each round, as <eval set>_<metric>."""
    return {
        f"{names[int(place)]}_{metric}": values
        for place, measured in history.items()
        for metric, values in measured.items()
    }


def _progress(context: RankContext, rounds: int, names: Sequence[str]) -> Any:
    """Return a callback of XGBoost's that writes about twenty lines of the log."""
    import xgboost

    step = math.ceil(rounds / 20)

    class Progress(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
            if (epoch + 1) % step == 0:
                found = {name: values[-1] for name, values in _by_name(evals_log, names).items()}
                if context.on_step is not None:
                    context.on_step(epoch + 1, found)
                measured = "".join(f", {name} {value:.6g}" for name, value in found.items())
                context.logger.info("round %d of %d%s", epoch + 1, rounds, measured)
            return False

    return Progress()


def _first_prediction(
    context: RankContext, rows: RankTable, params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameter base_score, by the labels of all ranks; each has to call it.

    Empty where XGBoost finds a base score that is the same for any ranks.
    """
    objective = params["objective"]
    if objective not in (*_OF_MEAN, *_OF_SHARES):
        return {}
    weights = np.ones(rows.rows) if rows.weights is None else rows.weights.astype(np.float64)
    if objective in _OF_MEAN:
        sums = [np.sum(weights * rows.labels.astype(np.float64))]
    else:
        n_classes = int(params["num_class"])
        sums = np.bincount(rows.labels.astype(np.int64), weights, n_classes).tolist()
    own = json.dumps([float(np.sum(weights)), *map(float, sums)]).encode()
    gathered = [json.loads(each) for each in context.all_gather(own)]
    weight, *totals = map(math.fsum, zip(*gathered, strict=True))
    if not weight:
        return {}
    means = np.array(totals) / weight
    check_mean(params, means[0])
    if objective in _OF_SHARES:
        scores = np.log(np.maximum(means, _LEAST_SHARE))
        means = scores - scores.mean()
    # In single precision, where the order of the sums does not show.
    found = [float(np.float32(mean)) for mean in means]
    return {"base_score": found if objective in _OF_SHARES else found[0]}


def _objective(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return a user's objective as XGBoost calls it."""
    if function is None:
        return None
    return lambda raw, matrix: function(raw, matrix.get_label(), _weights(matrix))


def _metric(name: str) -> Callable[..., Any] | None:
    """Return a user's metric as XGBoost calls it; its name is that of the function."""
    function = named_function(name)
    if function is None:
        return None
    short = name.partition(":")[2]
    return lambda predictions, matrix: (
        short,
        float(function(predictions, matrix.get_label(), _weights(matrix))),
    )


def _weights(matrix: Any) -> np.ndarray | None:
    weights: np.ndarray = matrix.get_weight()
    return weights if len(weights) else None
