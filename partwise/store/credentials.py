"""Keys of stores and of buckets with rows: kept by the process that uses them, by URL.

A store and a source name where objects lie and never a key, so that they can be sent, printed and
written down. What opens a bucket asks here for the keys that its process was given; without any,
the environment or a profile decides. A flow sends the keys to workers by
`partwise.engine.driver.credentials`, never inside a task.
"""

import re
import threading
from collections.abc import Iterable, Mapping

from partwise.errors import InputError
from partwise.redaction import remember

SECRET_OPTIONS: Mapping[str, frozenset[str]] = {
    "s3": frozenset({"key", "secret", "token"}),
    "gs": frozenset({"token"}),
    "abfs": frozenset(
        {
            "account_name",
            "account_key",
            "sas_token",
            "connection_string",
            "tenant_id",
            "client_id",
            "client_secret",
        }
    ),
}
"""The credentials that each protocol takes, by the names of its fsspec file system."""

_NAMES = ("key", "account_name", "tenant_id", "client_id")
"""Those of them that say who somebody is, and open nothing."""

PROTOCOLS: Mapping[str, str] = {
    "s3": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "az": "abfs",
    "s3a": "s3",
    "abfss": "abfs",
}
"""The protocol of a URL by each of the names that it has in URLs. All are of object stores, whose
URLs name a bucket and no host: behind them no URL that somebody typed into a form makes a worker
talk to another machine of its network, as http, sftp or hdfs would."""

_lock = threading.Lock()
_credentials: dict[str, dict[str, str]] = {}


def set_credentials(url: str, options: Mapping[str, str]) -> None:
    """Keep the keys of a URL in this process, in place of those it has; none forgets them.

    They serve each `Store` of exactly this URL; those of a bucket ("s3://sales") serve all files
    of sources in it.

    Args:
        url: That of a store, or a bucket.
        options: For S3 `key`, `secret` and, of temporary credentials, `token`; for Google `token`;
            for Azure `account_name` with `account_key`, `sas_token`, or `tenant_id`, `client_id`
            and `client_secret`; or a `connection_string`.

    Raises:
        InputError: The protocol takes no credentials, or none of such a name.

    Example:
        >>> set_credentials("s3://models", {"key": "...", "secret": "..."})
    """
    address = _address(url)
    allowed = SECRET_OPTIONS.get(address.partition("://")[0], frozenset())
    if unknown := sorted(set(options) - allowed):
        # A URL that holds a password got here by mistake, and messages are logged.
        shown = re.sub(r"//.*@", "//***@", url)
        raise InputError(
            f"{shown} takes no credentials named {', '.join(unknown)}; "
            f"it takes {', '.join(sorted(allowed)) or 'none'}."
        )
    with _lock:
        _credentials.pop(address, None)
        if options:
            _credentials[address] = dict(options)
    # Masked in texts from now on, but for those that only say who somebody is.
    remember(value for name, value in options.items() if name not in _NAMES)


def credentials_of(url: str) -> dict[str, str]:
    """Return the keys that this process was given for a URL; without any, an empty mapping."""
    with _lock:
        return dict(_credentials.get(_address(url), {}))


def known_credentials(urls: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the keys that this process has for some URLs, without the URLs that have none.

    They are for `set_credentials` in the processes that work for this one.
    """
    return {url: keys for url in urls if (keys := credentials_of(url))}


def all_credentials() -> dict[str, dict[str, str]]:
    """Return all keys that this process has, by URL, for a child process that works for it."""
    with _lock:
        return {url: dict(keys) for url, keys in _credentials.items()}


def _address(url: str) -> str:
    """Return the one form of a URL that keys are kept by."""
    protocol, mark, rest = url.partition("://")
    return f"{PROTOCOLS.get(protocol, protocol)}{mark}{rest.rstrip('/')}" if mark else url
