"""Outputs of a script: files of its working folder that its run keeps as artifacts."""

import os
from collections.abc import Iterator, Sequence, Set
from pathlib import Path, PurePosixPath

from partwise.errors import InputError
from partwise.formatting import size
from partwise.gangs.folder_files import FolderFile, files_below, is_within
from partwise.runs.bundle import LOG_FILENAME

LARGEST_BYTES = 4 << 30
"""Of the outputs of one node: they are read into memory on their way to the store."""


def check_globs(globs: Sequence[str]) -> None:
    """See that globs stay in the working folder."""
    for glob in globs:
        path = PurePosixPath(glob)
        is_outside = path.is_absolute() or ".." in path.parts
        # By these pathlib raises an error, and that when the script has ended.
        is_none = not path.parts or any("**" in part and part != "**" for part in path.parts)
        if not glob.strip() or is_outside or is_none:
            raise InputError(
                f"outputs= has {glob!r}; give globs relative to the script's working folder, such "
                "as 'outputs/**' or 'model.pt', and have the script write there."
            )


def find_outputs(folder: Path, globs: Sequence[str]) -> dict[str, Path]:
    """Return the files that globs name, by their paths relative to the folder, sorted.

    `**` at the end stands for all files below. A folder that a glob names is taken with all that
    is in it; what a link to a folder shows in it too, where it is not there by itself.
    """
    root = os.path.realpath(folder)
    named = [path for glob in globs for path in sorted(folder.glob(glob)) if path.exists()]
    # Below these all files are there by themselves.
    whole = {os.path.join(root, path.relative_to(folder)) for path in named if path.is_dir()}
    found: dict[str, Path] = {}
    for path in named:
        for file in _files_below(path, folder, root):
            shown = _files_behind(file, folder, root, whole) if file.link else [file]
            found |= {_name(each, folder): each.path for each in shown}
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


def _files_below(path: Path, folder: Path, root: str) -> Iterator[FolderFile]:
    """Yield the files and links of what a glob names.

    Raises:
        InputError: One leads out of the working folder.
    """
    for file in files_below(path, follow=False):
        real = os.path.realpath(file.path)
        if not is_within(real, root):
            raise InputError(
                f"The output {_name(file, folder)} is a link to {real}, "
                "outside of the working folder; have the script write the file itself there."
            )
        yield file


def _files_behind(
    link: FolderFile, folder: Path, root: str, whole: Set[str]
) -> Iterator[FolderFile]:
    """Yield the files that a link to a folder shows, each folder once.

    Nothing of what leads back, or into one of the folders that are `whole` there.
    """
    left, seen = [link], set()
    while left:
        link = left.pop()
        leads_back = is_within(os.path.realpath(link.path.parent), link.link)
        if leads_back or link.link in seen or any(is_within(link.link, each) for each in whole):
            continue
        seen.add(link.link)
        for file in _files_below(link.path, folder, root):
            if file.link:
                left.append(file)
            else:
                yield file


def _name(file: FolderFile, folder: Path) -> str:
    """Return the path of an output relative to the folder.

    Raises:
        InputError: It is not UTF-8, in which ledgers name artifacts.
    """
    name = file.path.relative_to(folder).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The output {name!r} has a name that is not UTF-8, so it cannot be kept; have the "
            "script give it another one."
        ) from error
    return name
