"""All that piles up in a store: what may go of it, and what keeps the rest."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from partwise.catalogs.documents import CATALOGS
from partwise.catalogs.garbage import collect_catalog_garbage
from partwise.catalogs.retention import (
    OldRun,
    RunGarbage,
    collect_rest,
    in_order_of_removal,
    old_runs,
    remove_all_old,
)
from partwise.datasets.garbage import collect_dataset_garbage
from partwise.datasets.manifest import DATASETS
from partwise.environments.cache import collect_environments
from partwise.errors import CatalogNotFoundError, PartwiseError
from partwise.formatting import counted, size
from partwise.runs.contents import list_runs
from partwise.runs.removal import Removal, measure
from partwise.shuffle.shard_cache import collect_shards
from partwise.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidying:
    """What is to go of a store, and what keeps the rest of what is old."""

    keep: int
    before: datetime
    versions: list[tuple[str, int]]
    """The files of versions of catalogs that go, with their sizes."""
    old: list[OldRun]
    going: dict[str, Removal]
    """What there is of each run that goes, those that use others before these."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each run that goes, in the same order."""
        return {run_id: each.size_bytes for run_id, each in self.going.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataGarbage:
    """Files of rows that nobody needs any more, with their sizes."""

    files: list[tuple[str, int]]
    why: dict[str, str] = field(default_factory=dict)
    """Datasets that could not be looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """What went of a store, or would go."""

    dry_run: bool
    versions: list[tuple[str, int]]
    """Files of versions of catalogs, with their sizes."""
    runs: dict[str, int]
    """Bytes of each run."""
    kept: dict[str, str]
    """Old runs that stay, and why."""
    rest: list[RunGarbage]
    """Files of other runs."""
    data: DataGarbage
    environments: int
    """How many of this machine, not of the store."""

    @property
    def lines(self) -> list[str]:
        """What is said of it."""
        verb = "would be deleted" if self.dry_run else "deleted"
        found = [each for run in self.rest if run.garbage for each in run.garbage.files]
        waiting = [each for run in self.rest if run.garbage for each in run.garbage.waiting]
        lines = [f"{counted(len(self.runs), 'run')} {verb}, {size(sum(self.runs.values()))}"]
        for files, what in (
            (self.versions, "of old versions of catalogs"),
            (found, "of other runs"),
            (self.data.files, "of registrations that died, and of rows on their way to workers"),
        ):
            total = size(sum(each for _, each in files))
            lines.append(f"{counted(len(files), 'file')} {what} {verb}, {total}")
        lines.append(f"{counted(self.environments, 'environment')} of this machine {verb}")
        lines += [f"not looked into: {run.run_id}: {run.why}" for run in self.rest if run.why]
        lines += [f"not looked into: dataset {name}: {why}" for name, why in self.data.why.items()]
        if waiting:
            them, total = counted(len(waiting), "more file"), size(sum(each for _, each in waiting))
            lines.append(f"{them} of other runs, {total}: once readers have had their day")
        return lines


def plan_tidying(store: Store, *, keep: int, before: datetime, pattern: str = "*") -> Tidying:
    """Return what goes of a store: as `old_runs` says, and of catalogs the old versions."""
    versions = collect_catalogs(store, keep=keep, before=before, dry_run=True)
    freed = {path for path, _ in versions}
    old = old_runs(store, keep=keep, before=before, pattern=pattern, freed=freed)
    going = {each: measure(store, each, freed) for each in in_order_of_removal(store, old)}
    return Tidying(keep=keep, before=before, versions=versions, old=old, going=going)


def tidy(store: Store, planned: Tidying, *, dry_run: bool) -> Tidied:
    """Remove what is to go, or only say what else would."""
    versions = planned.versions
    kept = {each.run_id: each.kept_by for each in planned.old if each.kept_by}
    if not dry_run:
        versions = collect_catalogs(store, keep=planned.keep, before=planned.before, dry_run=False)
        kept |= remove_all_old(store, planned.going)
    others = [each for each in list_runs(store) if each not in planned.going]
    # Of this machine's disk: where the schedule tidies up, its runs have built them.
    environments = collect_environments(datetime.now(UTC) - planned.before, dry_run=dry_run)
    return Tidied(
        dry_run=dry_run,
        versions=versions,
        runs={name: each for name, each in planned.sizes.items() if name not in kept},
        kept=kept,
        rest=collect_rest(store, others, dry_run=dry_run),
        data=collect_data(store, planned.before, dry_run=dry_run),
        environments=len(environments),
    )


def collect_data(store: Store, before: datetime, *, dry_run: bool) -> DataGarbage:
    """Remove what dead registrations left of datasets, and rows that runs handed to workers.

    Versions of datasets stay: which of them somebody reads, no store knows.
    """
    files: list[tuple[str, int]] = []
    why: dict[str, str] = {}
    for name in store.list_folder(DATASETS):
        try:
            files += collect_dataset_garbage(store, name, dry_run=dry_run)
        except PartwiseError as error:
            why[name] = str(error)
    # A run may be at work on them, which holds no lock.
    age = max(datetime.now(UTC) - before, timedelta(days=1))
    files += collect_shards(store, age, dry_run=dry_run)
    return DataGarbage(files=files, why=why)


def collect_catalogs(
    store: Store, *, keep: int, before: datetime, dry_run: bool
) -> list[tuple[str, int]]:
    """Remove old versions of all catalogs of a store, as `collect_catalog_garbage` does."""
    age = datetime.now(UTC) - before
    found: list[tuple[str, int]] = []
    for name in store.list_folder(CATALOGS):
        # Whose first promotion died before it had written anything.
        with suppress(CatalogNotFoundError):
            found += collect_catalog_garbage(
                store, name, keep=keep, older_than=age, dry_run=dry_run
            )
    return found
