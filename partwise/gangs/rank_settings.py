"""What a node tells the process of a rank, and what that leaves behind for it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OUTCOME_FILE = "outcome.json"
ERROR_FILE = "error.pickle"
MODEL_FOLDER = "model"
WORK_FOLDER = "work"
STEPS_FILE = "steps"
"""What rank 0 has reported of its steps: a step and the watched metric on each line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """How a rank starts: JSON in a memory file, since it holds secrets and may be long."""

    token: str
    """What names of the rank's files in shared memory begin with."""
    directory: str
    """The rank's own folder."""
    node_directory: str
    """A folder that the ranks of the node share."""
    payload: str
    """A file with the cloudpickle bytes of a `GangPayload`."""
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    attempt: int
    addresses: Sequence[tuple[str, int]]
    exchange_address: tuple[str, int]
    key: str
    """The secret of the exchange, as hex digits."""
    threads: int
    gpus: Sequence[str] = ()
    run_id: str
    generation: int
    seed: int
    store: Mapping[str, Any]
    """The fields of the artifact store."""
    checkpoints: str
    """The folder of the run's checkpoints, relative to the store; empty: none are kept."""
    resume_from: str = ""
    """What `partwise.gangs.resume_point` returned for this attempt."""
    resume_sha256: str = ""
    checkpoint_key: str = ""
    """Signs the checkpoints of this attempt, and nothing else; empty: they are not signed."""
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Keys of stores and buckets that the worker was given, by URL."""
    log_fd: int = -1
    port_fd: int = -1
    """Holds the port of the rank."""
    listener_fd: int = -1
    """Where the exchange listens, of rank 0."""


def write_settings(settings: RankSettings) -> int:
    """Return a descriptor of a memory file that holds the settings."""
    descriptor = os.memfd_create("partwise-rank")
    os.write(descriptor, json.dumps(asdict(settings)).encode())
    return descriptor


def read_settings(given: Mapping[str, Any]) -> RankSettings:
    """Return what `write_settings` wrote, and close its file.

    Args:
        given: Has its descriptor as `settings_fd`, and those of `RankSettings` by their names.
    """
    descriptor = given["settings_fd"]
    # By its place: the writer's descriptor is the same open file, and stands at its end.
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.close(descriptor)
    values = json.loads(content)
    values["addresses"] = [(host, port) for host, port in values["addresses"]]
    values["exchange_address"] = tuple(values["exchange_address"])
    names = ("log_fd", "port_fd", "listener_fd")
    return RankSettings(**values | {name: given[name] for name in names if name in given})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutcome:
    """What became of the work of a rank, as its process tells it; paths are on that machine."""

    status: str
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    model_file: str = ""
    serde: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths of artifacts of partwise's own, by name."""
    failure: Mapping[str, Any] | None = None
    """The fields of a `Failure`."""
    libraries: Sequence[str] = ()
    """Those of `partwise.engine.libraries` that it has used."""

    def write(self, directory: str) -> None:
        """Leave the outcome in a rank's folder, whole or not at all."""
        path = Path(directory, f"{OUTCOME_FILE}.new")
        path.write_text(json.dumps(asdict(self)))
        path.rename(path.with_suffix(""))


def read_outcome(directory: str) -> RankOutcome | None:
    """Return the outcome that lies in a rank's folder; None where it left none."""
    try:
        return RankOutcome(**json.loads(Path(directory, OUTCOME_FILE).read_text()))
    except FileNotFoundError:
        return None
