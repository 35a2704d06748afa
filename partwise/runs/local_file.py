"""A file written for a caller: whole or not at all, and over no other unless he says so."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from partwise.errors import InputError, PartwiseError
from partwise.store.entry_locks import passing_folder


def check_free(path: Path, *, overwrite: bool) -> None:
    """See that a file can be written there, before the work that makes its content."""
    # By os.path, for which a name that is too long for any file is not there.
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder: name the file.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path} is not an ordinary file: name another one.")
    if os.path.lexists(path) and not overwrite:
        raise _taken(path)
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} into: make it.")


@contextlib.contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give the path of a temporary file, which gets its name when the block ends without error."""
    check_free(path, overwrite=overwrite)
    # A link is followed: its target is what is to be replaced.
    target = path.resolve()
    try:
        target.parent.stat()  # a link may lead to where no folder is
        # Beside it, and so on its file system: there a name is given in one step.
        with passing_folder(target.parent, ".partwise-", is_shared=True) as folder:
            temporary = folder / "file"
            yield temporary
            if overwrite:
                os.replace(temporary, target)
            else:
                _give_name(temporary, target)
    except PartwiseError:
        raise  # of what the block reads, such as a StoreError
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path} cannot be written: {reason}; name another file.") from error


def _give_name(temporary: Path, target: Path) -> None:
    try:
        # Unlike a rename, it fails where somebody was faster.
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        temporary.rename(target)


def _taken(path: Path) -> InputError:
    return InputError(f"{path} exists: name another file, or have it replaced (--force).")
