"""The model of a partition as a file of its own, in the format of its library."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from partwise.errors import ModelNotFoundError
from partwise.runs.bundle import StoredArtifact, files_of_model
from partwise.runs.local_file import check_free, new_file
from partwise.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A file with a model, or with a part of one."""

    path: Path
    size_bytes: int
    serde: str
    """Which one reads it; empty for what the model's file itself refers to."""


def write_model_file(run: Run, name: str, to: Path, *, overwrite: bool = False) -> list[ModelFile]:
    """Write the model of a partition to a file, as it is kept.

    A file that the model refers to by name stands beside it under that name. `name` is the
    partition_id; `to` may be a folder, where the file gets its own name.
    """
    stored = run.stored_artifacts(name)
    files = files_of_model(stored)
    if not files:
        has = ", ".join(artifact.filename for artifact in stored) or "none"
        raise ModelNotFoundError(
            f"The partition {name} of the run {run.run_id!r} has no model; its artifacts: {has}."
        )
    model, *others = files
    path = to / _own_name(model) if to.is_dir() else to
    targets = [(model, path), *((each, path.with_name(_own_name(each))) for each in others)]
    for _, target in targets:
        check_free(target, overwrite=overwrite)
    # What it refers to first: so there is never a model without it.
    for artifact, target in reversed(targets):
        content = run.read_artifact(name, artifact.filename)
        with new_file(target, overwrite=overwrite) as temporary:
            temporary.write_bytes(content)
    return [
        ModelFile(path=target, size_bytes=artifact.size_bytes, serde=artifact.serde)
        for artifact, target in targets
    ]


def _own_name(artifact: StoredArtifact) -> str:
    return PurePosixPath(artifact.filename).name
