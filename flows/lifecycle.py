"""The flow of a night: judge what was predicted, train what got worse, compare, promote, infer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from partwise.calls.parameters import (
    ClusterParameter,
    ColumnsParameter,
    DataParameter,
    FallbackParameter,
    MetricParameter,
    OutputParameter,
    PartitionBy,
    TrainerParameter,
)
from partwise.catalogs.catalog import Catalog
from partwise.catalogs.evaluated import Evaluated
from partwise.catalogs.rules import Everything, Improvement, Rule
from partwise.engine.options import ExecutionOptions
from partwise.errors import CatalogNotFoundError, NoRowsError, PartwiseError
from partwise.flows.compare_models import compare_models
from partwise.flows.evaluate_predictions import evaluate_predictions
from partwise.flows.orchestration.block_parameters import StoreParameter
from partwise.flows.orchestration.plain_flow import plain_flow
from partwise.flows.orchestration.run_ids import run_id_of_flow_run
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.orchestration.summary_log import BEGINNING
from partwise.flows.promote_models import promote_models
from partwise.flows.run_inference import run_inference
from partwise.flows.running.connections import open_data
from partwise.flows.train_models import train_models
from partwise.formatting import counted
from partwise.planning.nights import (
    Night,
    check_gate,
    describe_night,
    is_first,
    judged_night,
    needs_attention,
    night_of,
    remove_old_nights,
)
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tasks.notify import check_notified, notify
from partwise.tasks.steps import run_logger

DAYS = Annotated[int, Field(ge=0, le=36_500)]
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DoneNight:
    """What a night came to."""

    evaluation: Run | None
    """None: nothing that has labels by now was predicted before."""
    training: Run | None
    """None: no key got worse, and none is new; or these have no rows to train on yet."""
    comparison: Run | None
    """None: no model was trained, or the catalog is new."""
    inference: Run
    catalog: Catalog
    """The version that inferred."""


@plain_flow("lifecycle")
def lifecycle(
    data: DataParameter,
    partition_by: PartitionBy,
    trainer: TrainerParameter,
    catalog: str,
    time: str,
    label: str,
    *,
    day: str = "{scheduled:%Y-%m-%d}",
    inference_data: DataParameter = "",
    on: ColumnsParameter = (),
    latest_by: str = "",
    keep_columns: ColumnsParameter = (),
    fallback: FallbackParameter = (),
    output: OutputParameter = "",
    metric: MetricParameter = "rmse",
    rule: Rule = Improvement(min_rows=20),  # noqa: B008 (it is frozen)
    compare_days: Annotated[int, Field(ge=1, le=36_500)] = 28,
    labels_after_days: DAYS = 1,
    worse_by: Annotated[float, Field(ge=0)] = 0.2,
    min_rows: Annotated[int, Field(ge=1)] = 20,
    max_worse_fraction: Annotated[float, Field(ge=0, le=1)] = 0.5,
    keep_nights: DAYS = 0,
    notified: str = "",
    execution: ExecutionOptions = ExecutionOptions(),  # noqa: B008 (it is frozen)
    cluster: ClusterParameter = "",
    store: StoreParameter = "artifacts",
) -> DoneNight:
    """Judge what was predicted, train what got worse or is new, compare, promote, infer, publish.

    Each stage is a run, NAME-DAY-evaluate, -train, -compare and -infer, of the catalog's name; the
    first night trains all keys. A night that was stopped at any point, and is called again, goes on
    with its own runs, and the same promotion finds the version that it has made. What others see,
    the output, comes last: where a stage fails, or too many keys got worse, the champions of before
    stay in use.

    Example:
        >>> night = lifecycle(  # doctest: +SKIP
        ...     "sales.parquet", "store", LightGBMTrainer(label="sales"), "stores", "date", "sales",
        ...     day="2026-11-26",
        ... )

    Args:
        data: Where the rows come from, as of train_models: those before the day have labels.
        partition_by: The key column, or a list of them.
        trainer: A trainer with its settings, or "package.module:function".
        catalog: The name of the catalog; the first night makes it.
        time: The column of dates or times by which rows are before the day, or not.
        label: The column that is predicted.
        day: The day of the night, such as 2026-11-26: rows from it on are predicted. It may have
            the scheduled time in it, as a run_id.
        inference_data: Where the rows to predict come from. Empty: from data.
        on: The columns that, beside the key, tell which row is which. Empty: time.
        latest_by: By which column the last of several labels of a row counts, when predictions are
            judged; see evaluate_predictions. Trainings get all rows.
        keep_columns: Columns to keep beside the predictions; those of `on` are kept anyway.
        fallback: What answers for keys without a champion; see run_inference.
        output: Where the predictions go as well; see run_inference.
        metric: What tells how good predictions are; see evaluate_predictions.
        rule: What makes a new model win; see promote_models. Its min_rows are of the rows of
            compare_days, of each key.
        compare_days: Over how many days before the day new models are compared with champions:
            they are trained on what is before these.
        labels_after_days: After how many days labels are there: the newest predictions that are so
            old are judged.
        worse_by: See evaluate_predictions.
        min_rows: See evaluate_predictions.
        max_worse_fraction: The gate: where a larger share of keys got worse, the night stops.
        keep_nights: Of how many nights the runs stay, those still to be judged at least;
            champions, and what runs that stay use, stay in any case. 0: of all.
        notified: The name of a saved block that sends notifications, such as slack-webhook/ops: of
            a night that stops, and of keys that fell below their level.
        execution: Retries, limits, failure budget, shards; each stage is a gate by its budget.
        cluster: The Dask cluster; see train_models.
        store: The artifact store: a folder, a URL, or a StoreBlock or its name.

    Returns:
        The runs of the night, and the version that inferred.

    Raises:
        InputError: An argument cannot be used.
        GateError: Too many keys got worse at once.
        RunFailedError: A stage did none of its partitions, or exceeded the failure budget.
        RunCancelledError: The night was cancelled; what was committed is kept.
        CatalogConflictError: Somebody else has made the next version meanwhile.
    """
    check_notified(notified)
    night = night_of(catalog, run_id_of_flow_run(day, "lifecycle"))
    opened = open_store(store)
    stages = _Stages(
        night=night,
        # All stages read the version of a dataset that is the newest now.
        data=open_data(data, store),
        partition_by=partition_by,
        time=time,
        label=label,
        metric=metric,
        on=list(on or [time]),
        latest_by=latest_by,
        split=(night.day - timedelta(compare_days)).isoformat(),
        shared={
            "on_existing_artifacts": "resume",
            "execution": execution,
            "cluster": cluster,
            "store": store,
        },
        opened=opened,
    )
    try:
        judged = judged_night(night, labels_after_days, opened)
        evaluation = None if judged is None else stages.evaluate(judged, worse_by, min_rows)
        found = None if evaluation is None else Evaluated.of(evaluation)
        if found is not None:
            check_gate(found, max_worse_fraction)
        training = comparison = None
        if is_first(night, _newest(catalog, opened)):
            training = stages.train(trainer)
        elif found is not None and found.keys_to_train().num_rows:
            training = stages.train(trainer, only=found.run_id)
        if training is not None and training.counts.get("DONE"):
            comparison = stages.promote(training, rule)
        inference = stages.infer(
            inference_data if _is_given(inference_data) else stages.data,
            fallback=fallback,
            output=output,
            keep_columns=list(dict.fromkeys([*stages.on, *(keep_columns or ())])),
        )
    except PartwiseError as error:
        notify(notified, f"The night {night.day} of {catalog} stopped", str(error))
        raise
    version = Catalog.open(catalog, opened)
    text = describe_night(found, training, version.reference, inference)
    if keep_nights:
        text += _without_old_nights(night, max(keep_nights, labels_after_days + 1), opened)
    run_logger().info("%s%s", BEGINNING, text)
    if needs_attention(found):
        notify(notified, f"The night {night.day} of {catalog}", text)
    return DoneNight(
        evaluation=evaluation,
        training=training,
        comparison=comparison,
        inference=inference,
        catalog=version,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stages:
    """The stages of a night, each of which goes on with its own run where there is one."""

    night: Night
    data: Any
    partition_by: str | Sequence[str]
    time: str
    label: str
    metric: Any
    on: list[str]
    latest_by: str
    split: str
    """The day from which rows are for comparing; those before it are trained on."""
    shared: dict[str, Any]
    """Arguments of all stages."""
    opened: Store

    @property
    def _day(self) -> str:
        return self.night.day.isoformat()

    def evaluate(self, judged: Night, worse_by: float, min_rows: int) -> Run:
        """Judge the predictions of an earlier night by the labels that are there."""
        return evaluate_predictions(
            self.data,
            inference_run_id=judged.run_id("infer"),
            on=self.on,
            latest_by=self.latest_by,
            label=self.label,
            metric=self.metric,
            worse_by=worse_by,
            min_rows=min_rows,
            filter=[(self.time, ">=", judged.day.isoformat()), (self.time, "<", self._day)],
            run_id=self.night.run_id("evaluate"),
            **self.shared,
        )

    def train(self, trainer: Any, only: str = "") -> Run | None:
        """Train all keys, or those that an evaluation found; None: these have no rows yet."""
        try:
            return train_models(
                self.data,
                self.partition_by,
                trainer,
                only=only,
                filter=[(self.time, "<", self.split)],
                run_id=self.night.run_id("train"),
                **self.shared,
            )
        except NoRowsError as error:
            if not only:
                raise
            run_logger().warning("Nothing is trained: %s", error)
            return None

    def promote(self, training: Run, rule: Rule) -> Run | None:
        """Compare new models with the champions, and promote by the rule.

        Returns:
            The comparison; None: all models are promoted, as the catalog is this night's to make.
        """
        name, store = self.night.catalog, self.shared["store"]
        if is_first(self.night, _newest(name, self.opened)):
            promote_models(name, models=training.run_id, rule=Everything(), store=store)
            return None
        comparison = compare_models(
            self.data,
            self.partition_by,
            [f"catalog://{name}", training.run_id],
            self.label,
            metric=self.metric,
            filter=[(self.time, ">=", self.split), (self.time, "<", self._day)],
            run_id=self.night.run_id("compare"),
            **self.shared,
        )
        promote_models(name, comparison=comparison.run_id, rule=rule, store=store)
        return comparison

    def infer(self, data: Any, **how: Any) -> Run:
        """Predict the rows from the day on by the champions."""
        return run_inference(
            data,
            self.partition_by,
            models=f"catalog://{self.night.catalog}",
            filter=[(self.time, ">=", self._day)],
            on_missing_model="skip",
            run_id=self.night.run_id("infer"),
            **how,
            **self.shared,
        )


def _without_old_nights(night: Night, kept: int, store: Store) -> str:
    """Remove the runs of older nights, and return what is said of it."""
    try:
        removed, stay = remove_old_nights(night, kept, store)
    except PartwiseError as error:
        # What the night has found is told all the same.
        run_logger().warning("Runs of older nights were not removed: %s", error)
        return ""
    if stay:
        reasons = "; ".join(f"{run_id}: {why}" for run_id, why in [*stay.items()][:_SHOWN])
        more = " ..." if len(stay) > _SHOWN else ""
        stays = "stays" if len(stay) == 1 else "stay"
        runs = counted(len(stay), "run")
        run_logger().info("%s of older nights %s: %s%s", runs, stays, reasons, more)
    return f" {counted(len(removed), 'run')} of older nights removed." if removed else ""


def _newest(name: str, store: Store) -> Catalog | None:
    try:
        return Catalog.open(name, store)
    except CatalogNotFoundError:
        return None


def _is_given(data: Any) -> bool:
    return not isinstance(data, str) or bool(data)
