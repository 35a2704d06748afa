"""What `evaluate_predictions` decides before a row is touched: whose predictions, on which rows."""

import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.calls.partitions import EvaluateCall
from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import CATALOG_SCHEME
from partwise.catalogs.kept_rows import ANSWERED_AT, SERVED_SCHEME, About, read_kept
from partwise.catalogs.measured import arguments_of, document_of
from partwise.engine.driver.plan import Plan
from partwise.engine.evaluate_work import EvaluateWork
from partwise.engine.infer_work import MODEL_COLUMNS
from partwise.engine.trained_models import ROWS_THEN, VALUE_THEN
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import (
    CatalogNotFoundError,
    ColumnError,
    InputError,
    ModelNotFoundError,
    PartwiseError,
    RunNotFoundError,
)
from partwise.evaluation.scores import Metric, check_metric, find_metric, names_function
from partwise.planning.comparison import label_of
from partwise.planning.earlier_rows import recipe_of
from partwise.planning.models import arguments_of_before, check_first_keys
from partwise.planning.named_runs import newest_run
from partwise.planning.partitions import keys_of, names_of, plan_of, prepared
from partwise.runs.contents import READ_THREADS
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.exports import has_one_model, ledger_of_models, training_of
from partwise.runs.outputs import output_schemas
from partwise.runs.run import Run
from partwise.runs.stored_models import ModelSet, model_set, models_of
from partwise.sources.derived import stacked
from partwise.sources.descriptions import Source
from partwise.sources.opening import open_source, values_as
from partwise.store.store import Store
from partwise.tables.calendar import in_zones
from partwise.tables.column_names import columns_there, names_in_words
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes, key_columns
from partwise.tables.sorting import sortable
from partwise.trainers import resolve_trainer

_SOURCE = "is_prediction"
_HOLDOUT = "holdout_"
_LEVEL = MODEL_COLUMNS[2]
_PLACE = "place in kept requests"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """What an inference run, or a server, has predicted, and with which models."""

    name: str
    """The ID of the run; or served://NAME."""
    title: str
    """The same for a person."""
    key_columns: tuple[KeyColumn, ...]
    recipe: Mapping[str, Any] | None
    """How the rows of the models were read, where that is known."""
    rows: pa.Table
    """Their keys, `on`, what was predicted, and which level did, if there are several."""
    columns: tuple[str, ...]
    """What was predicted: one column, or one for each class."""
    models: tuple[ModelSet, ...]
    """By level; none: one of them is gone, so that nobody knows how good they were."""
    gone: str = ""
    """What is gone, as a sentence."""


def open_predictions(call: EvaluateCall, store: Store) -> Predictions:
    """Return the predictions of the run that a call names.

    Raises:
        InputError: The call names none, or a run that has no predictions by key.
        ColumnError: The predictions lack a column.
        RunNotFoundError: There is no such run.
        IntegrityError: They are gone or were changed.
    """
    if not call.inference_run_id:
        raise InputError("inference_run_id is missing: name the run whose predictions are meant.")
    if call.inference_run_id.startswith(SERVED_SCHEME):
        return _kept_predictions(call, store)
    run = _inference(call, store)
    if run.kind != "infer":
        raise InputError(
            f"The run {run.run_id!r} is of the kind {run.kind!r}: inference_run_id names a run of "
            "run_inference."
        )
    known = list(
        dict.fromkeys(name for each in output_schemas(run).values() for name in each.names)
    )
    if not known:
        raise InputError(f"The run {run.run_id!r} has no predictions yet.")
    title = f"the run {run.run_id!r}"
    # What rows have beside their predictions may be named like one.
    beside = [column.name for column in run.key_columns]
    beside += names_of(arguments_of(run).get("keep_columns") or ())
    predicted = _predicted(call.prediction, known, beside, title)
    on = names_of(call.on or ())
    for name in on:
        if name not in known:
            raise ColumnError(
                f"The predictions of {run.run_id!r} have no column {name!r}, by which rows are "
                "told apart: infer with keep_columns that names it; "
                f"{columns_there(known, name)}"
            )
    keys = [column.name for column in run.key_columns]
    missing = [name for name in keys if name not in known]
    if missing:
        raise InputError(
            f"The predictions of {run.run_id!r} have no key: it inferred blocks of rows. Infer "
            "with partition_by, so that predictions are those of keys."
        )
    level = [_LEVEL] if _LEVEL in known else []
    rows = run.predictions(list(dict.fromkeys([*keys, *on, *predicted, *level])))
    models, gone = _models_of(_used(run), store)
    return Predictions(
        name=run.run_id,
        title=title,
        key_columns=run.key_columns,
        recipe=recipe_of(run),
        rows=rows,
        columns=tuple(predicted),
        models=models,
        gone=gone,
    )


