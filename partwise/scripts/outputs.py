"""Outputs of a script: files of its working folder that its run keeps as artifacts."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from partwise.errors import InputError
from partwise.formatting import size
from partwise.gangs.folder_files import files_below
from partwise.runs.bundle import LOG_FILENAME

LARGEST_BYTES = 4 << 30
"""Of the outputs of one node: they are read into memory on their way to the store."""


def check_globs(globs: Sequence[str]) -> None:
    """See that globs stay in the working folder."""
    for glob in globs:
        path = PurePosixPath(glob)
        if not glob.strip() or path.is_absolute() or ".." in path.parts:
            raise InputError(
                f"outputs= has {glob!r}; give globs relative to the script's working folder, such "
                "as 'outputs/**' or 'model.pt', and have the script write there."
            )


def find_outputs(folder: Path, globs: Sequence[str]) -> dict[str, Path]:
    """Return the files that globs name, by their paths relative to the folder, sorted.

    `**` at the end stands for all files below. A folder that a glob names is taken with all that
    is in it.
    """
    root = folder.resolve()
    found: dict[str, Path] = {}
    for glob in globs:
        for path in sorted(folder.glob(glob)):
            if path.exists():
                for file in files_below(path, keep_links=False):
                    found[file.path.relative_to(folder).as_posix()] = file.path
    for name, path in found.items():
        if not path.resolve().is_relative_to(root):
            raise InputError(
                f"The output {name} is a link to {os.path.realpath(path)}, outside of the working "
                "folder; have the script write the file itself there."
            )
    total = sum(path.stat().st_size for path in found.values())
    if total > LARGEST_BYTES:
        raise InputError(
            f"The outputs {', '.join(globs)} are {len(found):,} files of {size(total)}, and the "
            f"limit is {size(LARGEST_BYTES)}; have the script write large files to a bucket itself."
        )
    # The log of the rank has this name.
    return {
        f"outputs/{name}" if name == LOG_FILENAME else name: found[name] for name in sorted(found)
    }
