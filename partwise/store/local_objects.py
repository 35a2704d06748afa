"""Objects in a directory of a POSIX file system, written so that no reader sees half of one.

A commit writes a temporary file in the target's own directory, flushes it to disk, gives it its
name in one step, and flushes the directory: after a crash or a power cut there is the old object,
or the new one. fsspec's local file system writes in place and never flushes, so this is our own.
"""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

TEMPORARY_PREFIX = ".tmp-"
"""Names that start so are unfinished writes, for a `Store` to hide; a killed process leaves one."""

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_ATTEMPTS = 200
"""Against somebody who writes without a pause: on a disk that answers at once, 20 were too few."""
_MOVED = "its directory was moved away, unmounted or made again in the middle of the work"
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


_lock = threading.Lock()
_held: dict[str, list[tuple[int, int]]] = {}
"""Device and inode of the directories in use, once for each user."""


@contextlib.contextmanager
def held_root(root: str) -> Iterator[None]:
    """Have a directory be this very one for as long as a block lasts, in all of this process.

    An unmounted disk leaves an empty directory, or none. What was written then would be found by
    nobody, and hide that the rest is gone. `root` is absolute; one that does not exist yet is not
    held.
    """
    root = os.path.realpath(root)
    identity = _identity(root)
    if identity is None:
        yield
        return
    with _lock:
        _held.setdefault(root, []).append(identity)
    try:
        yield
    finally:
        with _lock:
            _held[root].remove(identity)
            if not _held[root]:
                del _held[root]


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class LocalObjects:
    """The objects under one directory.

    Paths are checked by the `Store`; symbolic links below the root are refused here. Errors are
    those of the operating system; a missing object is a `FileNotFoundError`. `root` is absolute,
    and need not exist yet.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def locate(self, path: str) -> str:
        """Return the absolute path of an object, on the way to which there is no symbolic link."""
        target = os.path.join(self._root, path)
        folder = os.path.dirname(target)
        self._check_held()
        # A link could lead out of the store, and a run's folder may be deleted with all in it.
        if os.path.realpath(folder) != folder:
            raise OSError(errno.ELOOP, "a folder on its way is a symbolic link", path)
        return target

    def locate_object(self, path: str) -> str:
        """Return the absolute path of an object, or folder, that others open.

        It is not a symbolic link itself, nor a pipe or device, whose opening may wait for ever.
        """
        target = self.locate(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            mode = os.lstat(target).st_mode
            if stat.S_ISLNK(mode):
                raise OSError(errno.ELOOP, "it is a symbolic link", path)
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise OSError(errno.EINVAL, "it is neither a file nor a folder", path)
        return target

    def _check_held(self) -> None:
        # A copy: a user on another thread may end between the two looks at it.
        with _lock:
            held = tuple(_held.get(self._root, ()))
        if held and _identity(self._root) not in held:
            raise OSError(errno.ESTALE, _MOVED, self._root)

    def read(self, path: str) -> bytes:
        """Return a whole object."""
        with self._opened(path) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or as many as there are."""
        parts: list[bytes] = []
        with self._opened(path) as descriptor:
            # What is asked for is allocated first, and may be what a damaged ledger says.
            size = min(size, os.fstat(descriptor).st_size - offset)
            while size > 0 and (part := os.pread(descriptor, size, offset)):
                parts.append(part)
                offset += len(part)
                size -= len(part)
        return b"".join(parts)

    def check_is_there(self, path: str) -> None:
        """Raise FileNotFoundError where there is no such object."""
        self.size(path)

    def size(self, path: str) -> int:
        """Return the size of an object in bytes."""
        return self._status(path).st_size

    def modified(self, path: str) -> datetime:
        """Return when an object was last written."""
        return datetime.fromtimestamp(self._status(path).st_mtime, UTC)

    def _status(self, path: str) -> os.stat_result:
        try:
            status = os.lstat(self.locate(path))
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(path)
        return status

    def write(self, path: str, data: bytes) -> None:
        """Write an object, in place of the one that may be there."""
        self._commit(path, data, os.replace)

    def create(self, path: str, data: bytes) -> None:
        """Write an object, or raise FileExistsError if there is one."""
        self._commit(path, data, _link)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the path of every object whose path starts with `prefix`."""
        folder, _, start = prefix.rpartition("/")
        yield from self._walk(folder, start)

    def list_folder(self, folder: str) -> Iterator[str]:
        """Yield the names directly under a folder."""
        for entry in self._entries(folder):
            yield entry.name

    def copy(self, path: str, new_path: str) -> None:
        """Make an object available under a second path: a link where the file system has them."""
        source, target = self.locate(path), self.locate(new_path)
        folder = os.path.dirname(target)
        self._make_folders(folder)
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.write(new_path, self.read(path))
        _flush_folder(folder)

    def delete(self, path: str) -> None:
        """Delete an object, if it is there, and the folders that are empty without it."""
        target = self.locate(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(target)
        self._prune(os.path.dirname(target))

    def delete_folder(self, folder: str) -> None:
        """Delete everything under a folder, unfinished writes too."""
        target = self._locate_folder(folder)
        for attempt in range(_ATTEMPTS):
            try:
                shutil.rmtree(target)
            except (FileNotFoundError, NotADirectoryError):
                if not os.path.isdir(target):
                    break  # and not just a file in it that another process deleted
                if attempt == _ATTEMPTS - 1:
                    raise
            except OSError as error:
                # Another process wrote into it.
                if error.errno != errno.ENOTEMPTY or attempt == _ATTEMPTS - 1:
                    raise
            else:
                break
        self._prune(os.path.dirname(target))

    def missing_folders(self) -> list[str]:
        """Return the root and the directories above it that do not exist yet, deepest first."""
        missing, folder = [], self._root
        while not os.path.lexists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        return missing

    def _locate_folder(self, folder: str) -> str:
        return os.path.dirname(self.locate(os.path.join(folder, "any name")))

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        # O_NOFOLLOW: a link could lead to any file that this process may read.
        # O_NONBLOCK: a pipe that somebody put there would be waited for, and is refused below.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.locate(path), flags)
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileNotFoundError(path)
            yield descriptor
        finally:
            os.close(descriptor)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._locate_folder(folder)) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _walk(self, folder: str, start: str) -> Iterator[str]:
        for entry in self._entries(folder):
            if not entry.name.startswith(start):
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path, "")
            elif entry.is_file(follow_symlinks=False):
                yield path

    def _commit(self, path: str, data: bytes, publish: Callable[[str, str], None]) -> None:
        target = self.locate(path)
        folder = os.path.dirname(target)
        for attempt in range(_ATTEMPTS):
            temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
            try:
                # The order is what survives a power cut: the content is on the disk before it has
                # its name, and below the name before the caller goes on.
                self._make_folders(folder)
                _write_temporary(temporary, data)
                publish(temporary, target)
                break
            except FileNotFoundError:
                # Another process deleted the folder, or its last object and so the folder.
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:
                # Still there after a link, and after any error.
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        with contextlib.suppress(FileNotFoundError):
            _flush_folder(folder)

    def _make_folders(self, folder: str) -> None:
        # Folders are made up to the root only where a run has none: also where the root was made
        # again since the path was looked up.
        if folder == self._root:
            self._check_held()
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        self._make_folders(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        # Also when another process made it: that one may not have flushed it yet.
        _flush_folder(parent)

    def _prune(self, folder: str) -> None:
        # As on an object store, a folder is there as long as something is in it.
        while folder.startswith(self._root + os.sep):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)


def _write_temporary(temporary: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link(temporary: str, target: str) -> None:
    """Give a file its name, unless the name is taken: FileExistsError."""
    # A rename would silently replace another process's object; a link fails if there is one.
    try:
        os.link(temporary, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_without_replacing(temporary, target)


def _rename_without_replacing(temporary: str, target: str) -> None:
    """Do as `_link` on file systems without hard links (FAT, SMB and some FUSE mounts)."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    source, goal = os.fsencode(temporary), os.fsencode(target)
    if rename is None:
        code = errno.ENOSYS
    elif rename(_AT_FDCWD, source, _AT_FDCWD, goal, _RENAME_NOREPLACE) == 0:
        return
    else:
        code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        reason = "its file system can create no file exclusively; choose a directory on another one"
        raise OSError(errno.EOPNOTSUPP, reason, target)
    raise OSError(code, os.strerror(code), target)


def _flush_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot, and need not.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(descriptor)
