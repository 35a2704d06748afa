"""What `compare_models` decides before a row is touched: whose models, on which rows, by what."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.calls.partitions import CompareCall
from partwise.catalogs.contest import candidate_name
from partwise.catalogs.documents import CATALOG_SCHEME
from partwise.engine.compare_work import CompareWork
from partwise.engine.driver.plan import Plan
from partwise.engine.trained_models import TRAINED_ON
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import ColumnError, InputError, RunNotFoundError
from partwise.evaluation.scores import check_metric, find_metric
from partwise.models.serdes import ModelSerde, resolve_serde
from partwise.planning.earlier_rows import recipe_of
from partwise.planning.models import (
    arguments_of_before,
    check_first_keys,
    open_models,
    trained_models,
)
from partwise.planning.partitions import keys_of, plan_of, prepared
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.exports import check_has_models, has_one_model, training_of
from partwise.runs.run import Run
from partwise.runs.stored_models import ModelSet
from partwise.sources.descriptions import Source
from partwise.sources.opening import values_as
from partwise.store.store import Store
from partwise.tables.column_names import columns_there, names_in_words
from partwise.tables.keys.partition_keys import KeyColumn
from partwise.tables.roles import marked_labels
from partwise.trainers import default_predict, resolve_trainer
from partwise.trainers.resolving import check_takes

MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """Models that are compared with others."""

    reference: str
    """As it is written down: a version of a catalog, or a generation of a run."""
    models: ModelSet
    trainings: Mapping[tuple[str, int | None], Run]
    """The runs that trained them, by the run and generation in which the models stand; without
    those that were removed."""


def open_candidates(call: CompareCall, store: Store) -> list[Candidate]:
    """Return the candidates of a call; all of them are there.

    A resume goes on with the versions and generations that its run began with.

    Raises:
        InputError: They are too few, too many, or two are the same; or one is no name of models.
        RunNotFoundError, CatalogNotFoundError: There is no such run or version.
        ModelNotFoundError: A run has no model.
    """
    before = _before(arguments_of_before(call, store).get("candidates") or ())
    serde = resolve_serde(call.serde)
    found = [_open(before.get(text, text), store, serde) for text in call.candidates]
    names = [candidate_name(each.reference) for each in found]
    if not 2 <= len(set(names)) == len(names) <= MOST_CANDIDATES:
        raise InputError(
            f"candidates has {names_in_words(names) or 'nothing'}: give from two to "
            f"{MOST_CANDIDATES} that differ, such as catalog://sales and the ID of a run."
        )
    return found


def _open(text: str, store: Store, serde: ModelSerde | None) -> Candidate:
    """Return the models that a text names: of a catalog, or of a run by its ID."""
    name, _, form = text.partition("#")
    if name.startswith(CATALOG_SCHEME) and form in ("", "onnx"):
        models = open_models(name, store, "onnx" if form else "native", serde)
        reference = models.name + ("#onnx" if form else "")
        return Candidate(reference=reference, models=models, trainings=_trainings(models, store))
    run = run_of(text, store)
    check_has_models(run, takes_exports=True)
    # Of a run that never was complete, no generation stays as it is.
    shown = "" if run.shown is None else f"@{run.shown.generation}"
    return Candidate(
        reference=f"{RUN_SCHEME}{run.run_id}{shown}",
        models=trained_models(run, serde, of_all_rows=has_one_model(run)),
        trainings={(run.run_id, None): training_of(run)},
    )


def run_of(text: str, store: Store) -> Run:
    """Return the run of a name such as night-3, run://night-3 or run://night-3@2."""
    run_id, _, generation = text.removeprefix(RUN_SCHEME).partition("@")
    if "#" in text or "://" in run_id or not (generation or "1").isdecimal():
        raise InputError(
            f"{text!r} names no models: give the ID of a run, such as night-3, or a catalog, such "
            "as catalog://sales, in a comparison also catalog://sales#onnx for its exports."
        )
    return Run.open(run_id, store, generation=int(generation) if generation else None)


def _before(written: Sequence[str]) -> dict[str, str]:
    """Return candidates as a run has written them down, by what they may be called."""
    names: dict[str, str] = {}
    for reference in written:
        base, _, rest = reference.partition("@")
        short = base + rest.lstrip("0123456789")
        names |= {short: reference, short.removeprefix(RUN_SCHEME): reference}
    return names


