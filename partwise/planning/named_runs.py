"""Which run a call means by "latest", or by a pattern such as nightly-*.

It is found once, in the driver. What is written down is the ID of the run that was taken, as if the
call had named it, so that a resume goes on with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from partwise.calls.call import Call
from partwise.calls.partitions import InferCall
from partwise.choices import ASKS_PREVIOUS
from partwise.errors import RunNotFoundError
from partwise.planning.models import written_arguments
from partwise.runs.contents import list_runs
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.earlier_runs import last_work, newest_runs
from partwise.runs.exports import exported_as
from partwise.runs.kinds import KINDS
from partwise.runs.run import Run
from partwise.store.store import Store

LATEST = "latest"
NAMES_RUN = ("training_run_id", "export_run_id", "inference_run_id", "models")
"""Fields of calls that name a run, or models: an ID, "latest", a pattern, or a template of one."""
NAME_RUNS = ("fallback", "candidates")
"""Those that name several."""

C = TypeVar("C", bound=Call)


def with_named_runs(call: C, store: Store) -> tuple[C, list[str]]:
    """Return a call with the IDs of runs in place of "latest" and of patterns.

    A run that is gone on with has the ones that it began with.

    Returns:
        The call, and a sentence for each name that says which run was taken.

    Raises:
        RunNotFoundError: No run of the store is meant.
    """
    if not (named := names_open_run(call)):
        return call, []
    # Where the run must be new it is refused, or a flow run that begins once more goes on with it.
    goes_on = call.on_existing_artifacts != "overwrite"
    before = written_arguments(call.run_id, store) if goes_on else {}
    sentences: list[str] = []
    found: dict[str, Any] = {}
    for name in named:
        texts = _texts(call, name)
        written = before.get(name) or ()
        earlier = [written] if isinstance(written, str) else list(written)
        if before.get("on_missing_model") in ASKS_PREVIOUS:
            # The runs before stand before what the call itself asks next.
            earlier = earlier[-len(texts) :]
        if len(earlier) != len(texts):
            earlier = [None] * len(texts)
        taken = [
            _taken(call, store, name, text, was, sentences) if _is_open(text) else text
            for text, was in zip(texts, earlier, strict=True)
        ]
        found[name] = taken if name in NAME_RUNS else taken[0]
    return replace(call, **found), sentences


def names_open_run(call: Call) -> list[str]:
    """Return the fields of a call that name a run by "latest" or a pattern."""
    fields = (*NAMES_RUN, *NAME_RUNS)
    return [name for name in fields if any(map(_is_open, _texts(call, name)))]


def _texts(call: Call, name: str) -> list[Any]:
    """Return what a call has in a field that names one run, or several."""
    value = getattr(call, name, None)
    return list(value or ()) if name in NAME_RUNS else [value]


def _is_open(text: Any) -> bool:
    """Whether a name does not say itself which run is meant."""
    if not isinstance(text, str):
        return False
    name = text.removeprefix(RUN_SCHEME)
    return "://" not in name and (name == LATEST or "*" in name or "?" in name)


def _taken(
    call: Call, store: Store, name: str, text: str, earlier: Any, sentences: list[str]
) -> str:
    """Return what a name stands for, in its own form, and add the sentence that says so."""
    if isinstance(earlier, str) and earlier:
        sentences.append(f"{name}={text!r}: the run {call.run_id!r} goes on with {earlier!r}.")
        return earlier
    scheme = RUN_SCHEME if text.startswith(RUN_SCHEME) else ""
    pattern = text.removeprefix(RUN_SCHEME)
    kinds, fits = _wanted(call, name)
    if pattern == LATEST and LATEST in list_runs(store):
        return text  # A run has that very ID, and calls of it mean this run.
    run = newest_run(store, fits, "*" if pattern == LATEST else pattern)
    last = None if run is None else last_work(run)
    if run is None or run.shown is None or last is None:
        raise RunNotFoundError(
            f"{name}={text!r} means the newest run of {kinds} "
            f"{'' if pattern == LATEST else 'whose ID is of this pattern '}that is complete and "
            f"has done a partition, and there is none in {store.url}."
        )
    done = run.shown.counts.get("DONE", 0)
    ended = f"{last.finished_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    sentences.append(
        f"{name}={text!r} is the run {run.run_id!r} ({run.kind}, {run.shown.status.value}, "
        f"{done:,} DONE, complete since {ended})."
    )
    return f"{scheme}{run.run_id}"


def _wanted(call: Call, name: str) -> tuple[str, Callable[[Run], bool]]:
    """Return which runs can be meant in a field of a call: in words, and as a test."""
    if name == "inference_run_id":
        return "run_inference", lambda run: run.kind == "infer"
    if name == "export_run_id":
        return "export_models", lambda run: run.kind == "export"
    form = call.format if isinstance(call, InferCall) else "native"
    if form != "native":
        return (
            f"export_models to {form}",
            lambda run: run.kind == "export" and form in exported_as(run),
        )
    flows: Sequence[str] = [kind.flow for kind in KINDS.values() if kind.models]
    return " or ".join(flows), lambda run: bool(KINDS[run.kind].models)


def newest_run(store: Store, fits: Callable[[Run], bool], pattern: str = "*") -> Run | None:
    """Return the first of `newest_runs` whose ID is of a pattern; None: there is none."""
    found = newest_runs(store, fits, lambda run_id: fnmatchcase(run_id, pattern))
    return found[0] if found else None
