"""File systems of URLs: made in the process that uses them, with the keys that it was given.

A found file travels to workers as its URL and an `Access`. Keys never travel with it: a process
has those that `set_source_credentials` gave it, or else what its environment offers.
"""

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from partwise.errors import InputError, SourceError
from partwise.store.url_secrets import without_secrets

_KINDS = {
    "s3": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "az": "abfs",
    "s3a": "s3",
    "abfss": "abfs",
}
PROTOCOLS = tuple(_KINDS)
"""Of object stores, whose URLs name a bucket and no host: behind them no URL that somebody typed
into a form makes a worker talk to another machine of its network, as http, sftp or hdfs would."""

_lock = threading.Lock()
_credentials: dict[str, dict[str, str]] = {}
_filesystems: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What opens a bucket beside its keys; None: what the environment says."""

    endpoint_url: str | None = None
    """Of a service that speaks S3 but is not Amazon's own."""
    region: str | None = None
    profile: str | None = None
    """A profile in the AWS configuration files of the process that reads."""


def bucket_of(url: str) -> str:
    """Return the bucket of a URL, as protocol://bucket.

    Raises:
        SourceError: The protocol is not read, or there are credentials in the URL.
    """
    protocol, _, rest = url.partition("://")
    if "::" in url or protocol not in _KINDS:
        # The rest of the URL may hold a password.
        shown = protocol.partition("::")[0]
        raise SourceError(
            f"Sources of the protocol {shown!r} are not read: use a local path or one of the "
            f"protocols {', '.join(PROTOCOLS)}, without chains; a database is Query(...) or "
            "sql-source/NAME."
        )
    bucket = rest.partition("/")[0]
    container, at, _ = bucket.partition("@")
    if at and (_KINDS[protocol] != "abfs" or ":" in container):
        raise SourceError(
            "The URL of a source holds a user or password: give credentials by the environment."
        )
    return f"{_KINDS[protocol]}://{bucket}"


def set_source_credentials(bucket: str, options: Mapping[str, str]) -> None:
    """Keep the keys of a bucket in this process, for every source that lies there.

    Args:
        bucket: As `bucket_of` returns it.
        options: For S3 `key`, `secret` and, of temporary keys, `token`.

    Raises:
        InputError: There is no such option.
    """
    from partwise.store.remote_objects import SECRET_OPTIONS

    allowed = SECRET_OPTIONS[bucket.partition("://")[0]]
    if unknown := sorted(set(options) - allowed):
        raise InputError(
            f"The source {bucket} takes no credentials named {', '.join(unknown)}; "
            f"it takes {', '.join(sorted(allowed))}."
        )
    with _lock:
        _credentials[bucket] = dict(options)


def source_credentials(bucket: str) -> Mapping[str, str]:
    """Return the keys of a bucket that were given to this process; none: an empty mapping."""
    with _lock:
        return dict(_credentials.get(bucket, {}))


def credentials_of(buckets: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """Return the keys that this process was given for some buckets, by bucket.

    They are for `set_source_credentials` in the processes that read from them.
    """
    return {bucket: keys for bucket in buckets if (keys := source_credentials(bucket))}


def filesystem_of(url: str, access: Access) -> Any:
    """Return the fsspec file system that a URL is read with, in this process.

    Raises:
        SourceError: The protocol is not read, or its package is not installed.
    """
    bucket = bucket_of(url)
    with _lock:
        credentials = _credentials.get(bucket, {})
        key = (os.getpid(), bucket, access, *sorted(credentials.items()))
        if key not in _filesystems:
            _filesystems[key] = _opened(url, bucket, access, credentials)
        return _filesystems[key]


def _opened(url: str, bucket: str, access: Access, credentials: Mapping[str, str]) -> Any:
    from partwise.store.remote_objects import open_filesystem

    kind = bucket.partition("://")[0]
    try:
        import fsspec

        # Azure's URLs may name the account.
        kind_of: Any = fsspec.get_filesystem_class
        said: dict[str, str] = kind_of(kind)._get_kwargs_from_urls(url)
        return open_filesystem(
            kind,
            {**said, **credentials},
            endpoint_url=access.endpoint_url,
            region=access.region,
            profile=access.profile,
        )
    except ImportError as exc:
        raise SourceError(
            f"Sources at {bucket!r} need another package: {exc}. Install it."
        ) from exc
    except Exception as exc:  # every store has its own exceptions
        reason = f"{type(exc).__name__}: {without_secrets(' '.join(str(exc).split()))}"
        raise SourceError(f"{bucket!r} cannot be opened: {reason.rstrip('.')}.") from exc
