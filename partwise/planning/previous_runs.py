"""The models that keys had in earlier runs, for those without one in the run that a call names.

Earlier runs are those of the same deployment, as their IDs tell: nightly-2026-11-26 and
nightly-2026-11-25 differ in numbers alone. Which ones are asked is found once, in the driver. It
stands with the other models in the document of the run, so that a resume goes on with it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

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

    A run uses the same models for ever, in the order in which its document names them. So a resume
    asks the earlier runs that it has asked. An overwrite asks those that a new run would: one that
    it needs no more keeps its place, without models, or with all that a fallback has. Where it
    would ask others it is another run: as it is claimed, that is refused.

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
    run_id = first.name.removeprefix(RUN_SCHEME)
    places = _places(call, store, _alike(run_id))
    overwrites = call.on_existing_artifacts == "overwrite"

    def opened(name: str) -> ModelSet:
        try:
            return open_models(name, store, call.format, used.reader)
        except RunNotFoundError:
            if not overwrites:
                raise
            return replace(first, name=name, models=first.models.slice(0, 0))

    found: list[ModelSet] = []
    if places is None or overwrites:
        earlier = _models_of_runs(earlier_runs(Run.open(run_id, store), MOST_RUNS), call, used)
        found = [models for models in _of_other_keys(first, earlier) if models.models.num_rows]
    asked, own = ({models.name: models for models in each} for each in (found, others))
    left = [own.get(name) or opened(name) for name in places or () if name not in asked]
    sets = {models.name: models for models in _of_other_keys(first, [*found, *left])}
    if places is not None:
        kept = [own.get(name) or sets[name] for name in places]
        giving = {
            models.name: models for models in _of_other_keys(first, kept) if models.models.num_rows
        }
        # Else one of them worked later than the first, is out of reach, or answers for another.
        if not overwrites or [*map(_size, giving.values())] == [*map(_size, asked.values())]:
            found, asked = kept, giving
    # A fallback keeps the models of all keys: one of the first may turn out to be damaged.
    found = [own.get(models.name, models) for models in found]
    names = {models.name for models in found}
    others = [models for models in others if models.name not in names]
    return replace(used, sets=(first, *found, *others)), _describe(first, [*asked.values()])


def _size(models: ModelSet) -> tuple[str, int]:
    return models.name, models.models.num_rows


def _describe(first: ModelSet, asked: Sequence[ModelSet]) -> str:
    """Return in words which runs are asked for keys that the first has no model of."""
    if not asked:
        return f"No earlier run has a model of a key that {first.title} has none of."
    told = [f"{models.name} ({counted(models.models.num_rows, 'key')})" for models in asked]
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


def _places(call: InferCall, store: Store, is_alike: Callable[[str], bool]) -> list[str] | None:
    """Return the earlier runs that the document of a call's run names; None: it is a new one."""
    try:
        run = Run.open(call.run_id, store)
    except RunNotFoundError:
        return None
    written = written_arguments(call.run_id, store)
    if written and written.get("on_missing_model") not in ASKS_PREVIOUS:
        return None
    others = run.document.models[1:]
    return [*takewhile(lambda name: is_alike(name.removeprefix(RUN_SCHEME)), others)]


def _models_of_runs(runs: Iterable[Run], call: InferCall, used: UsedModels) -> Iterator[ModelSet]:
    """Yield the models of runs, but of those that this call cannot read."""
    for run in runs:
        with suppress(PartwiseError):
            yield open_models(run.run_id, run.store, call.format, used.reader)


def _of_other_keys(first: ModelSet, sets: Iterable[ModelSet]) -> Iterator[ModelSet]:
    """Yield sets of models, each with those of keys that no set before it has."""
    seen = first.models["hash"].combine_chunks()
    for models in sets:
        hashes = models.models["hash"]
        is_new = pc.invert(pc.is_in(hashes, value_set=seen))
        yield replace(models, models=models.models.filter(is_new))
        seen = pa.concat_arrays([seen, hashes.filter(is_new).combine_chunks()])
