"""The models that keys had in earlier runs, for those without one in the run that a call names.

Earlier runs are those of the same deployment, as their IDs tell: nightly-2026-11-26 and
nightly-2026-11-25 differ in numbers alone. Which ones are asked is found once, in the driver. It
stands with the other models in the document of the run, so that a resume goes on with it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from partwise.calls.partitions import InferCall
from partwise.choices import ASKS_PREVIOUS
from partwise.errors import InputError, PartwiseError, RunNotFoundError
from partwise.formatting import counted
from partwise.planning.models import UsedModels, open_models, written_arguments
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.earlier_runs import alike, earlier_runs
from partwise.runs.run import Run
from partwise.runs.stored_models import ModelSet
from partwise.store.store import Store

MOST_RUNS = 30
"""So many earlier runs are looked at: a month of nights."""


def with_previous_models(used: UsedModels, call: InferCall, store: Store) -> tuple[UsedModels, str]:
    """Return the models of a call, with those that other keys had in earlier runs asked second.

    Returns:
        The models, and a sentence about the runs that are asked; "": the call asks for none.

    Raises:
        InputError: It uses a catalog, or a run whose ID says not which are the earlier ones.
    """
    if call.on_missing_model not in ASKS_PREVIOUS:
        return used, ""
    first, *others = used.sets
    if not first.name.startswith(RUN_SCHEME):
        raise InputError(
            f"on_missing_model asks earlier runs, and the models are those of {first.name}: a "
            "catalog keeps the model that a key had. Leave on_missing_model out."
        )
    is_alike = _alike(first.name.removeprefix(RUN_SCHEME))
    names = _names_of_before(call, store, is_alike)
    if names is None or call.on_existing_artifacts == "overwrite":
        earlier = earlier_runs(Run.open(first.name.removeprefix(RUN_SCHEME), store), MOST_RUNS)
        runs = [f"{RUN_SCHEME}{run.run_id}" for run in earlier]
        opened = _models_of_runs(runs, call, used, store)
        previous = [models for models in _of_other_keys(first, opened) if models.models.num_rows]
        if names is not None:

            def reopened(name: str) -> ModelSet:
                try:
                    return open_models(name, store, call.format, used.reader)
                except RunNotFoundError:
                    return replace(first, name=name, models=first.models.slice(0, 0))

            previous = _in_places(previous, names, first, [each.name for each in others], reopened)
    else:
        kept = (open_models(name, store, call.format, used.reader) for name in names)
        previous = [*_of_other_keys(first, kept)]
    asked = {models.name for models in previous}
    others = [models for models in others if models.name not in asked]
    sentence = _describe(first, previous)
    return replace(used, sets=(first, *previous, *others)), sentence


def _describe(first: ModelSet, previous: Sequence[ModelSet]) -> str:
    """Return in words which runs are asked for keys that the first has no model of."""
    previous = [models for models in previous if models.models.num_rows]
    if not previous:
        return f"No earlier run has a model of a key that {first.title} has none of."
    told = [f"{models.name} ({counted(models.models.num_rows, 'key')})" for models in previous]
    return f"Keys without a model in {first.title} have those of {', '.join(told)}."


def _alike(run_id: str) -> Callable[[str], bool]:
    """Return what tells the IDs that differ from one in their numbers alone."""
    is_alike = alike(run_id)
    if is_alike is None:
        raise InputError(
            f"on_missing_model asks runs before {run_id!r}, which differ from it in the numbers of "
            "their IDs alone, as nightly-2026-11-25 from nightly-2026-11-26; of this ID none can "
            "be known: name them in fallback, as run://RUN."
        )
    return is_alike


def _names_of_before(
    call: InferCall, store: Store, is_alike: Callable[[str], bool]
) -> list[str] | None:
    """Return the earlier runs that the run of a call has asked; None: it has not begun so."""
    try:
        run = Run.open(call.run_id, store)
    except RunNotFoundError:
        return None
    written = written_arguments(call.run_id, store)
    if written and written.get("on_missing_model") not in ASKS_PREVIOUS:
        return None
    names = []
    for name in run.document.models[1:]:
        if not (name.startswith(RUN_SCHEME) and is_alike(name.removeprefix(RUN_SCHEME))):
            break
        names.append(name)
    return names


def _in_places(
    previous: Sequence[ModelSet],
    names: Sequence[str],
    first: ModelSet,
    others: Sequence[str],
    reopened: Callable[[str], ModelSet],
) -> list[ModelSet]:
    """Return earlier models in the places that they have in a run which is overwritten.

    A run uses the same ones for ever, so that one which is not needed any more keeps its place,
    without models. Where one is asked that had no place, or one has models and would be asked no
    more, it is another run: as it is claimed, that is refused. `others` are asked after all of
    these, and may be earlier runs too.
    """
    found = {models.name: models for models in previous}
    places = list(names)
    while places and places[-1] in others and places[-1] not in found:
        places.pop()
    left = [name for name in places if name not in found]
    if [name for name in places if name in found] != [*found] or set(left) & set(others):
        return [*previous]
    # Not found may mean that it worked later than the first, or could not be looked at just now.
    for models in [*_of_other_keys(first, [*previous, *map(reopened, left)])][len(previous) :]:
        if models.models.num_rows:
            return [*previous]
        found[models.name] = models
    return [found[name] for name in places]


def _models_of_runs(
    names: Sequence[str], call: InferCall, used: UsedModels, store: Store
) -> Iterator[ModelSet]:
    """Yield the models of runs, but of those that this call cannot read."""
    for name in names:
        with suppress(PartwiseError):
            yield open_models(name, store, call.format, used.reader)


def _of_other_keys(first: ModelSet, sets: Iterable[ModelSet]) -> Iterator[ModelSet]:
    """Yield sets of models, each with those of keys that no set before it has."""
    seen = first.models["hash"].combine_chunks()
    for models in sets:
        hashes = models.models["hash"]
        is_new = pc.invert(pc.is_in(hashes, value_set=seen))
        yield replace(models, models=models.models.filter(is_new))
        seen = pa.concat_arrays([seen, hashes.filter(is_new).combine_chunks()])
