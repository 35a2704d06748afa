"""What a call is refused for at once: before Prefect is imported, a server or a cluster started.

Flows refuse all of it as well, by the same functions. Here it takes a third of the time, since
nothing in this module knows Prefect or Dask.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from partwise.datasets.dataset import resolve_references
from partwise.flows.running.earlier_rows import keys_of_run, recipe_of
from partwise.flows.running.prepare import (
    check_kept,
    check_trained_keys,
    checked_trainer,
    keys_of,
)
from partwise.runs.claim import refuse_existing
from partwise.runs.documents import check_run_id
from partwise.runs.exports import check_has_models, has_one_model
from partwise.runs.pipeline import stage_run_id
from partwise.runs.run import Run
from partwise.sources.descriptions import Source
from partwise.sources.opening import OpenedData, open_source, values_as, values_like
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes
from partwise.trainers import Best, Tuned, libraries_of, resolve_trainer
from partwise.trainers.resolving import check_takes

_OF_MODEL = ("data", "model", "context")
_FUNCTIONS = {"function": ("data", "context"), "predict": _OF_MODEL, "inputs": _OF_MODEL}
"""Arguments that may be the name of a function, and what this is called with."""
_BLOCKS = ("artifact-store/", "file-source/", "sql-source/")
"""Names of what only a Prefect server knows begin so."""
_BY_PARTITION = ("train_models", "model_pipeline")
_BY_GANG = ("train_distributed", "tune_model")


def check_call(flow: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse a call that its flow would refuse, as far as that can be seen without Prefect.

    Args:
        flow: The flow function's name.
        arguments: What it is called with.

    Returns:
        The arguments, with the rows opened: reading the footers of thousands of files takes seconds
        too, and the flow need not do it again.

    Raises:
        InputError: The flow would refuse them; so with all other errors of ours.
    """
    check_run_id(arguments["run_id"])
    store = arguments.get("store")
    opened_store = None if _names_block(store) or store is None else Store.parse(store)
    if opened_store is not None:
        _check_runs(flow, arguments, opened_store)
    if flow == "model_pipeline":
        check_stages(arguments)
    else:
        check_functions(arguments)
    data = arguments.get("data")
    if not data or _is_of_server(data):
        return arguments  # the rows of an earlier run, or a block
    found = resolve_references(data, lambda: Store.parse(arguments["store"]))
    opened = OpenedData.of(data, found)
    columns, condition = arguments["columns"] or None, arguments["filter"] or None
    source = open_source(opened, columns=columns, filter=condition)
    earlier = () if opened_store is None else _earlier_keys(flow, arguments, opened_store)
    if flow == "model_pipeline" and not _is_of_server(used := arguments["inference_data"]):
        used = resolve_references(used, lambda: Store.parse(arguments["store"]))
        check_inference(opened, used or None, earlier, arguments)
    _check_rows(flow, arguments, source, earlier, opened_store)
    return {**arguments, "data": opened}


def check_functions(arguments: Mapping[str, Any]) -> None:
    """Refuse names of functions and of an exporter that lead nowhere.

    Raises:
        FunctionError: With the name in its message.
    """
    for name, given in _FUNCTIONS.items():
        # Files that a function reads are named so as well.
        if isinstance(value := arguments.get(name), str) and ":" in value:
            check_takes(resolve_trainer(value), *given)
    if exporter := arguments.get("exporter"):
        from partwise.exports.choice import resolve_exporter

        resolve_exporter(exporter)


def check_stages(arguments: Mapping[str, Any]) -> None:
    """Refuse of a pipeline what its later stages would, once all models are trained.

    Args:
        arguments: Those of `model_pipeline`.

    Raises:
        FunctionError: The name of a function leads nowhere.
        ExportRefused: Models of a built-in trainer cannot be exported so.
    """
    check_functions(arguments)
    trainer = arguments["trainer"]
    kind = trainer.trainer if isinstance(trainer, Tuned) else trainer
    # Of several candidates, a function may make models that nobody knows yet.
    if arguments["exporter"] or isinstance(kind, Best):
        return
    from partwise.exports.choice import check_formats

    check_formats(arguments["format"], libraries_of(kind), arguments["options"])


