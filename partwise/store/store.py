"""The artifact store: objects by path, in a directory or a bucket, with the same promises in both.

An object appears whole or not at all, `create` makes it only where there is none, and what a call
has written survives a crash. A `Store` is a plain value without secrets, so it can be sent to a
worker and written down; the worker finds credentials in its environment, in a profile, or in what
`partwise.store.credentials` holds in its process.
"""

import contextlib
import errno
import os
import re
import secrets
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from partwise.errors import InputError, IntegrityError, RunFormatError, StoreError
from partwise.redaction import without_secrets
from partwise.store.credentials import credentials_of
from partwise.store.local_objects import TEMPORARY_PREFIX, LocalObjects, held_root
from partwise.store.remote_objects import (
    NO_BUCKET,
    RemoteObjects,
    is_bucket_missing,
    open_filesystem,
    options_in,
)
from partwise.store.strict_json import LARGEST_DOCUMENT_BYTES

_PROTOCOLS = {"s3": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "az": "abfs"}
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}
_KNOWN = "a directory, file://, s3://, gs:// or abfs://"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
# Characters that some S3 client takes for a pattern or a version, or that no log should print, and
# bytes of a name that is not UTF-8.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\*?\[\]#\ud800-\udfff]")
_REMEDIES = {
    errno.EACCES: "give this user the right to it",
    errno.EPERM: "give this user the right to it",
    errno.EROFS: "choose a store that can be written",
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.ESTALE: "put it back, and resume the run",
    errno.ENOTDIR: "choose a path of which no part is a file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where runs are kept.

    Paths are relative to the store, with `/` between their parts. Reading a missing object raises
    FileNotFoundError, anything else that goes wrong StoreError.

    Args:
        url: A directory, `file://`, `s3://bucket/prefix`, `gs://bucket/prefix` or
            `abfs://container/prefix`.
        endpoint_url: Of an S3 service other than AWS, or of an emulator.
        region: Of an S3 bucket, where the environment does not say.
        profile: Name of a profile in the AWS configuration files.

    Raises:
        InputError: If the URL is of another kind, or has credentials in it.

    Example:
        >>> store = Store.parse("/data/models")
        >>> store.write("notes/first.txt", b"hello")
        >>> store.read("notes/first.txt")
        b'hello'
    """

    url: str
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _normalized(self.url))
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)

    @classmethod
    def of(cls, given: "Store | str | os.PathLike[str]") -> "Store":
        """Return a store as it is, or that of a folder or URL: what every public function takes."""
        return given if isinstance(given, Store) else cls.parse(given)

    @classmethod
    def parse(
        cls,
        url: str | os.PathLike[str],
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        profile: str | None = None,
    ) -> "Store":
        """Make a store of what a user gave: a path as well as a URL."""
        return cls(url=os.fspath(url), endpoint_url=endpoint_url, region=region, profile=profile)

    @property
    def protocol(self) -> str:
        """One of file, s3, gs, abfs."""
        return self.url.partition("://")[0] if "://" in self.url else "file"

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        with self._errors("read", path):
            return self._objects().read(_checked(path))

    def read_document(self, path: str) -> bytes:
        """Return the content of an object that is to be a document: one request.

        Raises:
            RunFormatError: It is larger than any document.
        """
        with self._errors("read", path):
            data = self._objects().read_range(_checked(path), 0, LARGEST_DOCUMENT_BYTES + 1)
        if len(data) > LARGEST_DOCUMENT_BYTES:
            raise RunFormatError(
                f"{path} in the artifact store {self.url} is not a document: it has more than the "
                f"{LARGEST_DOCUMENT_BYTES >> 20} MiB that one may have; restore it."
            )
        return data

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Return `size` bytes of an object from `offset`: one request.

        Raises:
            IntegrityError: If the object ends before.
        """
        if offset < 0 or size < 0:
            raise InputError(f"No object has {size} bytes from {offset}; both must be 0 or more.")
        if size == 0:
            return b""
        with self._errors("read", path):
            data = self._objects().read_range(_checked(path), offset, size)
        if len(data) != size:
            raise IntegrityError(
                f"{path} in the artifact store {self.url} ends before byte {offset + size}, where "
                f"an entry should end; it was cut off or replaced. Restore it, or repeat the run."
            )
        return data

    def write(self, path: str, data: bytes) -> None:
        """Write an object, in place of the one that may be there; readers see either of them."""
        with self._errors("write", path):
            self._objects().write(_checked(path), data)

    def create(self, path: str, data: bytes) -> None:
        """Write an object where there is none; of several who try at once one succeeds.

        When the object is there already with the very same bytes, that is a success too: an answer
        from the store can get lost, and the request be repeated. Whoever must be the only one
        therefore puts something of his own into the data.

        Raises:
            FileExistsError: If the object is there, with other bytes.
        """
        with self._errors("create", path):
            objects = self._objects()
            try:
                objects.create(_checked(path), data)
            except FileExistsError:
                with contextlib.suppress(FileNotFoundError):
                    # The size first, as what somebody else has put there may be large.
                    if objects.size(path) == len(data) and objects.read(path) == data:
                        return
                raise

    def exists(self, path: str) -> bool:
        """Tell whether there is such an object. A folder is none."""
        try:
            with self._errors("find", path):
                self._objects().check_is_there(_checked(path))
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        """Return the size of an object in bytes."""
        with self._errors("find", path):
            return self._objects().size(_checked(path))

    def modified(self, path: str) -> datetime:
        """Return when an object was last written, by the clock of the store."""
        with self._errors("find", path):
            return self._objects().modified(_checked(path))

    def list_folder(self, folder: str) -> list[str]:
        """Return the names of objects and folders directly in a folder (`""` is the store), sorted.

        Costs one request, however much lies deeper.
        """
        with self._errors("list", folder):
            names = self._objects().list_folder(_checked(folder) if folder else "")
            return sorted(name for name in set(names) if not _is_temporary(name))

    def list(self, prefix: str) -> list[str]:
        """Return the paths of all objects whose path starts with `prefix`, sorted.

        `"runs/a"` matches `runs/a/b` and `runs/ab`; `"runs/a/"` what is in that folder; `""` all.
        """
        with self._errors("list", prefix):
            paths = self._objects().list_prefix(_checked_prefix(prefix))
            return sorted(path for path in paths if not _is_temporary(path))

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is as good as deleted."""
        with self._errors("delete", path):
            self._objects().delete(_checked(path))

    def move(self, path: str, new_path: str) -> None:
        """Give an object another path; one that is not there any more is left alone.

        At every moment it is found under the old path or the new one. An object that has the new
        path already has the same content: a move that was cut short.
        """
        with self._errors("write", new_path):
            try:
                self._objects().copy(_checked(path), _checked(new_path))
            except FileNotFoundError:
                return
        self.delete(path)

    def delete_folder(self, folder: str) -> None:
        """Delete all objects in a folder, and what killed writers left behind there."""
        with self._errors("delete", folder):
            self._objects().delete_folder(_checked(folder))

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Have the directory of a local store be this very one for as long as a block lasts.

        Where it is moved away, unmounted or made again meanwhile, each operation of this process is
        a StoreError, and nothing is written in its place.
        """
        objects = self._objects()
        if isinstance(objects, LocalObjects):
            return held_root(self.url)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def tidied(self) -> Iterator[None]:
        """Have the directory of a local store go again when a block ends.

        That is where it was not there before, and nothing lies in it.
        """
        objects = self._objects()
        missing = objects.missing_folders() if isinstance(objects, LocalObjects) else []
        try:
            yield
        finally:
            for folder in missing:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def local_path(self, path: str) -> str | None:
        """Return where an object lies, or would lie, on this machine's disk, for reading only.

        None for a remote store.
        """
        objects = self._objects()
        if not isinstance(objects, LocalObjects):
            return None
        with self._errors("find", path):
            return objects.locate_object(_checked(path))

    def filesystem(self) -> Any:
        """Return the fsspec file system of a remote store, for reading only; None of a local one.

        It may hold credentials, so it must not leave this process.
        """
        objects = self._objects()
        return objects.filesystem if isinstance(objects, RemoteObjects) else None

    def check_writable(self) -> None:
        """Write, claim and delete an object, to fail before any work is done rather than after.

        Leaves nothing behind.

        Raises:
            StoreError: If that fails, or if the store lets one claim overwrite another.
        """
        objects = self._objects()
        probe = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        try:
            with self.tidied(), self._errors("write", "a test object"):
                objects.create(probe, b"first")
                try:
                    objects.create(probe, b"second")
                except FileExistsError:
                    objects.write(probe, b"third")
                else:
                    raise StoreError(
                        f"The artifact store {self.url} overwrites an object that was to be "
                        f"created only if absent, so two runs could destroy each other; use a "
                        f"store that honours conditional writes."
                    )
                objects.delete(probe)
        finally:
            with contextlib.suppress(Exception):
                objects.delete(probe)

    def _objects(self) -> LocalObjects | RemoteObjects:
        # At each call: keys may have been replaced. What is costly, `open_filesystem` keeps.
        protocol, _, root = self.url.rpartition("://")
        if not protocol:
            return LocalObjects(root)
        with self._errors("open", ""):
            filesystem = open_filesystem(
                protocol,
                {**options_in(protocol, self.url), **credentials_of(self.url)},
                endpoint_url=self.endpoint_url,
                region=self.region,
                profile=self.profile,
            )
        # Without the account that a URL of Azure may name.
        return RemoteObjects(filesystem, protocol, filesystem._strip_protocol(self.url))

    @contextlib.contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        """Turn what a file system raises into the few errors that callers know."""
        writes = verb in ("write", "create", "delete")
        try:
            yield
        except (StoreError, InputError, IntegrityError):
            raise
        except FileExistsError as error:
            if verb != "create":
                raise StoreError(self._sentence(verb, path, error)) from error
            raise FileExistsError(
                errno.EEXIST, f"The artifact store {self.url} already has an object", path
            ) from error
        except FileNotFoundError as error:
            # Callers take a missing object for an answer, and that is not what a lost store is.
            if writes or is_bucket_missing(error):
                raise StoreError(self._sentence(verb, path, error)) from error
            raise FileNotFoundError(
                errno.ENOENT, f"The artifact store {self.url} has no object", path
            ) from error
        except Exception as error:  # each client library has errors of its own
            raise StoreError(self._sentence(verb, path, error)) from error

    def _sentence(self, verb: str, path: str, error: Exception) -> str:
        number = error.errno if isinstance(error, OSError) else None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, FileNotFoundError) and self.protocol != "file":
            reason = NO_BUCKET
        # Azure's go on with numbers of the request, and an answer in XML.
        reason = " ".join(reason.partition("RequestId:")[0].split())
        if not reason:
            is_slow = isinstance(error, TimeoutError)
            reason = "it did not answer in time" if is_slow else type(error).__name__
        reason = without_secrets(reason).rstrip(".")[:300]
        remedy = _REMEDIES.get(number or 0, "check its address and your rights to it")
        if isinstance(error, ImportError):
            reason = "its client is not installed"
            remedy = f"install the package {_PACKAGES[self.protocol]}"
        what = f"{path} in the artifact store" if path else "the artifact store"
        return f"Cannot {verb} {what} {self.url}: {reason}; {remedy}."


