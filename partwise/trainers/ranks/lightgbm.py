"""LightGBM on all ranks of a gang: one model, the same for any number of ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping  # noqa: TC003 (pydantic reads the annotations)
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, model_validator

from partwise.choices import Task  # noqa: TC001
from partwise.errors import InputError
from partwise.outcomes import Result
from partwise.ranks.global_labels import global_label_counts
from partwise.ranks.global_sample import global_sample
from partwise.settings import kind_field
from partwise.tables.calendar import source_columns
from partwise.tables.column_names import names_in_words
from partwise.trainers.ranks.boosting import (
    TRAIN,
    DistributedBoosting,
    named_function,
    report_rounds,
)
from partwise.trainers.ranks.lightgbm_objectives import (
    L2,
    gradients_of,
    label_sums,
    start_scores,
    weighted,
)
from partwise.trainers.ready.lightgbm import (
    MARK,
    LightGBMTrainer,
    features_of_booster,
    lightgbm_names,
)

if TYPE_CHECKING:
    from partwise.ranks.context import RankContext
    from partwise.tables.features import Categories, FeatureColumns
    from partwise.trainers.ranks.table import RankTable

_BAGGING = "each rank would draw from its own rows"
_REFUSED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "bagging_fraction": (lambda value: float(value) < 1, _BAGGING),
    "pos_bagging_fraction": (lambda value: float(value) < 1, _BAGGING),
    "neg_bagging_fraction": (lambda value: float(value) < 1, _BAGGING),
    "data_sample_strategy": (lambda value: value != "bagging", _BAGGING),
    "boosting": (
        lambda value: value not in ("gbdt", "gbrt"),
        # LightGBM's dart reads a flag that it has not set, where it is given gradients (4.7).
        "only gbdt gives the same trees each time",
    ),
    "linear_tree": (bool, "LightGBM would train each rank by itself, on its own rows"),
    "extra_trees": (bool, "which feature's thresholds are drawn when depends on the ranks"),
    "use_quantized_grad": (bool, "gradients would be rounded by chance, rank by rank"),
    "monotone_constraints_method": (
        lambda value: value != "basic",
        "LightGBM has the other methods on one machine only, and takes this one without a word",
    ),
    "interaction_constraints": (
        bool,
        # It reads of memory that it has not set, or that is not there (4.7; LightGBM#5680).
        "LightGBM fails with them on several ranks",
    ),
    "forcedsplits_filename": (bool, "LightGBM has them on one machine only"),
    "forcedbins_filename": (bool, "a file of this machine may be missing on another"),
    "cegb_tradeoff": (lambda value: float(value) != 1, "each rank would count its own rows"),
    "cegb_penalty_split": (lambda value: float(value) != 0, "each rank would count its own rows"),
    "cegb_penalty_feature_lazy": (bool, "each rank would count its own rows"),
    "cegb_penalty_feature_coupled": (bool, "each rank would count its own rows"),
    "reg_sqrt": (bool, "labels are read as they are: take their roots before"),
    "device_type": (lambda value: value != "cpu", "LightGBM's GPU learners add up in any order"),
    "tree_learner": (lambda value: value != "data", "other learners' trees depend on the ranks"),
}  # fmt: skip
"""What cannot be set, when, and why: the model would depend on how the rows are divided."""

_OF_RANKS = (
    "num_machines", "machines", "machine_list_filename", "local_listen_port", "time_out",
    "pre_partition",
)  # fmt: skip


class DistributedLightGBM(DistributedBoosting):
    """Train one LightGBM Booster on the rows of all ranks.

    The model is the same, to the byte, for any number of ranks and any division of the rows: bins
    are found from one sample, and gradients are cut so that their sums are exact. (lambdarank is
    the exception: its gradients are LightGBM's own, and the last bits of sums can differ.)

    Null and NaN are missing values. Categories are kept in the model, as `LightGBMTrainer` does.

    Example:
        >>> DistributedLightGBM(label="sales", params={"learning_rate": 0.05}).rounds
        100
    """

    model_config = ConfigDict(title="Distributed LightGBM")

    kind: Literal["distributed_lightgbm"] = kind_field("distributed_lightgbm")

    DEFAULT_OBJECTIVE: ClassVar[str] = LightGBMTrainer.DEFAULT_OBJECTIVE
    TASKS: ClassVar[Mapping[str, Task]] = {
        **dict.fromkeys((*L2, "huber", "fair", "poisson", "gamma", "tweedie"), "regression"),
        "binary": "binary",
        "multiclass": "multiclass",
        "multiclassova": "multiclass",
        "lambdarank": "regression",
    }
    RANKING: ClassVar[frozenset[str]] = frozenset({"lambdarank"})
    RESERVED: ClassVar[Mapping[str, str]] = {
        **LightGBMTrainer.RESERVED,
        "num_threads": "cpus of the scaling",
    }

    @model_validator(mode="after")
    def _check_params(self) -> DistributedLightGBM:
        params = self._native_names(self.params)
        for name, value in params.items():
            if name in _OF_RANKS:
                raise InputError(
                    f"Leave {name} out of params: the gang sets up LightGBM's network."
                )
            refuses, reason = _REFUSED.get(name, (None, ""))
            if refuses is not None and refuses(value):
                raise InputError(
                    f"{name}={value!r} cannot be used in distributed training, where {reason}. "
                    "Leave it out, or train in one process."
                )
        return self

    def _native_names(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return lightgbm_names(params)

    def _meetings_of_tree(self, params: Mapping[str, Any]) -> int:
        return int(params.get("num_leaves", 31)) - 1

    def __call__(self, context: RankContext) -> Result | None:
        """Train as one rank of a gang, each of which has to call it.

        Returns:
            On rank 0 the Booster, with the metrics rounds, train_rows, null_label_rows, and
            <eval set>_<metric> of each eval set; None on the others.

        Raises:
            ColumnError: A column is missing, or of an unfit type.
            InputError: A rank has no rows, a label is not a class, or a parameter cannot be used.
            PeerLostError: Another rank has ended.
        """
        from partwise.trainers.ranks.lightgbm_network import connect_ranks
        from partwise.trainers.ranks.lightgbm_training import RankTraining, sample_bins, train_rank

        share = context.share(TRAIN, group=self.group)
        self.check(share.schema)
        eval_names = self._eval_names(context.sources)
        label = self._label_of(share.schema)
        rows = self._read(share)
        total = self._check_rows(context, rows)
        task = self._task(self._native_names(self.params))
        counts = global_label_counts(context, share, self._labels) if task != "regression" else {}
        params = self._all_params(context, task, counts)
        self._check_labels(label, rows.labels, params, task)
        columns = self._choose_features(share.schema)
        params = self._of_features(params, columns.names)
        earlier, known = self._earlier_text(context, share.schema.empty_table(), columns)
        found = self._own_categories(context, rows, columns)
        categories = {
            # A code means what it meant to the earlier model.
            name: [*known.get(name, ()), *(v for v in values if v not in known.get(name, ()))]
            for name, values in found.items()
        }
        threads = context.threads if context.world_size > 1 else max(1, context.threads // 2)
        sampled = [*source_columns(columns.names, share.schema), label]
        sample = global_sample(context, share, sampled, self.sample_rows)
        sample = sample.filter(pa.array(~np.isnan(self._labels(sample))))
        reference = sample_bins(sample, columns, categories, {**params, "num_threads": threads})
        del sample
        eval_sets = {
            name: self._eval_set(context, name, share.schema, params, task) for name in eval_names
        }
        training = RankTraining(
            rows=rows,
            total_rows=total,
            reference=reference,
            columns=columns,
            categories=categories,
            params=params,
            rounds=self.rounds,
            threads=threads,
            gradients=self._gradients(params, counts),
            start=self._start(context, rows, params, task),
            eval_sets=eval_sets,
            stopping_rounds=self.early_stopping_rounds,
            metric=named_function(self.metric_function),
            earlier=earlier,
        )
        network = connect_ranks(context) if context.world_size > 1 else None
        try:
            trained = train_rank(training, network)
        finally:
            if network is not None:
                network.close()
        report_rounds(context, trained.measured)
        if context.rank > 0:
            return None
        counted = {"train_rows": total, "null_label_rows": share.total_rows - total}
        return Result(trained.booster, {"rounds": trained.rounds, **counted, **trained.metrics})

    def _all_params(
        self, context: RankContext, task: Task, counts: Mapping[float, int]
    ) -> dict[str, Any]:
        """Return LightGBM's parameters, by its first names; the same on every rank."""
        params: dict[str, Any] = {
            "verbosity": -1,
            "seed": context.seed,
            "deterministic": True,
            # Else LightGBM takes the way that is faster at the moment, and the two round otherwise.
            "force_row_wise": True,
            "objective": "none" if self.objective_function else self.DEFAULT_OBJECTIVE,
            **self._native_names(self.params),
            **MARK,
        }
        if task == "multiclass":
            # Where the objective is a function, it stands in the settings only.
            params |= self._class_params(self._native_names(self.params))
        if task == "multiclass" and "num_class" not in params:
            params["num_class"] = int(max(counts)) + 1
        return params

    def _eval_set(
        self,
        context: RankContext,
        name: str,
        trained: pa.Schema,
        params: Mapping[str, Any],
        task: Task,
    ) -> RankTable:
        """Return the labelled rows of an eval set, all of them on each rank."""
        rows = self._read(context.share(name, whole=True), trained)
        if not rows.rows:
            raise InputError(f"The label is null in all rows {name!r}.")
        self._check_labels(self._label_of(trained), rows.labels, params, task)
        return rows

    def _gradients(self, params: Mapping[str, Any], counts: Mapping[float, int]) -> Any:
        """Return the function that computes gradients; None for LightGBM's own."""
        if self.objective_function:
            return named_function(self.objective_function)
        return None if self.group else weighted(gradients_of(params, counts))

    def _start(
        self, context: RankContext, rows: RankTable, params: Mapping[str, Any], task: Task
    ) -> list[float]:
        """Return the raw predictions to begin with, one or one for each class."""
        n_classes = int(params.get("num_class", 1))
        has_none = self.objective_function or self.group or self.continue_from
        if has_none or not params.get("boost_from_average", True):
            return [0.0] * n_classes
        n_counted = {"regression": 0, "binary": 2, "multiclass": n_classes}[task]
        own = json.dumps(label_sums(rows.labels, rows.weights, n_counted)).encode()
        return start_scores(params, [json.loads(each) for each in context.all_gather(own)])

    def _earlier_text(
        self, context: RankContext, rows: pa.Table, columns: FeatureColumns
    ) -> tuple[str, Categories]:
        """Return the text of the model to continue, and its categories."""
        content = self._earlier(context)
        if not content:
            return "", {}
        import lightgbm

        text = content.decode(errors="replace")
        try:
            names, known = features_of_booster(lightgbm.Booster(model_str=text), rows)
        except lightgbm.basic.LightGBMError as error:
            raise InputError(
                f"{self.continue_from!r} is not a LightGBM model to continue from: {error}"
            ) from error
        if tuple(names) != columns.names or {*known} != {*columns.categorical}:
            raise InputError(
                f"The model {self.continue_from!r} has the features {names_in_words(names)}, of "
                f"them categorical: {names_in_words([*known]) or 'none'}; to continue from it, "
                "the trainer has to have the same, in this order."
            )
        return text, known
