"""What keeps files of a run when a newer generation has replaced them: its holds.

    <run>/held/sales-0003-<token>.json

A version of a catalog names models of many runs. Before it is there it creates a hold in each of
them, which names the files by itself: whoever tidies a run up reads its holds, and no catalog. A
hold counts while the document that it was created for is there and has its token, and for a day
while that is not there yet.

Whoever deletes files of a run has its lease when it looks for holds, and whoever creates the first
hold on a file has it too. So the hold comes first, and is found; or the deletion does, and the file
is seen to be gone.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal

from pydantic import Field

from partwise.errors import InputError, IntegrityError, RunFormatError, SignatureError
from partwise.formatting import counted
from partwise.runs.contents import READ_THREADS, objects_below
from partwise.runs.documents import BUNDLES, Document, generation_of, run_path
from partwise.runs.run import Run
from partwise.runs.steps import finish_earlier_steps
from partwise.store.lease import Lease
from partwise.store.signing import check_signed, unseal
from partwise.store.store import Store

HELD = "held"
UNUSED_FOR = timedelta(days=1)
"""How long a hold counts whose document is not there."""
_LEDGER_FILE = re.compile(r"generations/(\d{4,})\.ledger\.parquet")


class Hold(Document):
    """`held/*.json`: files of a run that are to stay."""

    format_version: int = 1
    sealed_since: ClassVar[int | None] = 1
    run_id: str
    name: str = Field(pattern=r"^[0-9A-Za-z_-]+$")
    """Its own, in the folder."""
    holder: str
    """For whom, as people are told: catalog://sales@3."""
    document: str = Field(pattern=r"^catalogs/[0-9A-Za-z_-]+/versions/\d{4,}\.json$")
    """The path in the store of what it was created for."""
    token: str = Field(pattern="^[0-9a-f]{16}$")
    """Random: that document has it."""
    files: tuple[str, ...]
    """Relative to the run: bundles, and the ledger that describes them."""
    created_at: datetime

    @property
    def path(self) -> str:
        """Where it lies, relative to the store."""
        return run_path(self.run_id, HELD, f"{self.name}.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """The holds of a run."""

    counting: tuple[Hold, ...]
    stale: tuple[str, ...]
    """Paths, relative to the store, of those that do not count."""

    @property
    def files(self) -> set[str]:
        """The files that are to stay, relative to the run."""
        return {name for hold in self.counting for name in hold.files}


def read_holds(store: Store, run_id: str) -> Holds:
    """Return the holds of a run.

    Raises:
        RunFormatError: One is damaged, so that nobody knows what it keeps.
        SignatureError: Keys are configured, and none of them signed it.
    """
    paths = objects_below(store, run_id, f"{HELD}/")
    # A run that a catalog draws on for a year has hundreds, and each is two requests.
    with ThreadPoolExecutor(READ_THREADS) as threads:
        found = list(threads.map(lambda path: _read_hold(store, path), paths))
    holds = list(zip(paths, found, strict=True))
    return Holds(
        counting=tuple(hold for _, hold in holds if isinstance(hold, Hold)),
        stale=tuple(path for path, hold in holds if hold == "stale"),
    )


def _read_hold(store: Store, path: str) -> "Hold | Literal['stale', 'gone']":
    try:
        content = store.read_document(path)
    except FileNotFoundError:
        return "gone"  # Its version was removed meanwhile.
    advice = (
        "It says what a catalog needs of the run: restore it from a backup, or delete it if "
        "no version of a catalog draws on the run."
    )
    try:
        check_signed(content, path, path, store)
        hold = Hold.from_bytes(content, path)
    except SignatureError as error:
        raise SignatureError(f"{error} {advice}") from error
    except RunFormatError as error:
        raise type(error)(f"{error} {advice}") from error
    if hold.path != path:
        raise RunFormatError(f"{path} belongs elsewhere, to {hold.path}. {advice}")
    return hold if _counts(store, hold) else "stale"


def _counts(store: Store, hold: Hold) -> bool:
    try:
        content = store.read_document(hold.document)
    except FileNotFoundError:
        pass
    else:
        # One that is damaged may be restored. Where the number was taken by another, whoever
        # created the hold cannot take it any more.
        return unseal(content) is None or hold.token.encode() in content
    try:
        touched = max(hold.created_at, store.modified(hold.path))
    except FileNotFoundError:
        return False
    return datetime.now(UTC) - touched < UNUSED_FOR


def holders_of(store: Store, run_id: str, freed: Collection[str] = ()) -> list[str]:
    """Return what draws on a run, but for holds whose paths are `freed`."""
    counting = read_holds(store, run_id).counting
    return sorted({hold.holder for hold in counting if hold.path not in freed})


def refuse_held(store: Store, run_id: str, freed: Collection[str] = ()) -> None:
    """Refuse to remove a run that others draw on, but for holds whose paths are `freed`.

    Raises:
        InputError: They do.
    """
    holders = holders_of(store, run_id, freed)
    if not holders:
        return
    more = f" and {counted(len(holders) - 3, 'more version')}" if len(holders) > 3 else ""
    raise InputError(
        f"The run {run_id!r} is drawn on by {', '.join(holders[:3])}{more}: retire its keys or "
        "roll back, and have `partwise catalog gc` remove the versions that still draw on it."
    )


def needed_files(files: Iterable[str]) -> tuple[str, ...]:
    """Return bundles of a run, with those of some of its ledgers that describe them, sorted."""
    given = set(files)
    ledgers = {int(match[1]): name for name in given if (match := _LEDGER_FILE.fullmatch(name))}
    bundles = given - set(ledgers.values())
    described = {
        ledgers[min(after)]
        for name in bundles
        if (after := [number for number in ledgers if number >= generation_of(name)])
    }
    return tuple(sorted(bundles | described))


def create_hold(store: Store, hold: Hold) -> None:
    """Create a hold on files that another hold keeps meanwhile."""
    store.create(hold.path, hold.to_bytes(hold.path, store))


def take_hold(store: Store, hold: Hold) -> Hold:
    """Create a hold on files that may be garbage by now, and on the ledger that readers see.

    Raises:
        RunNotFoundError: The run was removed.
        InputError: No generation of it is complete.
        IntegrityError: A file is gone.
        RunBusyError: Somebody works on the run, or took it over meanwhile.
    """
    run_id = hold.run_id
    # Before the lease, which would make the folder of a run that never was.
    Run.open(run_id, store)
    with Lease.acquire(store, run_path(run_id), gives_way=True) as lease:
        finish_earlier_steps(lease, store, run_id)
        run = Run.open(run_id, store)
        if run.shown is None:
            raise InputError(
                f"The run {run_id!r} ({run.status.value}) was never complete: resume it first."
            )
        _check_there(store, run_id, hold.files)
        files = needed_files([*hold.files, run.shown.ledger_file])
        taken = hold.model_copy(update={"files": files})
        create_hold(store, taken)
        # Whoever takes the run over from now on finds the hold. Who did before has not seen it.
        lease.check()
    return taken


def _check_there(store: Store, run_id: str, files: Sequence[str]) -> None:
    there = set(store.list(run_path(run_id, BUNDLES) + "/"))
    for name in files:
        if name.startswith(f"{BUNDLES}/") and run_path(run_id, name) not in there:
            raise IntegrityError(
                f"{name} of the run {run_id!r} is gone: the run was overwritten and tidied up "
                "since its models were chosen, or damaged. Choose among those of the run as it is "
                "now."
            )
