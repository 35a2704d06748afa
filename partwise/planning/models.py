"""Which models a call uses: those of a run or a catalog, and what is asked where there is none."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from partwise.calls.call import Call
from partwise.calls.partitions import InferCall
from partwise.catalogs.catalog import Catalog
from partwise.catalogs.documents import CATALOG_SCHEME
from partwise.choices import GOES_ON
from partwise.engine.fallbacks import Constant
from partwise.engine.infer_work import Level
from partwise.errors import InputError, ModelNotFoundError, RunNotFoundError
from partwise.models.export_options import ModelFormat
from partwise.models.serdes import PROGRAMS, SERDES, ModelSerde, resolve_serde, serde_by_name
from partwise.outcomes import RunStatus
from partwise.planning.earlier_rows import recipe_of
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.exports import (
    check_has_models,
    find_exports,
    has_one_model,
    ledger_of_models,
)
from partwise.runs.ledger import skip_reasons
from partwise.runs.run import Run
from partwise.runs.stored_models import ModelSet, model_set, models_of
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes
from partwise.trainers.ready.every import ReadyTrainer

Fallback = Constant | ReadyTrainer


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedModels:
    """What an inference asks for the model of a partition, in this order."""

    sets: tuple[ModelSet, ...]
    fallback: Fallback | None
    """Answers where none of them does."""
    recipe: Mapping[str, Any] | None
    """How the rows of the training were read; None: unknown."""
    reader: ModelSerde | None
    """Reads models that no native serde wrote."""

    @property
    def key_columns(self) -> tuple[KeyColumn, ...]:
        """Those of the first: the partitions of the inference have the same; none: any."""
        return self.sets[0].key_columns

    def check_keys(self, names: Sequence[str], keys: Sequence[KeyColumn]) -> None:
        """Refuse rows whose keys are not those of the first, or lack some of another."""
        first, *others = self.sets
        check_first_keys(first.title, first.key_columns, names, keys)
        here = {column.name: column for column in keys}
        for models in others:
            own = [column.name for column in models.key_columns]
            if missing := [name for name in own if name not in here]:
                raise InputError(
                    f"The models of {models.title} have the key columns {own}, and partition_by is "
                    f"{list(names)}, without {missing[0]!r}: a fallback has the same key columns, "
                    "some of them, or none."
                )
            check_key_classes(models.key_columns, [here[name] for name in own], models.title)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The sets as the work knows them."""
        return tuple(
            Level(
                name=models.name,
                title=models.title,
                key_columns=tuple(column.name for column in models.key_columns),
            )
            for models in self.sets
        )


def check_first_keys(
    title: str, theirs: Sequence[KeyColumn], names: Sequence[str], keys: Sequence[KeyColumn]
) -> None:
    """Refuse rows whose keys are not those of the models: none, where one model is for all."""
    own = [column.name for column in theirs]
    if own and own != list(names):
        raise InputError(
            f"partition_by is {list(names)}, and {title} was partitioned by {own}; pass the same "
            "columns in the same order."
        )
    check_key_classes(theirs, keys[: len(own)], title)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstModels:
    """What is known of the models that a call asks first before it is read where they stand."""

    title: str
    key_columns: tuple[KeyColumn, ...]
    recipe: Mapping[str, Any] | None


def first_models(call: InferCall, store: Store) -> FirstModels:
    """Return what is known at once of the models that a call asks first.

    Raises:
        InputError: See `models_of_call`.
        RunNotFoundError, CatalogNotFoundError: There is no such run or version.
    """
    name = _first_name(call)
    if name.startswith(CATALOG_SCHEME):
        catalog = Catalog.open(name, store)
        title = f"the catalog {catalog.reference!r}"
        recipe = _recipe_of_catalog(catalog)
        return FirstModels(title=title, key_columns=catalog.key_columns, recipe=recipe)
    run = Run.open(name.removeprefix(RUN_SCHEME), store)
    check_has_models(run, takes_exports=True)
    keys = () if has_one_model(run) else run.key_columns
    return FirstModels(title=f"the run {run.run_id!r}", key_columns=keys, recipe=recipe_of(run))


def _recipe_of_catalog(catalog: Catalog) -> Mapping[str, Any] | None:
    """Return how the rows of one of its trainings were read; None: nobody knows any more.

    Of one, as those of all have keys of the same classes, and a version may draw on many.
    """
    for drawn in catalog.runs:
        with contextlib.suppress(RunNotFoundError):
            return recipe_of(Run.open(drawn.run_id, catalog.store))
    return None


def _first_name(call: InferCall) -> str:
    if not call.training_run_id and not call.models:
        raise InputError("training_run_id is missing: name the run whose models are used.")
    if call.training_run_id and call.models:
        raise InputError(
            f"training_run_id={call.training_run_id!r} and models={call.models!r} are given: one "
            "says whose models are used; what is asked next goes into fallback."
        )
    return call.models or call.training_run_id


