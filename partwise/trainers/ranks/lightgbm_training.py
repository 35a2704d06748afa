"""LightGBM's work on one rank: data sets of mapped rows, rounds over a network, and the model.

A rank that has the gang to itself works as two ranks, in two threads. LightGBM's learner for one
machine counts the rows of a leaf where that for several estimates them from second derivatives
(src/treelearner/serial_tree_learner.cpp, `SplitInner`), so its trees would be others.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from partwise.errors import InputError
from partwise.tables.calendar import source_columns
from partwise.tables.features import (
    REFUSED_BY_LIGHTGBM,
    Categories,
    FeatureColumns,
    feature_matrix,
    feature_names,
)
from partwise.trainers.ranks.lightgbm_network import LightGBMNetwork, network_pair
from partwise.trainers.ranks.lightgbm_objectives import Gradients, exact_gradients
from partwise.trainers.ranks.table import RankTable, labelled
from partwise.trainers.ready.lightgbm import stops_early

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import lightgbm
    import pyarrow as pa

_OWN = "none"
"""The objective of a Booster that is given its gradients."""


@dataclass(frozen=True, kw_only=True)
class RankTraining:
    """What one rank trains with; alike on every rank but for the rows."""

    rows: RankTable
    total_rows: int
    """Of all ranks."""
    reference: lightgbm.Dataset
    """Has the bins: made of the same rows on every rank, by `sample_bins`."""
    columns: FeatureColumns
    categories: Categories
    params: Mapping[str, Any]
    """By LightGBM's first names."""
    rounds: int
    threads: int
    """Of LightGBM in each thread that trains: two, where a rank is alone."""
    gradients: Gradients | None
    """None: LightGBM's own."""
    start: Sequence[float]
    """The raw predictions to begin with, one or one for each class."""
    eval_sets: Mapping[str, RankTable]
    """All rows of each; early stopping looks at the last."""
    stopping_rounds: int | None
    metric: Callable[..., float] | None
    earlier: str
    """The text of the model that is continued; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What every rank has in the end."""

    booster: Any
    rounds: int
    metrics: Mapping[str, float]
    """Of the eval sets, after the rounds that are kept: <eval set>_<metric>."""
    measured: Mapping[str, list[float]]
    """The same of each round that was trained, and its number as `round`."""


def _mapped_rows(rows: RankTable, names: Sequence[str], categories: Categories) -> Any:
    """Return the features of labelled rows, made from the mapped ones when LightGBM asks."""
    import lightgbm

    chosen = replace(rows, table=rows.table.select(source_columns(names, rows.table.schema)))

    class MappedRows(lightgbm.Sequence):
        batch_size = 1 << 14

        def __getitem__(self, index: Any) -> np.ndarray:
            start, stop, _ = index.indices(len(self))
            matrix = feature_matrix(labelled(chosen, start, stop), names, categories)
            return np.ascontiguousarray(matrix)

        def __len__(self) -> int:
            return chosen.rows

    return MappedRows()


def sample_bins(
    sample: pa.Table, columns: FeatureColumns, categories: Categories, params: Mapping[str, Any]
) -> lightgbm.Dataset:
    """Find the bins of features in a sample, which is the same on every rank and is not kept."""
    import lightgbm

    names = columns.names
    return lightgbm.Dataset(
        feature_matrix(sample, names, categories),
        np.zeros(sample.num_rows, np.float32),
        # What cannot be split among the sampled rows may be among all.
        params={**params, "feature_pre_filter": False},
        feature_name=feature_names(names, REFUSED_BY_LIGHTGBM),
        categorical_feature=[names.index(name) for name in columns.categorical],
    ).construct()


def train_rank(training: RankTraining, network: LightGBMNetwork | None) -> Trained:
    """Train as one rank, with all others; without a network there are none.

    Raises:
        PeerLostError: Another rank has ended.
        LightGBMError: LightGBM refuses a parameter or the data.
    """
    if network is not None:
        return _train(training, network)
    made: list[Trained] = []
    errors: list[BaseException] = []

    def work(part: RankTraining, end: LightGBMNetwork) -> None:
        try:
            made.append(_train(part, end))
        except BaseException as error:
            errors.append(error)
        finally:
            end.close()

    pairs = zip(_halves(training), network_pair(), strict=True)
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        # The other thread's error follows from the first one's.
        raise errors[0]
    return made[0]


