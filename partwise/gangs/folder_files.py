"""The files of a folder that a user's code has filled, and the links between them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFile:
    """A file of a folder, or a link that is not followed."""

    name: str
    """Relative to the folder, with `/` between its parts."""
    path: Path
    link: str = ""
    """Where a link leads to: a kept one relative to where it lies, another as a whole path."""


def files_below(
    folder: Path, *, keep_links: bool = False, follow: bool = True
) -> Iterator[FolderFile]:
    """Yield the files of a folder by their names; of a file, that file alone.

    A link to a file stands for it, and with `follow` one to a folder for all of its files, but for
    what leads back to where it lies. With `keep_links` a link to something in the same folder stays
    a link. Links to nothing, and folders that may not be read, are left out.

    Raises:
        OSError: A folder in it vanished meanwhile.
    """
    if folder.is_file():
        yield FolderFile(name=folder.name, path=folder)
        return
    root = os.path.realpath(folder)
    yield from _Walk(root=root if keep_links else "", follow=follow).below(root, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    root: str
    """Links to what is in here are kept; "": none are."""
    follow: bool

    def below(
        self, real_folder: str, folder: Path, prefix: str = "", above: frozenset[str] = frozenset()
    ) -> Iterator[FolderFile]:
        above |= {real_folder}
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except PermissionError:
            return
        for entry in found:
            name, path, is_link = f"{prefix}{entry.name}", folder / entry.name, entry.is_symlink()
            real = os.path.realpath(path) if is_link else os.path.join(real_folder, entry.name)
            if is_link and self._has(real) and self._has(real_folder) and os.path.exists(real):
                yield FolderFile(name=name, path=path, link=os.path.relpath(real, real_folder))
            elif os.path.isfile(real):
                yield FolderFile(name=name, path=path)
            elif not os.path.isdir(real) or real in above:
                continue
            elif is_link and not self.follow:
                yield FolderFile(name=name, path=path, link=real)
            else:
                yield from self.below(real, path, f"{name}/", above)

    def _has(self, path: str) -> bool:
        return bool(self.root) and is_within(path, self.root)


def is_within(path: str, folder: str) -> bool:
    """Whether a path, with no link in it, is a folder or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
