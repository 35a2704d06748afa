"""What the estimators of boosted trees share: each fit is a call of `train_distributed`."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from partwise.compat.snowflake.stages import own_rows
from partwise.connector.data_connector import DataConnector
from partwise.engine.scaling import ALL, ScalingConfig
from partwise.errors import InputError

EVAL = "eval"
"""The eval set's name, which its results have there."""


@dataclass(frozen=True)
class BoostingScalingConfig:
    """How many workers train, and what each of them may use; -1 and None: what there is."""

    num_workers: int = ALL
    num_cpu_per_worker: int = ALL
    use_gpu: bool | None = None


class BoostingEstimator:
    """One model of boosted trees on all rows.

    Args:
        n_estimators: The most rounds, where `params` does not say.
        objective: What is learned, where `params` does not say.
        params: The library's own parameters.
        scaling_config: How many workers train.
    """

    _kind: ClassVar[type[Any]]
    """The trainer of partwise."""
    _rounds_name: ClassVar[str]
    """What the library calls the most rounds."""
    _stopping_name: ClassVar[str]
    """What it calls the rounds without progress after which it stops."""

    def __init__(
        self,
        n_estimators: int,
        objective: str,
        params: Mapping[str, Any] | None,
        scaling_config: BoostingScalingConfig | ScalingConfig | None,
    ) -> None:
        self._settings = {"n_estimators": n_estimators, "objective": objective, **(params or {})}
        self._scaling = own_scaling(scaling_config)
        self._booster: Any = None
        self._rounds: Mapping[str, list[float]] = {}

    def _trainer(self, settings: dict[str, Any], features: list[str], label: str) -> Any:
        rounds = settings.pop("n_estimators")
        return self._kind(
            rounds=settings.pop(self._rounds_name, rounds),
            early_stopping_rounds=settings.pop(self._stopping_name, None),
            features=tuple(features),
            label=label,
            params=settings,
        )

    def fit(
        self,
        dataset: Any,
        input_cols: str | Sequence[str],
        label_col: str | Sequence[str],
        eval_set: Any = None,
        verbose_eval: bool | int | None = None,
    ) -> Any:
        """Train on the rows of a connector or a frame, and return the booster.

        The run is kept in the store "artifacts".

        Raises:
            InputError: The columns or parameters do not fit; nothing was trained.
            RunFailedError: A worker failed; carries the run.
        """
        if verbose_eval:
            warnings.warn(
                "verbose_eval is not used: the log has every round, and get_eval_results() too.",
                stacklevel=2,
            )
        features = [input_cols] if isinstance(input_cols, str) else list(input_cols)
        labels = [label_col] if isinstance(label_col, str) else list(label_col)
        if len(labels) != 1:
            raise InputError(f"label_col names {len(labels)} columns: give one.")
        from partwise.flows import train_distributed

        trainer = self._trainer(dict(self._settings), features, labels[0])
        run = train_distributed(
            own_rows(dataset),
            trainer,
            eval_data={} if eval_set is None else {EVAL: own_rows(eval_set)},
            scaling=self._scaling,
        )
        self._booster, self._rounds = run.model(), run.eval_results.to_pydict()
        return self._booster

    def get_booster(self) -> Any:
        """Return the booster.

        Raises:
            InputError: Nothing was trained yet.
        """
        if self._booster is None:
            raise InputError("There is no booster yet: call fit first.")
        return self._booster

    def get_eval_results(self) -> dict[str, dict[str, list[float]]]:
        """Return what each round came to, as {"eval": {metric: values}}; without eval_set: {}."""
        measured = {
            name.removeprefix(f"{EVAL}_"): values
            for name, values in self._rounds.items()
            if name.startswith(f"{EVAL}_")
        }
        return {EVAL: measured} if measured else {}

    def predict(self, dataset: Any) -> Any:
        """Return what the booster predicts: shape (n,), or (n, classes) of several classes."""
        from partwise.trainers.ready.predict import predict_ready

        rows = DataConnector.from_dataframe(own_rows(dataset))
        return predict_ready(rows, self.get_booster())


def own_scaling(config: BoostingScalingConfig | ScalingConfig | None) -> ScalingConfig:
    """Return the scaling of partwise."""
    if config is None or isinstance(config, ScalingConfig):
        return config or ScalingConfig()
    return ScalingConfig(
        ranks=config.num_workers,
        cpus=config.num_cpu_per_worker,
        gpus=config.use_gpu,
    )