def _kept_predictions(call: EvaluateCall, store: Store) -> Predictions:
    """Return what a server has answered: of rows that were asked for twice, the last answer."""
    on = names_of(call.on or ())
    columns = re.compile(re.escape(call.prediction) + r"(_\d+)?")
    more = {*on, _LEVEL, ANSWERED_AT}

    def is_wanted(name: str, about: About) -> bool:
        return name in more or name in about.key_columns or bool(columns.fullmatch(name))

    kept = read_kept(store, call.inference_run_id, is_wanted)
    title = f"what is kept for {call.inference_run_id}"
    if missing := [name for name in on if name not in kept.names]:
        raise ColumnError(f"on names {names_in_words(missing)}; {columns_there(kept.names)}")
    predicted = _predicted(call.prediction, kept.names, (), title)
    keys = list(kept.about.key_columns)
    if not keys:
        raise InputError(f"In {title} there is no key: one model has answered for all rows.")
    places = pa.array(np.arange(kept.rows.num_rows))
    groups = kept.rows.append_column(_PLACE, places).group_by([*keys, *on])
    last = groups.aggregate([(_PLACE, "max")])[f"{_PLACE}_max"]
    # The newest first: of its models those are named that each key has.
    rows = kept.rows.take(pa.array(np.sort(last.to_numpy())[::-1]))
    models, gone = _models_of(kept.about.levels, store)
    return Predictions(
        name=call.inference_run_id,
        title=title,
        key_columns=key_columns(rows.schema, keys),
        recipe=None,
        rows=rows.select([*dict.fromkeys([*keys, *on, *predicted]), _LEVEL]),
        columns=tuple(predicted),
        models=models,
        gone=gone,
    )


def _models_of(names: Sequence[str], store: Store) -> tuple[tuple[ModelSet, ...], str]:
    """Return the models by level; none, and a sentence, where one of them is gone."""
    try:
        return tuple(_models(name, store) for name in names), ""
    except (RunNotFoundError, CatalogNotFoundError, ModelNotFoundError) as error:
        return (), str(error)


def _inference(call: EvaluateCall, store: Store) -> Run:
    """Return the inference run that a call names; of a catalog its newest.

    A resume goes on with the one that its run began with.
    """
    name = call.inference_run_id
    if not name.startswith(CATALOG_SCHEME):
        return Run.open(name.removeprefix(RUN_SCHEME), store)
    if before := arguments_of_before(call, store).get("inference_run_id"):
        return Run.open(before, store)
    catalog = name.partition("@")[0]

    found = newest_run(
        store, lambda run: run.kind == "infer" and catalog in run.document.models[:1]
    )
    if found is None:
        raise InputError(f"No inference of this store by {catalog} has ended: name its run.")
    return found


def _models(name: str, store: Store) -> ModelSet:
    """Return the models that a name stands for, to know them by: none of them is read.

    Of exports those that were exported, which know how good they were.
    """
    if name.startswith(CATALOG_SCHEME):
        return Catalog.open(name, store).model_set()
    run = training_of(Run.open(name.removeprefix(RUN_SCHEME), store))
    found = models_of(ledger_of_models(run))
    return model_set(run, found, of_all_rows=has_one_model(run))


def _predicted(name: str, known: Sequence[str], beside: Collection[str], title: str) -> list[str]:
    """Return the columns of a prediction: the one of this name, or those of its classes.

    One that stands `beside` predictions is meant where these are no classes of that name.
    """
    numbers = {
        int(match[1]): each
        for each in known
        if (match := re.fullmatch(re.escape(name) + r"_(\d+)", each)) and each not in beside
    }
    if name in known and not (numbers and name in beside):
        return [name]
    if not numbers:
        raise ColumnError(
            f"The predictions of {title} have no column {name!r}; {columns_there(known, name)}"
        )
    return [numbers[number] for number in sorted(numbers)]