def _trainings(models: ModelSet, store: Store) -> dict[tuple[str, int | None], Run]:
    found = {}
    places = models.models.select(["run_id", "generation"])
    for row in places.group_by(places.column_names).aggregate([]).to_pylist():
        place = row["run_id"], row["generation"]
        with suppress(RunNotFoundError):
            found[place] = training_of(Run.open(place[0], store, generation=place[1]))
    return found


def prepare_comparison(
    call: CompareCall,
    source: Source,
    candidates: Sequence[Candidate],
    *,
    reads: Sequence[str] | None = None,
    earlier_keys: Sequence[KeyColumn] = (),
    packages: ResolvedEnvironment | None = None,
) -> Plan:
    """Return the plan of a comparison, checked as far as it can be before any row is read.

    `reads` are the columns that all trainings have looked at, so that rows are known as those of a
    training; None: they looked at others, or nobody knows. `earlier_keys` and `packages` are as
    `prepare_training` takes them.
    """
    serde = resolve_serde(call.serde)
    predicts: Any = resolve_trainer(call.predict) if call.predict else default_predict
    check_takes(predicts, "data", "model", "context")
    metric = find_metric(call.metric, call.direction, resolve_trainer)
    check_metric(metric, None, is_backtest=False)
    for each in candidates:
        for run in each.trainings.values():
            source = values_as(source, recipe_of(run))
    trained = next((each.models for each in candidates if each.models.key_columns), None)
    source, names, keys = keys_of(
        source, call.partition_by, earlier_keys if trained is None else trained.key_columns
    )
    for each in candidates:
        check_first_keys(each.models.title, each.models.key_columns, names, keys)
    label = label_of(call.label, source.schema)
    call = replace(
        prepared(call, names, keys),
        candidates=[each.reference for each in candidates],
        label=label,
        direction="maximize" if metric.maximized else "minimize",
        serde=serde,
    )
    work = CompareWork(
        candidates=tuple(candidate_name(each.reference) for each in candidates),
        predict=predicts,
        serde=serde,
        metric=metric,
        label=label,
    )
    sets = [each.models for each in candidates]
    if not call.allow_training_rows:
        sets = [_with_fingerprints(each, keys) for each in candidates]
    plan = plan_of(
        call,
        source,
        keys,
        work,
        function=predicts,
        packages=packages,
        models=tuple(sets),
        compares_models=True,
    )
    known = set(source.schema.names)
    columns = list(dict.fromkeys([*names, *(reads or ())]))
    if reads is None or call.predict or label not in columns or not known.issuperset(columns):
        return plan
    return replace(plan, source=source.narrowed(columns), reads=frozenset(reads))


def label_of(given: str, schema: pa.Schema) -> str:
    """Return the column that is predicted: the one that is given, or that the rows mark as it."""
    marked = marked_labels(schema)
    if not given and len(marked) != 1:
        raise ColumnError(
            "No label was given, and the rows mark none as theirs, or several: name the column "
            "that is predicted, as label= or --label."
        )
    label = given or marked[0]
    if label not in schema.names:
        raise ColumnError(f"The label {label!r} is missing; {columns_there(schema.names, label)}")
    return label


def _with_fingerprints(candidate: Candidate, keys: Sequence[KeyColumn]) -> ModelSet:
    """Return a set whose models say which rows they were trained on, as far as that is known.

    Only of models with the same key columns: the rows of others are those of several keys.
    """
    models = candidate.models.models
    known = pa.chunked_array([pa.nulls(models.num_rows, pa.string())])
    if tuple(candidate.models.key_columns) == tuple(keys):
        for (run_id, generation), run in candidate.trainings.items():
            ledger = run.ledger.select(["partition_id", "fingerprint"])
            places = pc.index_in(models["owner"], ledger["partition_id"].combine_chunks())
            ours = pc.equal(models["run_id"], run_id)
            if generation is not None:
                ours = pc.and_(ours, pc.equal(models["generation"], generation))
            known = pc.if_else(ours, ledger["fingerprint"].take(places), known)
    return replace(candidate.models, models=models.append_column(TRAINED_ON, known))
