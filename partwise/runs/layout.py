"""An export run laid out as one folder per partition, as servers of models read them.

<target>/<partition_id>/model.onnx        the export, under its own name
<target>/<partition_id>/signature.json    what it takes and gives
<target>/index.json                       every partition with its key, file and checksum; last
"""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from partwise.errors import InputError, RunFormatError
from partwise.formatting import value_text
from partwise.runs.bundle import LOG_FILENAME
from partwise.runs.contents import READ_THREADS
from partwise.runs.kinds import KINDS
from partwise.runs.ledger import KEY_PREFIX, key_names
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.store.strict_json import parse_json

FORMAT_VERSION = 1
INDEX_FILE = "index.json"


def lay_out(run: Run, target: Store | str | Path) -> int:
    """Write the files of an export run to a folder or bucket of their own.

    A second call writes them again, and removes what the index of the first one lists and this one
    does not. Each file appears whole or not at all, and the index comes last.

    Args:
        run: A run of export_models or export_transformers.
        target: Where to: a store, a folder or a URL.

    Returns:
        How many partitions have a file there.

    Raises:
        InputError: The run exports nothing.
        StoreError: The target cannot be written.
        IntegrityError: A file in the run differs from its checksum.
    """
    if not KINDS[run.kind].has_exports:
        raise InputError(
            f"The run {run.run_id!r} is of the kind {run.kind!r}; only a run of export_models or "
            "export_transformers can be laid out."
        )
    target = Store.of(target)
    earlier = _files_of(_read_index(target))
    done = run.ledger.filter(pc.equal(run.ledger["status"], "DONE"))
    with ThreadPoolExecutor(READ_THREADS) as threads:
        entries = list(threads.map(lambda row: _lay_out(run, target, row), done.to_pylist()))
    left_out = run.ledger.filter(pc.not_equal(run.ledger["status"], "DONE"))
    index = {
        "format_version": FORMAT_VERSION,
        "run_id": run.run_id,
        "training_run_id": run.document.training_run_id,
        "partition_by": run.document.partition_by,
        "partitions": entries,
        "left_out": [
            {
                **_key(row),
                "partition_id": row["partition_id"],
                "status": row["status"],
                "reason": row["error_message"] or row["reason"],
            }
            for row in left_out.to_pylist()
        ],
    }
    # Before the index that no longer lists them: killed in between, a second call still knows them
    # by the old one, and deletes them.
    for path in sorted(earlier - _files_of(index)):
        target.delete(path)
    text = json.dumps(index, indent=1, allow_nan=False, default=value_text)
    target.write(INDEX_FILE, text.encode() + b"\n")
    return len(entries)


def check_target(target: Store) -> None:
    """See that a run can be laid out there, before hours of work."""
    target.check_writable()
    _read_index(target)


def _lay_out(run: Run, target: Store, row: dict[str, Any]) -> dict[str, Any]:
    """Write the files of one partition, and return its entry in the index."""
    name = row["partition_id"]
    files: list[dict[str, Any]] = []
    model = ""
    for artifact in run.stored_artifacts(name):
        if artifact.filename == LOG_FILENAME:
            continue
        path = f"{name}/{artifact.filename}"
        target.write(path, run.read_artifact(name, artifact.filename))
        files.append({"path": path, "size_bytes": artifact.size_bytes, "sha256": artifact.sha256})
        model = path if artifact.serde else model
    return {**_key(row), "partition_id": name, "model": model, "files": files}


def _key(row: dict[str, Any]) -> dict[str, Any]:
    """Return the key of a partition; what JSON has no form for is text, as `--key` takes it."""
    return {
        "key": {name.removeprefix(KEY_PREFIX): _json_value(row[name]) for name in key_names(row)}
    }


def _json_value(value: Any) -> Any:
    # Of other types json asks by itself.
    is_text = isinstance(value, float) and not math.isfinite(value)
    return value_text(value) if is_text else value


def _read_index(target: Store) -> dict[str, Any]:
    try:
        index = parse_json(target.read(INDEX_FILE))
        version = index["format_version"]
        if version == FORMAT_VERSION:
            _files_of(index)
    except FileNotFoundError:
        return {"partitions": []}
    except (ValueError, LookupError, TypeError) as error:
        raise RunFormatError(
            f"{INDEX_FILE} in {target.url} is not one of ours; choose an empty folder."
        ) from error
    if version != FORMAT_VERSION:
        raise RunFormatError(
            f"{INDEX_FILE} in {target.url} has format version {version!r}, and this release reads "
            f"{FORMAT_VERSION}; install a newer partwise, or choose an empty folder."
        )
    found: dict[str, Any] = index
    return found


def _files_of(index: dict[str, Any]) -> set[str]:
    return {file["path"] for entry in index["partitions"] for file in entry["files"]}
