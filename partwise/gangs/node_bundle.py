"""What a node keeps of its ranks: logs, the model, and other files, in a bundle of the run."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from partwise.engine.failures import printable
from partwise.errors import InputError
from partwise.formatting import shortened
from partwise.gangs.folder_files import files_below
from partwise.gangs.rank_process import RankProcess
from partwise.gangs.rank_settings import MODEL_FOLDER, RankOutcome
from partwise.gangs.spec import RANK_KEY, GangSpec
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import LOG_FILENAME, BundleWriter, StoredArtifact, is_name_below
from partwise.runs.documents import BUNDLES, run_path, segment_file
from partwise.tables.keys.partition_keys import partition_id


def upload_node(
    spec: GangSpec,
    node: int,
    attempt: int,
    ranks: Sequence[RankProcess],
    outcomes: Sequence[RankOutcome | None],
) -> list[tuple[StoredArtifact, ...]]:
    """Write the bundle of a node, and return the artifacts of each rank.

    No ledger refers to it until the driver has written one: that is the commit.

    Raises:
        InputError: A file has too long a name.
        StoreError: The store refused to take it.
    """
    name = segment_file(node, spec.token, attempt, "zip")
    bundle = BundleWriter(f"{BUNDLES}/{name}")
    artifacts = []
    for rank, outcome in zip(ranks, outcomes, strict=True):
        key = partition_id(rank.rank, RANK_KEY)
        kept = [
            bundle.add(key, _storable(filename), path.read_bytes(), serde)
            for filename, path, serde in _files(rank, outcome)
        ]
        if log := rank.log.content():
            kept.append(bundle.add(key, LOG_FILENAME, log, ""))
        artifacts.append(tuple(kept))
    if not bundle.is_empty:
        spec.store.create(run_path(spec.run_id, bundle.path), bundle.close())
    return artifacts


def _files(rank: RankProcess, outcome: RankOutcome | None) -> Iterator[tuple[str, Path, str]]:
    """Yield name, path and serde of what a rank made; nothing of one that failed.

    Of the model and its folder only those of rank 0 count.
    """
    if outcome is None or outcome.status != PartitionStatus.DONE:
        return
    # A rank has one artifact of a name: what the function leaves in its folder gives way.
    taken = {LOG_FILENAME, *outcome.files}
    if outcome.model_file:
        path = Path(outcome.model_file)
        taken.add(path.name)
        yield path.name, path, outcome.serde
    for name, content in outcome.files.items():
        yield name, Path(content), ""
    if rank.rank != 0:
        return
    folder = Path(rank.directory, MODEL_FOLDER)
    for file in files_below(folder) if folder.exists() else ():
        if file.name not in taken:
            yield file.name, file.path, ""


def _storable(name: str) -> str:
    """Return a file's name as an artifact has it: bytes that are not text as escapes."""
    name = printable(name)
    if not is_name_below(name):
        raise InputError(
            f"The file {shortened(name)!r} cannot be kept: give it a relative name without '..', "
            "of at most 255 bytes between two '/' and 900 in all."
        )
    return name
