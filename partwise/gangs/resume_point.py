"""What an attempt of a gang goes on from: the driver's question, asked once for all ranks."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from partwise.errors import InputError, SignatureError
from partwise.gangs.spec import GangSpec
from partwise.runs.checkpoints import (
    CHECKPOINTS,
    check_checkpoint,
    checkpoint_order,
    complete_checkpoints,
)
from partwise.runs.documents import attempt_file, is_run_id, run_path
from partwise.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """What an attempt goes on from."""

    place: str = ""
    """A checkpoint, relative to the store, or a folder or URL that the caller named; "": nothing,
    it starts afresh."""
    sha256: str = ""
    """Of the checkpoint's document, where signing keys are configured."""
    refused: tuple[str, ...] = ()
    """Why newer checkpoints do not count, a sentence for each."""


def begin_attempt(spec: GangSpec, number: int) -> GangSpec:
    """Return the gang as the ranks of an attempt know it: all go on from one checkpoint.

    `number` is the attempt's, from 1.

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
    return replace(spec, resume_from=found.place, resume_sha256=found.sha256)


def newest_checkpoint(store: Store, run_id: str, generations: Collection[int]) -> ResumePoint:
    """Return the newest complete checkpoint that is signed, or needs no signature.

    `generations` may have left it; an empty collection: any.
    """
    root = run_path(run_id, CHECKPOINTS)
    refused: list[str] = []
    for name in reversed(complete_checkpoints(store, root)):
        if generations and checkpoint_order(name)[0] not in generations:
            continue
        try:
            sha256 = check_checkpoint(store, root, name)
        except FileNotFoundError:
            continue  # removed since it was listed
        except SignatureError as error:
            refused.append(str(error))
            continue
        return ResumePoint(place=f"{root}/{name}", sha256=sha256, refused=tuple(refused))
    return ResumePoint(refused=tuple(refused))


def resume_point(
    store: Store, run_id: str, generations: Collection[int], resume_from: str = ""
) -> ResumePoint:
    """Return what an attempt goes on from, for `StoreCheckpoints`.

    The driver asks once for each attempt: ranks that looked for themselves might find two.
    `generations` are its own, and earlier ones of the same function and rows. `resume_from` counts
    for an attempt that finds no checkpoint: another run of this store, of which the newest
    checkpoint is taken; a folder that all workers see; or the URL of a folder of files.

    Raises:
        InputError: The run that the caller named has no checkpoint.
        SignatureError: It has some, but none that a key of this process signed.
    """
    own = newest_checkpoint(store, run_id, generations)
    if own.place or not resume_from:
        return own
    if not is_run_id(resume_from) or Path(resume_from).is_dir():
        return replace(own, place=Store.parse(resume_from).url)
    found = newest_checkpoint(store, resume_from, ())
    if not found.place and found.refused:
        raise SignatureError(f"resume_from={resume_from!r}: {found.refused[0]}")
    if not found.place:
        raise InputError(
            f"resume_from={resume_from!r}: the run has no checkpoint in {store.url}, and there is "
            "no folder of this name; name a run that has one, a folder, or a URL."
        )
    return found
