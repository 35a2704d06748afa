"""Names that were others once: whoever gives an old one hears the new one, and old runs are read.

One table for Python, for documents of runs that an earlier version wrote, and for the command line.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

RENAMED: Mapping[str, Mapping[str, str]] = {
    "partwise": {
        "ModelNotFound": "ModelNotFoundError",
        "TrialsFailed": "TrialsFailedError",
        "ExportRefused": "ExportRefusedError",
        "ExportMismatch": "ExportMismatchError",
        "RunFailed": "RunFailedError",
        "RunCancelled": "RunCancelledError",
        "FileSource": "FilesBlock",
        "SqlSource": "QueryBlock",
        "SqlTable": "TableBlock",
        "ArtifactStore": "StoreBlock",
    },
    "blocks": {
        "file-source": "files-block",
        "sql-source": "query-block",
        "sql-table": "table-block",
        "artifact-store": "store-block",
    },
    "ExecutionOptions": {
        "partition_cpus": "cpus",
        "partition_gpus": "gpus",
        "partition_timeout_s": "timeout_s",
        "partition_memory_bytes": "memory_bytes",
        "worker_attempts": "max_shard_starts",
    },
    "ScalingConfig": {"num_workers": "ranks", "cpus_per_worker": "cpus", "gpus_per_worker": "gpus"},
    "GangOptions": {"time_limit_s": "timeout_s", "max_restarts": "max_retries"},
    "ExportOptions": {"inputs": "input_layout"},
    "Tuned": {"timeout_s": "max_duration_s"},
    "RankContext": {"hyperparameters": "params"},
    "TorchDistributor": {"hyperparameters": "params"},
    "train_models": {"inputs": "files"},
    "run_inference": {"inputs": "files", "model_format": "format"},
    "map_partitions": {"inputs": "files"},
    "train_distributed": {"hyperparameters": "params"},
    "tune_model": {"inputs": "files", "timeout_s": "max_duration_s"},
    "export_models": {"inputs": "example_inputs"},
    "validate_exports": {"inputs": "example_inputs", "model_format": "format"},
    "model_pipeline": {"inputs": "example_inputs", "input_files": "files"},
    "run_script": {
        "params": "arguments",
        "node_count": "nodes",
        "process_count_per_node": "ranks_per_node",
        "cpus_per_process": "cpus",
        "gpus_per_process": "gpus",
        "max_run_duration_s": "timeout_s",
        "max_restarts": "max_retries",
        "compute_target": "cluster",
    },
}
"""By the name of a class, a flow or a module: its old names and their new ones."""
_SETTINGS = {
    "execution": "ExecutionOptions",
    "scaling": "ScalingConfig",
    "gang": "GangOptions",
    "options": "ExportOptions",
}
"""The classes of arguments that are settings."""


def is_called_now(owner: str, name: str) -> str:
    """Return the sentence that says what an old name is now; empty where it is not an old name.

    Example:
        >>> is_called_now("partwise", "RunFailed")
        'RunFailed is called RunFailedError now'
    """
    now = RENAMED.get(owner, {}).get(name, "")
    return now and f"{name} is called {now} now"


def old_names_in(flow: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield what each old name among the parameters of a flow is now, also of its settings.

    Example:
        >>> list(old_names_in("train_models", {"execution": {"partition_cpus": 2}}))
        ['partition_cpus is called cpus now']
    """
    for name, value in parameters.items():
        if sentence := is_called_now(flow, name):
            yield sentence
        if name in _SETTINGS and isinstance(value, Mapping):
            yield from filter(None, (is_called_now(_SETTINGS[name], each) for each in value))


def with_new_names(owner: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name, as an earlier version wrote them down, by their names of today."""
    names = RENAMED.get(owner, {})
    return {names.get(name, name): value for name, value in values.items()}


def block_of_today(name: str) -> str:
    """Return the name of a saved block, as an earlier version wrote it down, by its kind of today.

    Example:
        >>> block_of_today("sql-table/prod")
        'table-block/prod'
    """
    kind, slash, saved = name.partition("/")
    return f"{RENAMED['blocks'].get(kind, kind) if slash else kind}{slash}{saved}"


def block_is_called_now(name: str) -> str:
    """Return the sentence that says what a saved block is called now; empty where it is so called.

    Example:
        >>> block_is_called_now("store-block/prod")
        ''
    """
    now = block_of_today(name)
    if now == name:
        return ""
    old, new = (each.partition("/")[0] for each in (name, now))
    return (
        f"{name!r}: blocks of the kind {old} are of the kind {new} now; save this one again and "
        f"write {now}."
    )


def first_names(owner: str) -> Mapping[str, str]:
    """Return by its name of today what something was called first.

    Fingerprints have the first name, so that runs of earlier versions are known by theirs.
    """
    return MappingProxyType({new: old for old, new in RENAMED.get(owner, {}).items()})
