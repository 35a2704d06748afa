"""Outputs of a script: files of its working folder that its run keeps as artifacts."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from partwise.errors import InputError
from partwise.formatting import size
from partwise.gangs.folder_files import files_below, is_within
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


def _once(found: dict[str, Path], root: str) -> dict[str, Path]:
    """Leave out what a link to a folder shows of files that are there under their own names."""
    real = {name: os.path.realpath(path) for name, path in found.items()}
    own = {place for name, place in real.items() if place == os.path.join(root, name)}
    return {
        name: path
        for name, path in found.items()
        if path.is_symlink() or real[name] not in own or real[name] == os.path.join(root, name)
    }


def find_outputs(folder: Path, globs: Sequence[str]) -> dict[str, Path]:
    """Return the files that globs name, by their paths relative to the folder, sorted.

    `**` at the end stands for all files below. A folder that a glob names is taken with all that
    is in it, and a link to a folder of the working folder for what is not there by itself.
    """
    root = os.path.realpath(folder)
    found: dict[str, Path] = {}
    for glob in globs:
        left, folders = sorted(folder.glob(glob), reverse=True), set()
        while left:
            path = left.pop()
            for file in files_below(path, follow=False) if path.exists() else ():
                name, real = file.path.relative_to(folder).as_posix(), os.path.realpath(file.path)
                if not is_within(real, root):
                    raise InputError(
                        f"The output {name} is a link to {real}, outside of the working folder; "
                        "have the script write the file itself there."
                    )
                if not file.link:
                    found[name] = file.path
                elif real not in folders:
                    folders.add(real)
                    left.append(file.path)
    found = _once(found, root)
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