def check_inference(
    data: Any, used: Any, earlier: Sequence[KeyColumn], arguments: Mapping[str, Any]
) -> None:
    """Refuse of a pipeline the rows of its last stage, once all models are trained and exported.

    Args:
        data: The rows that are trained on.
        used: Those of the last stage; None: the same.
        earlier: The key columns of the pipeline's training, where it has begun before.
        arguments: Those of `model_pipeline`.

    Raises:
        SourceError: They cannot be read.
        ColumnError: A column is missing.
        KeyClassError: A key column has another class than in training.
    """
    opened = OpenedData.of(data, data)
    columns, condition = arguments["columns"] or None, arguments["filter"] or None
    training = open_source(opened, columns=columns, filter=condition)
    _, names, trained = keys_of(training, arguments["partition_by"], earlier)
    source = values_like(open_source(opened if used is None else used), training)
    source, _, keys = keys_of(source, names, trained)
    check_key_classes(trained, keys, "the training of this pipeline")
    check_kept(arguments["keep_columns"] or (), source.schema)


def _names_block(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_BLOCKS)


def _is_of_server(data: Any) -> bool:
    """Whether only a Prefect server knows which rows these are."""
    return any(map(_names_block, data if isinstance(data, list) else [data]))


def _check_runs(flow: str, arguments: Mapping[str, Any], store: Store) -> None:
    """Refuse a run ID that is taken, and a run to work with that is not there."""
    if arguments.get("on_existing_artifacts", "error") == "error" and flow != "model_pipeline":
        refuse_existing(arguments["run_id"], store)
    if training_run_id := arguments.get("training_run_id"):
        training = Run.open(training_run_id, store)
        if flow == "run_inference":
            check_has_models(training, takes_exports=True)
    if export_run_id := arguments.get("export_run_id"):
        Run.open(export_run_id, store)


def _earlier_keys(flow: str, arguments: Mapping[str, Any], store: Store) -> tuple[KeyColumn, ...]:
    """Return the key columns of the run that a call may go on with; none: there is no run."""
    run_id = arguments["run_id"]
    return keys_of_run(stage_run_id(run_id, "train") if flow == "model_pipeline" else run_id, store)


def _check_rows(
    flow: str,
    arguments: Mapping[str, Any],
    source: Source,
    earlier: Sequence[KeyColumn],
    store: Store | None,
) -> None:
    """Refuse columns that the rows lack, and settings that do not go with them."""
    names: list[str] = []
    if arguments.get("partition_by"):
        training = None
        if flow == "run_inference" and store is not None:
            training = Run.open(arguments["training_run_id"], store)
            source = values_as(source, recipe_of(training))
            training = None if has_one_model(training) else training
        trained = earlier if training is None else training.key_columns
        source, names, keys = keys_of(source, arguments["partition_by"], trained)
        if training is not None:
            check_trained_keys(training, names, keys)
    if flow != "model_pipeline":
        # There these are columns of the rows of another stage.
        check_kept(arguments.get("keep_columns") or (), source.schema)
    trainer: Any = arguments.get("trainer")
    if flow in _BY_PARTITION and not _names_portfolio(trainer):
        environment = arguments.get("environment")
        has_packages = environment is not None and environment.is_own
        checked_trainer(trainer, source.schema, names, has_packages=has_packages)
    elif flow in _BY_GANG and hasattr(function := resolve_trainer(trainer), "check"):
        function.check(source.schema, key_columns=())


def _names_portfolio(trainer: Any) -> bool:
    """Whether the settings of a trainer stand in another run."""
    if isinstance(trainer, Best):
        return any(map(_names_portfolio, trainer.candidates))
    return isinstance(trainer, Tuned) and bool(trainer.portfolio)