def _halves(training: RankTraining) -> list[RankTraining]:
    """Divide a rank's rows in two, at the end of a group where there are some."""
    rows = training.rows
    middle = rows.rows // 2
    groups = rows.group_sizes
    n_groups = 0
    if groups is not None:
        ends = np.cumsum(groups)
        n_groups = 1 + int(np.argmin(np.abs(ends[:-1] - middle))) if len(ends) > 1 else 0
        middle = int(ends[n_groups - 1]) if n_groups else 0
    if not middle:
        raise InputError(
            f"There {'is' if rows.rows == 1 else 'are'} {rows.rows} labelled row(s)"
            + (", all of one group" if groups is not None else "")
            + ": that is too little to train on."
        )
    cut = middle if rows.places is None else int(rows.places[middle])
    halves = []
    for is_first in (True, False):
        part = slice(0, middle) if is_first else slice(middle, None)
        of_groups = slice(0, n_groups) if is_first else slice(n_groups, None)
        table = rows.table.slice(0, cut) if is_first else rows.table.slice(cut)
        half = RankTable(
            table=table,
            places=None if rows.places is None else rows.places[part] - (0 if is_first else cut),
            labels=rows.labels[part],
            weights=None if rows.weights is None else rows.weights[part],
            group_sizes=None if groups is None else groups[of_groups],
        )
        halves.append(replace(training, rows=half))
    return halves


def _train(training: RankTraining, network: LightGBMNetwork) -> Trained:
    import lightgbm
    from lightgbm.basic import _LIB, _safe_call  # type: ignore[attr-defined]

    of_data = {**training.params, "feature_pre_filter": False, "num_threads": training.threads}
    earlier = lightgbm.Booster(model_str=training.earlier) if training.earlier else None
    train = _dataset(training, training.rows, training.reference, of_data, earlier)
    evaluated = [
        _dataset(training, r, train, of_data, earlier) for r in training.eval_sets.values()
    ]
    params = {**of_data, "tree_learner": "data", "num_machines": network.size}
    params["metric"] = params.get("metric") or params["objective"]
    objective = params["objective"]
    if training.gradients is not None:
        params["objective"] = _OWN
    # The data sets come before: with a network LightGBM would look for bins together.
    with network.installed():
        booster = lightgbm.Booster(params, train)
        for name, dataset in zip(training.eval_sets, evaluated, strict=True):
            booster.add_valid(dataset, name)
        if earlier is not None:
            # Only its trees: what they predict is where the rows of the data sets begin.
            _safe_call(_LIB.LGBM_BoosterMerge(booster._handle, earlier._handle))
        best, measured = _boost(training, network, booster, objective)
        if training.gradients is not None and objective != _OWN:
            # By the objective in the text, who loads the model makes predictions of raw ones.
            _set_objective(booster, objective)
        text = booster.model_to_string(num_iteration=best or -1)
        network.check()
    booster = lightgbm.Booster(model_str=_without_ranks(text))
    if earlier is None:
        _add_start(booster, training.start)
    booster.best_iteration = best or -1
    booster.pandas_categorical = [
        list(training.categories[name]) for name in training.columns.categorical
    ]
    kept = measured["round"].index(best) if best else -1
    metrics = {name: values[kept] for name, values in measured.items() if name != "round"}
    return Trained(
        booster=booster, rounds=booster.current_iteration(), metrics=metrics, measured=measured
    )


def _dataset(
    training: RankTraining,
    rows: RankTable,
    reference: lightgbm.Dataset,
    params: Mapping[str, Any],
    earlier: Any,
) -> lightgbm.Dataset:
    """Return rows in the bins of the reference."""
    import lightgbm

    features = _mapped_rows(rows, training.columns.names, training.categories)
    if earlier is not None:
        # Always as many threads: LightGBM has one number for the process, and sizes buffers by it,
        # so that another one would be the end of a rank that works in two threads.
        parts = [
            earlier.predict(
                features[start : start + features.batch_size],
                raw_score=True,
                num_threads=training.threads,
            )
            for start in range(0, len(features), features.batch_size)
        ]
        scores = np.concatenate(parts).ravel(order="F")
    else:
        scores = np.repeat(np.array(training.start), rows.rows)
    dataset = lightgbm.Dataset(
        features,
        rows.labels,
        reference=reference,
        weight=rows.weights,
        group=rows.group_sizes,
        init_score=scores if scores.any() else None,
        params=dict(params),
    ).construct()
    # LightGBM has its own copy.
    dataset.init_score = None
    return dataset


