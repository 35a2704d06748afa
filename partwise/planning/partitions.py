"""What flows over rows decide before a row is touched: most refusals are here, without Prefect."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, TypeVar

import pyarrow as pa

from partwise.calls.call import ExecutedCall, KeyedCall
from partwise.calls.intent import describe_intent
from partwise.calls.partitions import FunctionCall, InferCall, MapCall, TrainCall
from partwise.choices import NullKeys
from partwise.engine.driver.params import given_params
from partwise.engine.driver.plan import Plan
from partwise.engine.trained_models import (
    model_of_every_partition,
    models_by_shard,
    models_fingerprint,
)
from partwise.engine.works import InferWork, MapWork, TrainWork, Work
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import ColumnError, InputError, ModelNotFoundError
from partwise.models.serdes import PROGRAMS, SERDES, ModelSerde, resolve_serde, serde_by_name
from partwise.outcomes import RunStatus
from partwise.planning.earlier_rows import recipe_of
from partwise.publishing.output import Output, check_output
from partwise.runs.claim import Identity
from partwise.runs.exports import check_has_models, has_one_model, ledger_of_models
from partwise.runs.ledger import skip_reasons
from partwise.runs.run import Run
from partwise.shuffle.plan import ShardedRows
from partwise.sources.derived import in_blocks
from partwise.sources.descriptions import Source
from partwise.sources.opening import keyed_by, values_as
from partwise.tables.column_names import columns_there
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes, key_columns
from partwise.tables.parquet_types import check_writable
from partwise.trainers import Best, Tuned, default_predict, libraries_of, resolve_trainer
from partwise.trainers.resolving import check_takes

F = TypeVar("F", bound=FunctionCall)


def plan_of(
    call: ExecutedCall,
    source: Source,
    keys: tuple[KeyColumn, ...],
    work: Work,
    *,
    function: Any = None,
    packages: ResolvedEnvironment | None = None,
    seed: int = 0,
    null_keys: NullKeys = "error",
    uses: Run | None = None,
    models: Mapping[int, pa.Table] | None = None,
    model: pa.Table | None = None,
    check_sharded: Callable[[ShardedRows], None] | None = None,
) -> Plan:
    """Return the plan of a run that is asked for so.

    `call` is what a resume compares and can repeat. `function` is the user's, or, where there is
    none, the work. Rows are divided as those of `uses`, whose models stand in `models` (a table for
    each shard) or in `model` (one for all partitions). `check_sharded` refuses rows that cannot be
    used, once they are sharded. `seed` and `null_keys` are for calls that have none of their own.
    """
    used = models if model is None else {0: model}
    params: Any = None
    if isinstance(call, KeyedCall):
        seed, params, null_keys = call.seed, call.params, call.null_keys
    return Plan(
        identity=Identity(
            run_id=call.run_id,
            kind=call.run_kind(),
            key_columns=keys,
            training_run_id=None if uses is None else uses.run_id,
        ),
        source=source,
        work=work,
        function=work if function is None else function,
        intent=describe_intent(
            call,
            source.description(),
            None if used is None else models_fingerprint(used),
            {} if packages is None else packages.versions,
        ),
        seed=seed,
        params=params,
        null_keys=null_keys,
        on_existing=call.on_existing_artifacts,
        options=call.execution,
        environment=packages,
        # Models are found by shard, so their rows are divided alike; one model serves any shard.
        n_shards=None if uses is None or model is not None else uses.document.n_shards,
        models=models,
        model=model,
        check_sharded=check_sharded,
    )


def prepare_training(
    call: TrainCall,
    source: Source,
    *,
    earlier_keys: Sequence[KeyColumn] = (),
    packages: ResolvedEnvironment | None = None,
) -> Plan:
    """Return the plan of a training run, checked as far as it can be before any row is read.

    `earlier_keys` are the key columns of the run of this ID, where there is one: files without
    types are read with them.
    """
    source, names, keys = keys_of(source, call.partition_by, earlier_keys)
    has_packages = packages is not None
    function = checked_trainer(call.trainer, source.schema, names, has_packages=has_packages)
    serde = resolve_serde(call.serde)
    call = replace(prepared(call, names, keys), serde=serde)
    plan = plan_of(
        call,
        source,
        keys,
        TrainWork(function=function, serde=serde),
        function=function,
        packages=packages,
    )
    reads = function.reads(source.schema) if hasattr(function, "reads") else None
    if reads is None:
        return plan
    narrowed = source.narrowed(_known([*names, *reads], source.schema))
    return replace(plan, source=narrowed, reads=frozenset(reads))


def prepared(call: F, names: list[str], keys: tuple[KeyColumn, ...]) -> F:
    """Return a call with its keys, params and files as they are compared and written down."""
    return replace(
        call,
        partition_by=names,
        params=given_params(call.params, keys),
        files=[str(path) for path in call.files or ()],
    )


def checked_trainer(
    trainer: str | Callable[..., Any],
    schema: pa.Schema,
    key_columns: Sequence[str],
    *,
    has_packages: bool,
) -> Any:
    """Return a trainer, or the function that a name stands for, which goes with the rows."""
    function: Any = resolve_trainer(trainer)
    if isinstance(function, Best | Tuned):
        function = function.resolved()
    check_takes(function, "data", "context")
    check_libraries(function, has_packages=has_packages)
    if hasattr(function, "check"):
        function.check(schema, key_columns=tuple(key_columns))
    return function


def check_libraries(trainer: Any, *, has_packages: bool) -> None:
    """Refuse a trainer whose libraries are not installed, unless the run has packages of its own.

    Of several candidates, the one without its library would lose on each partition.
    """
    names = () if has_packages else libraries_of(trainer)
    # Of the top packages only: to look for a module within a package would import the package.
    if missing := [name for name in names if find_spec(name.partition(".")[0]) is None]:
        extras = " and ".join(f"partwise[{name}]" for name in missing)
        raise InputError(
            f"The trainer needs {', '.join(missing)}, which is not installed here: install "
            f"{extras}, or give the run an environment with it."
        )


def prepare_mapping(
    call: MapCall,
    source: Source,
    *,
    output: Output | None = None,
    earlier_keys: Sequence[KeyColumn] = (),
    packages: ResolvedEnvironment | None = None,
) -> Plan:
    """Return the plan of a map run, checked as far as it can be before any row is read.

    `earlier_keys` and `packages` are as `prepare_training` takes them.
    """
    source, names, keys = keys_of(source, call.partition_by, earlier_keys)
    call = replace(prepared(call, names, keys), output=output)
    check_output(output, [source.schema.field(name) for name in names])
    function: Any = resolve_trainer(call.function)
    check_takes(function, "data", "context")
    return plan_of(
        call,
        source,
        keys,
        MapWork(function=function, key_columns=tuple(names)),
        function=function,
        packages=packages,
    )


def prepare_inference(
    call: InferCall,
    source: Source,
    training: Run,
    *,
    output: Output | None = None,
    earlier_keys: Sequence[KeyColumn] = (),
    packages: ResolvedEnvironment | None = None,
) -> Plan:
    """Return the plan of an inference run: its work, and where the models of each shard stand.

    The key columns are those of the training run; any of the rows where that trained one model, and
    none for blocks of rows. `earlier_keys` and `packages` are as `prepare_training` takes them.
    """
    serde = resolve_serde(call.serde)
    given = _names(call.partition_by)
    predicts: Any = resolve_trainer(call.predict) if call.predict else default_predict
    check_takes(predicts, "data", "model", "context")
    check_has_models(training, takes_exports=True)
    # First: of rows that are divided into blocks, it cannot be changed any more how they are read.
    source = values_as(source, recipe_of(training))
    keep_columns = call.keep_columns or ()
    check_kept(keep_columns, source.schema)
    one = has_one_model(training)
    if one and not given:
        # One model serves all rows: without keys, blocks of them are the partitions.
        source = in_blocks(source)
    by = given or source.schema.names[-1:] if one else given
    source, names, keys = keys_of(source, by, earlier_keys if one else training.key_columns)
    check_output(output, [source.schema.field(name) for name in names])
    call = replace(
        prepared(call, given, keys),
        training_run_id=training.run_id,
        serde=serde,
        keep_columns=list(keep_columns) or None,
        output=output,
    )
    # A format that runs code when it is read is named by the call: by `serde`, or so.
    reader = serde
    if reader is None and call.format in PROGRAMS:
        reader = SERDES[call.format]()
    if not one:
        check_trained_keys(training, names, keys)
    work = InferWork(
        predict=predicts,
        serde=reader,
        training_run_id=training.run_id,
        on_missing_model=call.on_missing_model,
        key_columns=tuple(names),
        keep_columns=tuple(keep_columns),
        keeps_model=one,
        names_classes=not call.predict,
    )
    return plan_of(
        call,
        source,
        keys,
        work,
        function=work.predict,
        packages=packages,
        uses=training,
        models=None if one else trained_models(training, reader),
        model=trained_model(training, reader) if one else None,
    )


def trained_models(training: Run, serde: ModelSerde | None) -> dict[int, pa.Table]:
    """Return where the models of a run stand, a table for each shard; all of them can be read."""
    models = models_by_shard(ledger_of_models(training))
    if not models:
        raise _no_model(training)
    if has_one_model(training):
        # Its run has one shard; the number of a trial stands where others have their shard's.
        models = {0: pa.concat_tables(models.values())}
    check_serdes(models, serde)
    return models


def trained_model(training: Run, serde: ModelSerde | None) -> pa.Table:
    """Return where the one model of a run stands, for all partitions; it can be read."""
    model = model_of_every_partition(ledger_of_models(training))
    if model is None:
        raise _no_model(training)
    check_serdes({0: model}, serde)
    return model


def _no_model(training: Run) -> ModelNotFoundError:
    why = " yet; train it first"
    if training.status is RunStatus.SKIPPED:
        count, reasons = sum(training.counts.values()), skip_reasons(training.ledger)
        why = f": all {count:,} partitions were skipped ({reasons}); train it on other rows"
    return ModelNotFoundError(
        f"The training run {training.run_id!r} ({training.status.value}) has no model{why}, or "
        "pass the ID of another run."
    )


def check_serdes(models: Mapping[int, pa.Table], serde: ModelSerde | None) -> None:
    """See to it that models can be read."""
    for name in serdes_of(models):
        serde_by_name(name, serde)


def serdes_of(models: Mapping[int, pa.Table]) -> list[str]:
    """Return the names of the serdes that wrote models."""
    return sorted({name for table in models.values() for name in table["serde"].to_pylist()})


def keys_of(
    source: Source, partition_by: str | Sequence[str], earlier: Sequence[KeyColumn] = ()
) -> tuple[Source, list[str], tuple[KeyColumn, ...]]:
    """Return the rows by their keys, the names of the key columns, and what they are.

    `earlier` are those of a run whose keys they are to meet: files that say no types are read with
    their classes.
    """
    names = _names(partition_by)
    source = keyed_by(source, names, earlier)
    return source, names, key_columns(source.schema, names)


def _names(partition_by: str | Sequence[str]) -> list[str]:
    if isinstance(partition_by, str):
        return [partition_by] if partition_by else []
    return list(partition_by)


def _known(columns: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return columns that a trainer says it reads, each once."""
    known = set(schema.names)
    if missing := [name for name in columns if name not in known]:
        raise ColumnError(f"The trainer reads {missing}, which the source does not have.")
    return list(dict.fromkeys(columns))


def check_trained_keys(training: Run, names: list[str], keys: tuple[KeyColumn, ...]) -> None:
    """Refuse key columns that are not those of the run that trained the models."""
    if names != training.document.partition_by:
        raise InputError(
            f"partition_by is {names}, and the training run {training.run_id!r} was partitioned "
            f"by {training.document.partition_by}; pass the same columns in the same order."
        )
    check_key_classes(training.key_columns, keys, f"the training run {training.run_id!r}")


def check_kept(keep_columns: Sequence[str], schema: pa.Schema) -> None:
    """Refuse columns to keep that are not there, or cannot be written."""
    known = set(schema.names)
    missing = [name for name in keep_columns if name not in known]
    if missing:
        raise ColumnError(
            f"keep_columns names {missing}, which the source does not have; "
            f"{columns_there(schema.names, *missing)}"
        )
    check_writable(pa.schema([schema.field(name) for name in keep_columns]), "keep_columns names")