def models_of_call(call: InferCall, store: Store) -> UsedModels:
    """Return what a call uses; all of it is there and can be read.

    Raises:
        InputError: It names none, or two where one is meant.
        RunNotFoundError, CatalogNotFoundError: There is no such run, export or version.
        ModelNotFoundError: A run has no model.
    """
    names = [_first_name(call)]
    # A format that runs code when it is read is named by the call: by `serde`, or so.
    reader = resolve_serde(call.serde)
    if reader is None and call.format in PROGRAMS:
        reader = SERDES[call.format]()
    given = [_parsed(each) for each in call.fallback]
    answers = [each for each in given if not isinstance(each, str)]
    if answers and answers[0] is not given[-1]:
        raise InputError(
            f"fallback has {answers[0]!r} before its end: that answers for every partition, so "
            "that nothing after it would be asked."
        )
    value = getattr(answers[-1], "value", 0) if answers else 0
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise InputError(
            f"fallback is a whole number of {value.bit_length()} bits, and a column of predictions "
            "holds 64: write it with an exponent, such as 1e21."
        )
    names += [each for each in given if isinstance(each, str)]
    sets = tuple(open_models(name, store, call.format, reader) for name in names)
    recipe = first_models(call, store).recipe
    fallback = answers[0] if answers else None
    return UsedModels(sets=sets, fallback=fallback, recipe=recipe, reader=reader)


def _parsed(fallback: Any) -> str | Fallback:
    """Return a fallback as it is meant: the name of models, or what answers without any."""
    if isinstance(fallback, str):
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return Constant(value=kind(fallback))
        return fallback
    if isinstance(fallback, bool | int | float):
        return Constant(value=fallback)
    found: Fallback = fallback
    return found


def open_models(
    name: str, store: Store, form: ModelFormat = "native", serde: ModelSerde | None = None
) -> ModelSet:
    """Return the models that a name stands for, in a format.

    `name` is run://RUN or RUN, of a training run or of exports; catalog://NAME, or catalog://NAME@7
    for a version that is not the newest. `serde` reads models that no native serde wrote.

    Raises:
        RunNotFoundError, CatalogNotFoundError: There is no such run, export or version.
        ModelNotFoundError: The run has no model.
        SerdeError: A model can be read by no native serde, nor by `serde`.
    """
    if name.startswith(CATALOG_SCHEME):
        if form not in ("native", "onnx"):
            raise InputError(
                f"format is {form!r}, and a catalog has models as they were trained, or as they "
                'were exported to "onnx".'
            )
        found = Catalog.open(name, store).model_set(form)
        check_serdes(found, serde)
        return found
    run = Run.open(name.removeprefix(RUN_SCHEME), store)
    run = run if form == "native" else find_exports(run, form)
    check_has_models(run, takes_exports=True)
    return trained_models(run, serde, of_all_rows=has_one_model(run))


def trained_models(training: Run, serde: ModelSerde | None, *, of_all_rows: bool) -> ModelSet:
    """Return the models of a run, all of which can be read.

    `of_all_rows` makes its one model that of all partitions, whatever their keys.
    """
    models = models_of(ledger_of_models(training))
    if not models.num_rows:
        why = " yet; train it first"
        if training.status is RunStatus.SKIPPED:
            reasons = skip_reasons(training.ledger)
            why = f": every partition was skipped ({reasons}); train it on other rows"
        raise ModelNotFoundError(
            f"The training run {training.run_id!r} ({training.status.value}) has no model{why}, "
            "or pass the ID of another run."
        )
    found = model_set(training, models, of_all_rows=of_all_rows)
    check_serdes(found, serde)
    return found


def check_serdes(models: ModelSet, serde: ModelSerde | None) -> None:
    """See to it that models can be read."""
    for name in models.serdes:
        serde_by_name(name, serde)


def with_versions_of_before(call: InferCall, store: Store) -> InferCall:
    """Return a call with the versions of catalogs that its run has used, where it goes on.

    A version that is named stays: with another one than before, the partitions run again whose
    models are others.
    """
    before = arguments_of_before(call, store)
    named = [before.get("models"), *(before.get("fallback") or ())]
    versions = {name.partition("@")[0]: name for name in named if isinstance(name, str)}
    return replace(
        call,
        models=versions.get(call.models, call.models),
        fallback=[
            versions.get(each, each) if isinstance(each, str) else each for each in call.fallback
        ],
    )


def newer_versions(call: InferCall, pinned: InferCall, store: Store) -> list[str]:
    """Return a sentence for each catalog of which a resume goes on with an older version."""
    found = []
    pairs = zip([call.models, *call.fallback], [pinned.models, *pinned.fallback], strict=True)
    for given, used in pairs:
        if isinstance(used, str) and isinstance(given, str) and used != given:
            newest = Catalog.open(given, store).reference
            if newest != used:
                found.append(
                    f"The run {call.run_id!r} goes on with {used}, and {newest} is there: name it "
                    "to use that."
                )
    return found


def arguments_of_before(call: Call, store: Store) -> Mapping[str, Any]:
    """Return what the run that a call goes on with was called with; empty: there is none."""
    if call.on_existing_artifacts not in GOES_ON:
        return {}
    return written_arguments(call.run_id, store)


def written_arguments(run_id: str, store: Store) -> Mapping[str, Any]:
    """Return what a run was last called with; empty: there is no such run, or it was not begun."""
    try:
        run = Run.open(run_id, store)
    except RunNotFoundError:
        return {}
    return run.read_generation_document().arguments if run.generation else {}
