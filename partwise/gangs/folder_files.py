"""The files of a folder that a user's code has filled, and the links between them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFile:
    """A file of a folder, or a link in it."""

    name: str
    """Relative to the folder, with `/` between its parts."""
    path: Path
    link: str = ""
    """Of a link that is kept: where it leads to, relative to where it lies."""


def files_below(folder: Path, *, keep_links: bool) -> Iterator[FolderFile]:
    """Yield the files of a folder by their names; of a file, that file alone.

    A link stands for what it leads to: a file, or all files of a folder. With `keep_links` one that
    leads to something in the same folder stays a link. What a link leads back to is left out, as
    are links to nothing.

    Raises:
        OSError: A folder in it vanished meanwhile, or cannot be read.
    """
    if folder.is_file():
        yield FolderFile(name=folder.name, path=folder)
        return
    root = os.path.realpath(folder)
    yield from _walk(root if keep_links else "", root, Path(folder), "", frozenset())


def _walk(
    root: str, real_folder: str, folder: Path, prefix: str, above: frozenset[str]
) -> Iterator[FolderFile]:
    above |= {real_folder}
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name, path = f"{prefix}{entry.name}", folder / entry.name
        real = (
            os.path.realpath(path) if entry.is_symlink() else os.path.join(real_folder, entry.name)
        )
        if entry.is_symlink() and _is_in(real, root) and _is_in(real_folder, root):
            if os.path.exists(real):
                yield FolderFile(name=name, path=path, link=os.path.relpath(real, real_folder))
        elif os.path.isdir(real):
            if real not in above:
                yield from _walk(root, real, path, f"{name}/", above)
        elif os.path.isfile(real):
            yield FolderFile(name=name, path=path)


def _is_in(path: str, root: str) -> bool:
    return bool(root) and (path == root or path.startswith(root.rstrip("/") + "/"))