def _normalized(url: str) -> str:
    """Return a URL in the one form that stands for it, or refuse it."""
    if not url.strip():
        raise InputError(f"The URL of the artifact store is empty; give {_KNOWN}.")
    scheme = _SCHEME.match(url)
    shown = re.sub(r"//.*@", "//***@", url)
    if "::" in url:
        raise InputError(f"The artifact store {shown!r} is a chain of URLs; give {_KNOWN}.")
    if scheme is None:
        return os.path.abspath(os.path.expanduser(_printable(url)))
    name = scheme[1].lower()
    if name == "file":
        if cut := re.search(r"[#?]", url):
            raise InputError(
                f"The artifact store {shown!r} has a {cut[0]!r}, which ends the path of a URL; "
                f"write {urllib.parse.quote(cut[0])}, or give the directory without file://."
            )
        parts = urllib.parse.urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InputError(f"The artifact store {shown!r} is not on this machine; give {_KNOWN}.")
        return os.path.abspath(_printable(urllib.parse.unquote(parts.path)))
    if name not in _PROTOCOLS or not url[len(name) :].startswith("://"):
        raise InputError(f"The artifact store {shown!r} is of an unknown kind; give {_KNOWN}.")
    bucket, *folders = url.partition("://")[2].rstrip("/").split("/")
    container, at, _ = bucket.partition("@")
    if at and (_PROTOCOLS[name] != "abfs" or ":" in container):
        raise InputError(
            f"The artifact store {shown!r} has credentials in its URL; leave them to the "
            f"environment, a profile or set_credentials."
        )
    if not bucket or any(part in ("", ".", "..") for part in folders) or _UNSAFE.search(url):
        raise InputError(
            f"The artifact store {shown!r} is not an address of the form {name}://bucket/prefix."
        )
    return f"{_PROTOCOLS[name]}://{'/'.join([bucket, *folders])}"


