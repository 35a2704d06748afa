"""What a call is refused for at once: before Prefect is imported, a server or a cluster started.

Flows refuse all of it as well, by the same functions. Here it takes a third of the time, since
nothing in this module knows Prefect or Dask.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from partwise.calls.call import Call, KeyedCall, RowsCall
from partwise.calls.exports import ComparedCall, ExportCall, ValidateCall
from partwise.calls.one_model import DistributedCall, TuneCall
from partwise.calls.partitions import CompareCall, InferCall, MapCall, PortfolioCall, TrainCall
from partwise.calls.pipeline import PipelineCall
from partwise.datasets.dataset import resolve_references
from partwise.errors import InputError
from partwise.planning.chosen_keys import chosen_keys
from partwise.planning.comparison import open_candidates, prepare_comparison
from partwise.planning.earlier_rows import keys_of_run
from partwise.planning.models import (
    FirstModels,
    check_first_keys,
    first_models,
    with_versions_of_before,
)
from partwise.planning.named_runs import with_named_runs
from partwise.planning.partitions import (
    check_kept,
    checked_trainer,
    keys_of,
)
from partwise.renamed import block_is_called_now
from partwise.runs.claim import refuse_existing
from partwise.runs.documents import check_run_id
from partwise.runs.pipeline import check_pipeline_id
from partwise.runs.run import Run
from partwise.sources.descriptions import Source
from partwise.sources.opening import OpenedData, open_source, values_as, values_like
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes
from partwise.trainers import Best, Tuned, libraries_of, resolve_trainer
from partwise.trainers.resolving import check_takes

logger = logging.getLogger(__name__)

_OF_MODEL = ("data", "model", "context")
_BLOCKS = ("store-block/", "files-block/", "query-block/")
"""Names of what only a Prefect server knows begin so."""


def check_call(call: Call) -> Call:
    """Refuse a call that its flow would refuse, as far as that can be seen without Prefect.

    It comes back with the IDs of the runs that it means, and with the rows opened: reading the
    footers of thousands of files takes seconds too, and the flow need not do it again.
    """
    check_run_id(call.run_id)
    store = None if _names_block(call.store) else Store.parse(call.store)
    models = None
    if store is not None:
        call, sentences = with_named_runs(call, store)
        for sentence in sentences:
            logger.info("%s", sentence)
        _check_runs(call, store)
        if isinstance(call, InferCall):
            models = first_models(with_versions_of_before(call, store), store)
    if isinstance(call, PipelineCall):
        check_stages(call)
    else:
        check_functions(call)
    if not isinstance(call, RowsCall | ComparedCall) or not call.data or _is_of_server(call.data):
        return call  # files of a script, the rows of an earlier run, or a block
    found = resolve_references(call.data, lambda: Store.parse(call.store))
    opened = OpenedData.of(call.data, found)
    columns, condition = call.columns or None, call.filter or None
    source = open_source(opened, columns=columns, filter=condition)
    earlier = () if store is None else _earlier_keys(call, store)
    if isinstance(call, PipelineCall) and not _is_of_server(used := call.inference_data):
        used = resolve_references(used, lambda: Store.parse(call.store))
        check_inference(replace(call, data=opened, inference_data=used), earlier)
    _check_rows(call, source, earlier, models)
    if isinstance(call, CompareCall) and store is not None:
        prepare_comparison(call, source, open_candidates(call, store), earlier_keys=earlier)
    return replace(call, data=opened)


def check_functions(call: Call) -> None:
    """Refuse names of functions and of an exporter that lead nowhere, and what that refuses."""
    if isinstance(call, MapCall):
        _check_function(call.function, "data", "context")
    if isinstance(call, InferCall | CompareCall | PipelineCall | PortfolioCall):
        _check_function(call.predict, *_OF_MODEL)
    if isinstance(call, ComparedCall | PipelineCall):
        _check_function(call.example_inputs, *_OF_MODEL)
        if call.exporter:
            from partwise.exports.choice import resolve_exporter

            exporter: Any = resolve_exporter(call.exporter)
            if isinstance(call, ExportCall | PipelineCall) and hasattr(exporter, "check"):
                exporter.check(call.options)


def _check_function(given: Any, *names: str) -> None:
    if isinstance(given, str) and ":" in given:
        check_takes(resolve_trainer(given), *names)


def check_stages(call: PipelineCall) -> None:
    """Refuse of a pipeline what its later stages would, once all models are trained."""
    check_pipeline_id(call.run_id)
    check_functions(call)
    kind: Any = call.trainer.trainer if isinstance(call.trainer, Tuned) else call.trainer
    # Of several candidates, a function may make models that nobody knows yet.
    if call.exporter or isinstance(kind, Best):
        return
    from partwise.exports.choice import check_formats

    check_formats(call.format, libraries_of(kind), call.options)


def check_inference(call: PipelineCall, earlier: Sequence[KeyColumn]) -> None:
    """Refuse of a pipeline the rows of its last stage, once all models are trained and exported.

    The call has datasets in place of their names; `earlier` are the key columns of the pipeline's
    training, where it has begun before.
    """
    opened = OpenedData.of(call.data, call.data)
    columns, condition = call.columns or None, call.filter or None
    training = open_source(opened, columns=columns, filter=condition)
    _, names, trained = keys_of(training, call.partition_by, earlier)
    used = open_source(call.inference_data if call.infers_other_rows else opened)
    source = values_like(used, training)
    source, _, keys = keys_of(source, names, trained)
    check_key_classes(trained, keys, "the training of this pipeline")
    check_kept(call.keep_columns or (), source.schema)


def _names_block(value: Any) -> bool:
    if isinstance(value, str) and (sentence := block_is_called_now(value)):
        raise InputError(sentence)
    return isinstance(value, str) and value.startswith(_BLOCKS)


def _is_of_server(data: Any) -> bool:
    """Whether only a Prefect server knows which rows these are."""
    return any(map(_names_block, data if isinstance(data, list) else [data]))


def _check_runs(call: Call, store: Store) -> None:
    """Refuse a run ID that is taken, and a run to work with that is not there."""
    # The name of a pipeline is that of no run: its stages have names that are made of it.
    if call.on_existing_artifacts == "error" and not isinstance(call, PipelineCall):
        refuse_existing(call.run_id, store)
    if isinstance(call, ExportCall) and call.training_run_id:
        Run.open(call.training_run_id, store)
    if isinstance(call, ValidateCall):
        Run.open(call.export_run_id, store)


def _earlier_keys(call: Call, store: Store) -> tuple[KeyColumn, ...]:
    """Return the key columns of the run that a call may go on with; none: there is no run."""
    return keys_of_run((call.training() if isinstance(call, PipelineCall) else call).run_id, store)


def _check_rows(
    call: RowsCall | ComparedCall,
    source: Source,
    earlier: Sequence[KeyColumn],
    models: FirstModels | None,
) -> None:
    """Refuse columns that the rows lack, and settings that do not go with them."""
    names: list[str] = []
    if isinstance(call, KeyedCall) and call.partition_by:
        if models is not None:
            source = values_as(source, models.recipe)
        trained = () if models is None else models.key_columns
        source, names, keys = keys_of(source, call.partition_by, trained or earlier)
        if models is not None:
            check_first_keys(models.title, models.key_columns, names, keys)
        if isinstance(call, TrainCall) and not _names_block(call.store):
            chosen_keys(call.only, keys, source.schema, lambda: Store.parse(call.store))
    if isinstance(call, InferCall):
        check_kept(call.keep_columns or (), source.schema)
    if isinstance(call, TrainCall | PipelineCall) and not _names_portfolio(call.trainer):
        has_packages = isinstance(call, TrainCall) and call.environment.is_own
        checked_trainer(call.trainer, source.schema, names, has_packages=has_packages)
    elif isinstance(call, DistributedCall | TuneCall):
        function = resolve_trainer(call.trainer)
        if hasattr(function, "check"):
            function.check(source.schema, key_columns=())


def _names_portfolio(trainer: Any) -> bool:
    """Whether the settings of a trainer stand in another run."""
    if isinstance(trainer, Best):
        return any(map(_names_portfolio, trainer.candidates))
    return isinstance(trainer, Tuned) and bool(trainer.portfolio)
