"""What flows over models decide before a model is touched: exports, validations, collections."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from partwise.calls.exports import ComparedCall, ExportCall, TransformersCall, ValidateCall
from partwise.choices import NullKeys
from partwise.engine.driver.plan import Plan
from partwise.errors import InputError, ModelNotFoundError
from partwise.exports.choice import check_formats, resolve_exporter
from partwise.exports.works import ComparedRows, ExportWork, Proof, ValidateWork
from partwise.models.serdes import refuse_program, resolve_serde
from partwise.planning.models import trained_models
from partwise.planning.partitions import keys_of, plan_of
from partwise.runs.exports import check_has_models, has_one_model
from partwise.runs.kinds import RANK
from partwise.runs.run import Run
from partwise.runs.stored_models import ModelSet, model_set, models_of
from partwise.runs.trials import TRIAL
from partwise.shuffle.plan import ShardedRows
from partwise.sources.derived import sampled
from partwise.sources.descriptions import Source
from partwise.sources.opening import open_source
from partwise.tables.keys.partition_keys import (
    KeyColumn,
    check_key_classes,
    key_columns,
    key_identities,
)
from partwise.trainers import HoldoutTrainer, resolve_trainer
from partwise.transformers.collection import KEY, TransformersExport, tabulate
from partwise.transformers.works import TransformersWork

_SHOWN = 3


def prepare_export(
    call: ExportCall,
    source: Source,
    training: Run,
    *,
    trainer: HoldoutTrainer | None = None,
    seed: int = 0,
    null_keys: NullKeys = "error",
) -> Plan:
    """Return the plan of an export run: its work, and where the models of each shard stand.

    `trainer` is the built-in one of the training, which says which rows it held out; None: it was
    another function. The seed is that of the training, which drew these rows.
    """
    source, keys = _keyed_as(training, training, source)
    serde = resolve_serde(call.serde)
    proof = _proof(call, trainer)
    check_has_models(training, takes_exports=False)
    check_key_classes(training.key_columns, keys, f"the training run {training.run_id!r}")
    models = trained_models(training, serde, of_all_rows=False)
    if proof.exporter is None:
        # A native serde is named for the library of its models.
        check_formats(call.format, models.serdes, call.options)
    work = ExportWork(
        format=call.format,
        options=call.options,
        proof=proof,
        serde=serde,
        training_run_id=training.run_id,
    )
    return plan_of(
        replace(call, training_run_id=training.run_id, serde=serde),
        source,
        keys,
        work,
        function=proof.inputs,
        seed=seed,
        null_keys=null_keys,
        models=(models,),
        check_sharded=partial(check_coverage, models),
    )


def _keyed_as(run: Run, training: Run, source: Source) -> tuple[Source, tuple[KeyColumn, ...]]:
    """Return rows with the keys of a run's models, and the key columns.

    One model is proved on some rows of all: they are of rank 0 or of the best trial, which has it.
    """
    if not has_one_model(training):
        source, _, keys = keys_of(source, run.document.partition_by, run.key_columns)
        return source, keys
    if training.best is None:
        some = sampled(source, RANK, 0)
    else:
        some = sampled(source, TRIAL, training.best.number)
    return some, key_columns(some.schema, some.schema.names[-1:])


def _proof(call: ComparedCall, trainer: HoldoutTrainer | None = None) -> Proof:
    """Return how files are proved; without a trainer no row counts as held out."""
    return Proof(
        validation=call.validation,
        rows=ComparedRows(trainer=trainer, most=call.validation.most_rows),
        inputs=resolve_trainer(call.example_inputs) if call.example_inputs else None,
        exporter=resolve_exporter(call.exporter or ""),
    )


def check_exports(exports: Run) -> str:
    """Return the ID of the training run whose exports a run holds: they can be proved again."""
    training_run_id = exports.document.training_run_id
    if exports.kind == "export-transformers":
        raise InputError(
            f"The run {exports.run_id!r} is one of export_transformers, whose files were proved "
            "as they were made: `partwise transformers check` proves one again."
        )
    if exports.kind != "export" or training_run_id is None:
        raise InputError(
            f"The run {exports.run_id!r} is of the kind {exports.kind!r}; export_run_id names a "
            "run of export_models."
        )
    return training_run_id


def prepare_validation(
    call: ValidateCall,
    source: Source,
    exports: Run,
    training: Run,
    *,
    null_keys: NullKeys = "error",
) -> Plan:
    """Return the plan of a validation run, and where the exports of each shard are."""
    source, keys = _keyed_as(exports, training, source)
    serde = resolve_serde(call.serde)
    proof = _proof(call)
    check_key_classes(exports.key_columns, keys, f"the export run {exports.run_id!r}")
    files = models_of(exports.ledger)
    if not files.num_rows:
        raise ModelNotFoundError(
            f"The export run {exports.run_id!r} ({exports.status.value}) has published nothing; "
            f"partwise runs show {exports.run_id} --failures says why."
        )
    models = model_set(exports, files)
    for name in models.serdes:
        refuse_program(name, call.format)
    trained_models(training, serde, of_all_rows=False)
    work = ValidateWork(proof=proof, serde=serde, export_run_id=exports.run_id, format=call.format)
    return plan_of(
        replace(call, export_run_id=exports.run_id, serde=serde),
        source,
        keys,
        work,
        function=proof.inputs,
        null_keys=null_keys,
        models=(models,),
        check_sharded=partial(check_coverage, models),
    )


def prepare_collection(call: TransformersCall, exports: Sequence[TransformersExport]) -> Plan:
    """Return the plan of a run that exports models of transformers, each a partition."""
    source = open_source(tabulate(exports))
    call = replace(call, models=[export.model_dump(mode="json") for export in exports])
    keys = key_columns(source.schema, [KEY])
    plan = plan_of(call, source, keys, TransformersWork())
    # The rows are in memory, but made of the arguments: the call can be repeated all the same.
    intent = replace(plan.intent, call=plan.intent.call_known, call_obstacle=None, call_known=None)
    return replace(plan, intent=intent)


def check_coverage(models: ModelSet, sharded: ShardedRows) -> None:
    """See to it that no model is passed over for want of rows."""
    here = np.isin(
        models.models["hash"].to_numpy(), key_identities(sharded.keys, sharded.key_hashes)
    )
    missing = models.models["owner"].filter(pa.array(~here)).to_pylist()
    if missing:
        raise InputError(
            f"The data has no rows for {len(missing):,} of the {len(here):,} models of "
            f"{models.title}, such as {', '.join(sorted(missing)[:_SHOWN])}; a model is compared "
            "with its export on rows: pass data= that has some of each."
        )