def _printable(path: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", path):
        raise InputError(f"The artifact store {path!r} has a control character in its path.")
    return path


def _check_endpoint(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        shown = re.sub(r"//.*@", "//***@", url)
        raise InputError(
            f"The endpoint {shown!r} is not an address of the form https://host:port without "
            f"credentials."
        )


def is_path(path: str) -> bool:
    """Whether a store takes a path: others may have put objects of any names there."""
    try:
        _checked(path)
    except InputError:
        return False
    return True


def _checked(path: str) -> str:
    """Return a path that stays inside the store on every kind of store, or refuse it."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or _UNSAFE.search(path):
        raise InputError(
            f"{path!r} is not a path inside an artifact store: names joined by '/', without '..' "
            f"and without any of \\ * ? [ ] # or control characters."
        )
    if any(len(os.fsencode(part)) > 255 for part in parts) or len(os.fsencode(path)) > 900:
        raise InputError(
            f"{path[:80]!r}... is too long for a path inside an artifact store, which has at most "
            f"255 bytes between two '/' and 900 in all."
        )
    return path


def _checked_prefix(prefix: str) -> str:
    folder, _, start = prefix.rpartition("/")
    for part in (folder, start):
        if part:
            _checked(part)
    if prefix.startswith("/"):
        _checked(prefix)
    return prefix


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY_PREFIX)