def _used(run: Run) -> list[str]:
    """Return the models that an inference has used, by level, with the versions of catalogs."""
    arguments = arguments_of(run)
    first = arguments.get("models") or arguments.get("training_run_id") or ""
    others = [each for each in arguments.get("fallback") or () if isinstance(each, str)]
    return [first, *others]


def prepare_evaluation(
    call: EvaluateCall,
    source: Source,
    predictions: Predictions,
    store: Store,
    *,
    packages: ResolvedEnvironment | None = None,
) -> Plan:
    """Return the plan of an evaluation, checked as far as it can be before any row is read.

    `source` has what became true. `packages` are as `prepare_training` takes them.
    """
    asked, metric = call.metric, find_metric(call.metric, call.direction, resolve_trainer)
    check_metric(metric, None, is_backtest=False)
    source = values_as(source, predictions.recipe)
    theirs = predictions.key_columns
    by = call.partition_by or [column.name for column in theirs]
    source, names, keys = keys_of(source, by, theirs)
    check_first_keys(predictions.title, theirs, names, keys)
    label = label_of(call.label, source.schema)
    on = names_of(call.on or ())
    if predictions.name.startswith(SERVED_SCHEME):
        predictions = replace(predictions, rows=_with_times(predictions.rows, on, source.schema))
    on_columns = _on_columns(on, source.schema, predictions)
    latest = [call.latest_by] if call.latest_by else []
    if missing := [name for name in latest if name not in source.schema.names]:
        raise ColumnError(f"latest_by is {missing[0]!r}; {columns_there(source.schema.names)}")
    for name in latest:
        nothing = pa.chunked_array([pa.nulls(1, source.schema.field(name).type)])
        sortable(nothing, f"latest_by, {name!r},")
    predicted = {*predictions.columns, *MODEL_COLUMNS}
    wanted = list(dict.fromkeys([*names, *on, label, *latest]))
    measures_drift = call.drift == "measure" and any(
        each.models["sketch"].null_count < each.models.num_rows for each in predictions.models
    )
    if measures_drift:
        rest = [name for name in source.schema.names if name not in {*wanted, *predicted}]
        wanted = [*wanted, *rest]
    both = stacked(
        source.narrowed(wanted),
        open_source(in_zones(predictions.rows, _zones(source.schema))),
        _SOURCE,
        ("the rows", f"the predictions of {predictions.title}"),
    )
    call = replace(
        prepared(call, names, keys),
        inference_run_id=predictions.name,
        on=on,
        label=label,
        direction="maximize" if metric.maximized else "minimize",
    )
    work = EvaluateWork(
        source_column=both.name,
        key_columns=tuple(names),
        on=on_columns,
        label=label,
        latest_by=call.latest_by,
        predictions=predictions.columns,
        level_column=_LEVEL if _LEVEL in predictions.rows.column_names else "",
        metric=metric,
        measures_drift=measures_drift,
    )
    return plan_of(
        call,
        both,
        keys,
        work,
        packages=packages,
        models=tuple(_with_values(each, keys, metric, store, asked) for each in predictions.models),
    )


def _zones(schema: pa.Schema) -> dict[str, str]:
    """Return the zones of columns of times that have one."""
    times = (field for field in schema if pa.types.is_timestamp(field.type))
    return {field.name: field.type.tz for field in times if field.type.tz}