def _boost(
    training: RankTraining, network: LightGBMNetwork, booster: Any, objective: str
) -> tuple[int, dict[str, list[float]]]:
    """Train round by round; return the number of the best round, or 0 where all count.

    Beside it are the numbers and metrics of all rounds, as columns.
    """
    import lightgbm

    rows = training.rows

    def largest_of_all(values: np.ndarray) -> np.ndarray:
        gathered = network.all_gather(values.astype(np.float64).tobytes())
        found: np.ndarray = np.max([np.frombuffer(content) for content in gathered], axis=0)
        return found

    def exact(own: Gradients, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return exact_gradients(
            own, raw, rows.labels, rows.weights, training.total_rows, largest_of_all
        )

    stopping = None
    if training.stopping_rounds is not None:
        stopping = stops_early(
            training.stopping_rounds,
            training.params,
            "" if training.metric is None else _name_of(training.metric),
        )
    measured: dict[str, list[float]] = {}
    first = booster.current_iteration()
    own = training.gradients
    fobj = None if own is None else lambda raw, _: exact(own, raw)
    is_own = own is not None and objective != _OWN
    for number in range(first, first + training.rounds):
        booster.update(fobj=fobj)
        network.check()
        if not training.eval_sets:
            continue
        # Metrics ask the objective how raw predictions become others.
        if is_own:
            _set_objective(booster, objective)
        results = booster.eval_valid(_feval(training))
        measured.setdefault("round", []).append(number + 1)
        # A metric of a user's own may have the name of another one: the last one counts.
        of_round = {f"{each[0]}_{each[1]}": float(each[2]) for each in results}
        for name, value in of_round.items():
            measured.setdefault(name, []).append(value)
        if is_own:
            _set_objective(booster, _OWN)
        if stopping is None:
            continue
        looked_at = [each for each in results if each[0] == list(training.eval_sets)[-1]]
        environment = lightgbm.callback.CallbackEnv(
            model=booster,
            params=dict(training.params),
            iteration=number,
            begin_iteration=first,
            end_iteration=first + training.rounds,
            evaluation_result_list=looked_at,
        )
        try:
            stopping(environment)
        except lightgbm.callback.EarlyStopException as stop:
            return stop.best_iteration + 1, measured
    return 0, measured


def _set_objective(booster: Any, objective: str) -> None:
    # LightGBM checks one against the other, and only what it is given here.
    n_classes = booster.params.get("num_class", 1)
    booster.reset_parameter({"objective": objective, "num_class": n_classes})


def _name_of(metric: Callable[..., Any]) -> str:
    return getattr(metric, "__name__", "metric")


def _feval(training: RankTraining) -> Any:
    metric = training.metric
    if metric is None:
        return None
    name = _name_of(metric)

    def evaluate(predictions: np.ndarray, data: lightgbm.Dataset) -> tuple[str, float, bool]:
        return name, float(metric(predictions, data.get_label(), data.get_weight())), False

    return evaluate


def _without_ranks(text: str) -> str:
    """Return a model's text with what says how many ranks and threads there were as of one."""
    text = re.sub(r"^\[num_machines: \d+\]$", "[num_machines: 1]", text, flags=re.MULTILINE)
    return re.sub(r"^\[num_threads: \d+\]$", "[num_threads: 0]", text, flags=re.MULTILINE)


def _add_start(booster: Any, start: Sequence[float]) -> None:
    """Add the raw predictions that the rounds began with to the leaves of the first trees."""
    if not any(start) or not booster.num_trees():
        return
    trees = booster.dump_model(num_iteration=1)["tree_info"]
    for number, (tree, score) in enumerate(zip(trees, start, strict=True)):
        for leaf in range(tree["num_leaves"]):
            booster.set_leaf_output(number, leaf, booster.get_leaf_output(number, leaf) + score)
