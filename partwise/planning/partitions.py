"""What flows over rows decide before a row is touched: most refusals are here, without Prefect."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, TypeVar

import pyarrow as pa

from partwise.calls.call import ExecutedCall, KeyedCall
from partwise.calls.intent import describe_intent
from partwise.calls.partitions import FunctionCall, InferCall, MapCall, TrainCall
from partwise.choices import ASKS_PREVIOUS, SKIPS, NullKeys
from partwise.engine.driver.params import given_params, values_of
from partwise.engine.driver.plan import Plan
from partwise.engine.infer_work import InferWork
from partwise.engine.trained_models import models_fingerprint
from partwise.engine.works import MapWork, TrainWork, Work
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import ColumnError, InputError
from partwise.models.serdes import resolve_serde
from partwise.planning.chosen_keys import chosen_keys
from partwise.planning.kept_models import refuse_unkept
from partwise.planning.models import UsedModels
from partwise.publishing.output import Output, check_output
from partwise.runs.claim import Identity
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.stored_models import ModelSet
from partwise.shuffle.plan import ShardedRows
from partwise.sources.derived import in_blocks
from partwise.sources.descriptions import Source
from partwise.sources.opening import keyed_by, of_keys, values_as
from partwise.store.store import Store
from partwise.tables.column_names import columns_there
from partwise.tables.keys.given_keys import keys_as_url
from partwise.tables.keys.partition_keys import KeyColumn, key_columns
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
    models: tuple[ModelSet, ...] = (),
    compares_models: bool = False,
    without_model: str | None = None,
    check_sharded: Callable[[ShardedRows], None] | None = None,
) -> Plan:
    """Return the plan of a run that is asked for so.

    `call` is what a resume compares and can repeat. `function` is the user's, or, where there is
    none, the work. `check_sharded` refuses rows that cannot be used, once they are sharded. `seed`
    and `null_keys` are for calls that have none of their own.
    """
    params: Any = None
    if isinstance(call, KeyedCall):
        seed, params, null_keys = call.seed, call.params, call.null_keys
    return Plan(
        identity=Identity(
            run_id=call.run_id,
            kind=call.run_kind(),
            key_columns=keys,
            # A version of a catalog is no other identity: a resume may use the next.
            models=tuple(each.name.partition("@")[0] for each in models),
        ),
        source=source,
        work=work,
        function=work if function is None else function,
        intent=describe_intent(
            call,
            source.description(),
            models_fingerprint(models, without_model) if models else None,
            {} if packages is None else packages.versions,
        ),
        seed=seed,
        params=params,
        null_keys=null_keys,
        on_existing=call.on_existing_artifacts,
        options=call.execution,
        environment=packages,
        # They would be brought to each child, with every model.
        models=models
        if call.run_kind() == "evaluate"
        else tuple(each.without_sketches() for each in models),
        compares_models=compares_models,
        without_model=without_model,
        check_sharded=check_sharded,
    )


def prepare_training(
    call: TrainCall,
    source: Source,
    *,
    open_store: Callable[[], Store] | None = None,
    earlier_keys: Sequence[KeyColumn] = (),
    packages: ResolvedEnvironment | None = None,
) -> Plan:
    """Return the plan of a training run, checked as far as it can be before any row is read.

    `earlier_keys` are the key columns of the run of this ID, where there is one: files without
    types are read with them. `open_store` gives the store of a call that names it by a block.
    """
    source, names, keys = keys_of(source, call.partition_by, earlier_keys)
    stored = open_store or (lambda: Store.parse(call.store))
    chosen = chosen_keys(call.only, keys, source.schema, stored)
    if chosen is not None:
        source, call = of_keys(source, chosen), replace(call, only=keys_as_url(chosen.keys))
    has_packages = packages is not None
    function = checked_trainer(call.trainer, source.schema, names, has_packages=has_packages)
    serde = resolve_serde(call.serde)
    refuse_unkept(function, serde)
    call = replace(prepared(call, names, keys), serde=serde)
    if isinstance(function, Best):
        function.check_params(source.schema, values_of(call.params, keys))
    plan = plan_of(
        call,
        source,
        keys,
        TrainWork(function=function, serde=serde, sketches=call.sketches == "keep"),
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
    models: UsedModels,
    *,
    output: Output | None = None,
    earlier_keys: Sequence[KeyColumn] = (),
    packages: ResolvedEnvironment | None = None,
) -> Plan:
    """Return the plan of an inference run: its work, and the models that it uses.

    The key columns are those of the models; any of the rows where there is one model, and none for
    blocks of rows. `earlier_keys` and `packages` are as `prepare_training` takes them.
    """
    given = names_of(call.partition_by)
    predicts: Any = resolve_trainer(call.predict) if call.predict else default_predict
    check_takes(predicts, "data", "model", "context")
    # First: of rows that are divided into blocks, it cannot be changed any more how they are read.
    source = values_as(source, models.recipe)
    keep_columns = call.keep_columns or ()
    check_kept(keep_columns, source.schema)
    one = not models.key_columns
    if one and not given:
        # One model serves all rows: without keys, blocks of them are the partitions.
        source = in_blocks(source)
    by = given or source.schema.names[-1:] if one else given
    source, names, keys = keys_of(source, by, models.key_columns or earlier_keys)
    known = dict.fromkeys([*names, *keep_columns])
    check_output(output, [source.schema.field(name) for name in known])
    models.check_keys(names, keys)
    fallback: list[Any] = [each.name for each in models.sets[1:]]
    if models.fallback is not None:
        fallback.append(models.fallback)
    first = models.sets[0].name
    call = replace(
        prepared(call, given, keys),
        # As they were found: of a catalog its version, of an exported run its exports.
        training_run_id=first.removeprefix(RUN_SCHEME) if call.training_run_id else "",
        models=first if call.models else "",
        fallback=fallback,
        serde=resolve_serde(call.serde),
        keep_columns=list(keep_columns) or None,
        output=output,
    )
    work = InferWork(
        predict=predicts,
        serde=models.reader,
        levels=models.levels,
        fallback=models.fallback,
        on_missing_model="skip" if call.on_missing_model in SKIPS else "fail",
        on_error=call.on_error,
        key_columns=tuple(names),
        keep_columns=tuple(keep_columns),
        # By what was asked: rows of each night have the same columns, whichever models there were.
        names_models=bool(call.models or call.fallback or call.on_missing_model in ASKS_PREVIOUS),
        names_classes=not call.predict,
    )
    return plan_of(
        call,
        source,
        keys,
        work,
        function=work.predict,
        packages=packages,
        models=models.sets,
        without_model=None if models.fallback is None else models.fallback.model_dump_json(),
    )


def keys_of(
    source: Source, partition_by: str | Sequence[str], earlier: Sequence[KeyColumn] = ()
) -> tuple[Source, list[str], tuple[KeyColumn, ...]]:
    """Return the rows by their keys, the names of the key columns, and what they are.

    `earlier` are those of a run whose keys they are to meet: files that say no types are read with
    their classes.
    """
    names = names_of(partition_by)
    source = keyed_by(source, names, earlier)
    return source, names, key_columns(source.schema, names)


def names_of(partition_by: str | Sequence[str]) -> list[str]:
    """Return the names of columns as a list; empty: none is given."""
    if isinstance(partition_by, str):
        return [partition_by] if partition_by else []
    return list(partition_by)


def _known(columns: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return columns that a trainer says it reads, each once."""
    known = set(schema.names)
    if missing := [name for name in columns if name not in known]:
        raise ColumnError(f"The trainer reads {missing}, which the source does not have.")
    return list(dict.fromkeys(columns))


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