def _with_times(rows: pa.Table, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return rows whose dates and times, which JSON has as text, are of the types in a schema."""
    for name in (name for name in names if name in schema.names):
        kind = schema.field(name).type
        if pa.types.is_string(rows[name].type) and (
            pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        ):
            try:
                made = rows[name].cast(pa.date32() if pa.types.is_date(kind) else kind)
            except pa.ArrowInvalid as error:
                raise ColumnError(
                    f"The column {name!r} of the requests is text that is not of type {kind} in "
                    f"every row: {error}"
                ) from error
            rows = rows.set_column(rows.column_names.index(name), name, made)
    return rows


def _on_columns(
    on: Sequence[str], schema: pa.Schema, predictions: Predictions
) -> tuple[KeyColumn, ...]:
    """Return the columns that tell rows apart, which are of the same classes in both."""
    if not on:
        return ()
    if missing := [name for name in on if name not in schema.names]:
        raise ColumnError(
            f"on names {names_in_words(missing)}; {columns_there(schema.names, *missing)}"
        )
    theirs = key_columns(predictions.rows.schema, on)
    check_key_classes(theirs, key_columns(schema, on), predictions.title)
    return theirs


def _with_values(
    models: ModelSet, keys: Sequence[KeyColumn], metric: Metric, store: Store, asked: Any = ""
) -> ModelSet:
    """Return models with what is known of how good they were, where they are of the same keys.

    `asked` is the metric as the call has it: a function, its name, or the name of one of ours.
    """
    n = models.models.num_rows
    value, rows = pa.nulls(n, pa.float64()), pa.nulls(n, pa.int64())
    # Under the name of ours stands what ours was, or nobody knows which.
    if tuple(models.key_columns) == tuple(keys) and not metric.is_namesake:
        measured = _measured(models, store)
        places = pc.index_in(models.models["owner"], measured["owner"].combine_chunks())
        lists = measured["metrics"].combine_chunks()
        # A comparison measures the metric itself; a ready trainer that of the rows held out.
        compared = _metric(lists, metric.name)
        found = pc.coalesce(compared, _metric(lists, _HOLDOUT + metric.name))
        # Who measured another function of this name says nothing of this one.
        by, function = measured["by"].combine_chunks(), _function_name(asked)
        runs = by.take(places).unique().to_pylist()
        has_other = partial(_has_other, metric=metric.name, function=function, store=store)
        with ThreadPoolExecutor(READ_THREADS) as threads:
            others = [*compress(runs, threads.map(has_other, runs))]
        is_other = pc.is_in(by, value_set=pa.array(others, pa.string()))
        value = pc.if_else(is_other, pa.scalar(None, pa.float64()), found).take(places)
        held_out = _metric(lists, f"{_HOLDOUT}rows").cast(pa.int64())
        counts = measured["rows"].combine_chunks()
        rows = pc.if_else(pc.is_valid(compared), counts, held_out).take(places)
    table = models.models.append_column(VALUE_THEN, value).append_column(ROWS_THEN, rows)
    return replace(models, models=table)


def _measured(models: ModelSet, store: Store) -> pa.Table:
    """Return metrics and rows of models, at promotion or of the training, and the run that says so.

    The columns are owner, rows, metrics and by.
    """
    if models.name.startswith(CATALOG_SCHEME):
        table = Catalog.open(models.name, store).table
        compared = pc.fill_null(table["comparison"], "")
        by = pc.if_else(pc.equal(compared, ""), table["run_id"], compared)
        return table.select(["owner", "rows", "metrics"]).append_column("by", by)
    name = models.name.removeprefix(RUN_SCHEME)
    ledger = Run.open(name, store).ledger
    ledger = ledger.select(["partition_id", "rows", "metrics"])
    ledger = ledger.rename_columns(["owner", "rows", "metrics"])
    return ledger.append_column("by", pa.repeat(name, ledger.num_rows))


def _has_other(by: str | None, metric: str, function: str, store: Store) -> bool:
    """Whether a training run, or a comparison, went by another function of the metric's name."""
    try:
        run = Run.open((by or "").partition("@")[0], store)
        document, arguments = document_of(run), arguments_of(run)
    except PartwiseError:
        return False  # It is gone, or damaged: nobody says so.
    trainer = arguments.get("trainer")
    settings = trainer if isinstance(trainer, dict) else arguments
    if "trainer" in arguments or "metric" in arguments:
        went_by = settings.get("metric")
        names = [went_by] if isinstance(went_by, str) and names_function(went_by) else []
    else:
        # It was no call that another process can repeat: its functions are known by name.
        parts = (part.partition("function ") for part in document.code_parts or {})
        names = [name for before, _, name in parts if not before]
    named_so = {name for name in names if re.split(r"[.:]", name)[-1] == metric}
    return bool(named_so) and function not in named_so


def _function_name(metric: Any) -> str:
    """Return the name of a metric that is a function; empty: it is one of ours."""
    if isinstance(metric, str):
        return metric if names_function(metric) else ""
    return f"{getattr(metric, '__module__', '')}:{getattr(metric, '__qualname__', '')}"


def _metric(lists: pa.MapArray, name: str) -> pa.Array:
    """Return one metric of each row of a ledger, null where it has none."""
    found = pc.map_lookup(lists, pa.scalar(name), "first")
    return found.cast(pa.float64())
