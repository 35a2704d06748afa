"""What an attempt of a gang goes on from: the driver's question, asked once for all ranks."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from partwise.errors import InputError
from partwise.gangs.spec import GangSpec
from partwise.runs.checkpoints import CHECKPOINTS, checkpoint_order, complete_checkpoints
from partwise.runs.documents import attempt_file, is_run_id, run_path
from partwise.store.store import Store


def begin_attempt(spec: GangSpec, number: int) -> GangSpec:
    """Return the gang as the ranks of an attempt are told of it: all go on from one checkpoint.

    Args:
        spec: The gang.
        number: Of the attempt, from 1.

    Raises:
        InputError: The run that the caller named has no checkpoint.
    """
    if not spec.keeps_checkpoints:
        return replace(spec, resume_from="")
    if number > 1:
        # Before it is asked what there is: a rank of an earlier attempt that was given up, and
        # lives, sees this behind each checkpoint that it keeps, and then removes none.
        path = run_path(spec.run_id, attempt_file(spec.generation, number))
        spec.store.create(path, b"begun\n")
    generations = (*spec.resumable, spec.generation)
    found = resume_point(spec.store, spec.run_id, generations, spec.resume_from)
    return replace(spec, resume_from=found)


def newest_checkpoint(store: Store, run_id: str, generations: Collection[int]) -> str:
    """Return the path of the newest complete checkpoint, relative to the store; "": there is none.

    Args:
        store: Where the run is.
        run_id: The run.
        generations: Those that may have left it; an empty collection: any.
    """
    root = run_path(run_id, CHECKPOINTS)
    for name in reversed(complete_checkpoints(store, root)):
        if not generations or checkpoint_order(name)[0] in generations:
            return f"{root}/{name}"
    return ""


def resume_point(
    store: Store, run_id: str, generations: Collection[int], resume_from: str = ""
) -> str:
    """Return what an attempt goes on from, for `StoreCheckpoints`; "": it starts afresh.

    The driver asks once for each attempt: ranks that looked for themselves might find two.

    Args:
        store: Where the run is.
        run_id: The run.
        generations: Its own, and earlier ones of the same function and rows.
        resume_from: What the caller named, for an attempt that finds no checkpoint: another run of
            this store, of which the newest checkpoint is taken; a folder that all workers see; or
            the URL of a folder of files.

    Raises:
        InputError: The run that the caller named has no checkpoint.
    """
    own = newest_checkpoint(store, run_id, generations)
    if own or not resume_from:
        return own
    if not is_run_id(resume_from) or Path(resume_from).is_dir():
        return Store.parse(resume_from).url
    found = newest_checkpoint(store, resume_from, ())
    if not found:
        raise InputError(
            f"resume_from={resume_from!r}: the run has no checkpoint in {store.url}, and there is "
            "no folder of this name; name a run that has one, a folder, or a URL."
        )
    return found
