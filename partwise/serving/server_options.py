"""How a server listens, and what it takes from strangers."""

import ipaddress
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from partwise.errors import InputError

API_KEY_VARIABLE = "PARTWISE_SERVE_API_KEY"
"""Holds the API key, where no file does."""
_SHORTEST_KEY = 16
_LAST_PORT = 65_535
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where a server listens, its API key, and its limits.

    Raises:
        InputError: A value is out of range, or strangers could reach it without an API key.
    """

    host: str = "127.0.0.1"
    """An address of this machine; beyond loopback an API key is needed."""
    port: int = 8000
    """0: any that is free."""
    processes: int = 1
    """Each has its own models in memory."""
    api_key: str = field(default="", repr=False)
    """What requests have to show; "": nothing."""
    max_body_bytes: int = 8 * _MIB
    max_rows: int = 100_000
    """Of one request."""
    inline_rows: int = 256
    """Up to so many rows are answered at once where their models are loaded."""
    threads: int = 8
    """Answer requests that need models to be loaded, or have many rows. Mostly they wait: two could
    load no more than 50 models a second from a bucket that answers after 30 ms."""
    waiting: int = 64
    """Requests that wait for one of the threads; those after them are refused."""
    timeout_s: float = 5.0
    """The time that a request has for its answer."""
    body_timeout_s: float = 30.0
    """The time that a request has to send its body."""
    poll_s: float = 5.0
    """How often a newer version is looked for."""
    access_log: bool = True
    """Write a line of JSON for each request to stdout."""
    metrics_keys: int = 0
    """Rows are counted by the model's key for at most so many keys; 0: not at all."""
    keep_requests: float = 0.0
    """The share of requests whose rows and answers are kept under served/NAME of the store, for
    evaluate_predictions; 0: none."""

    def __post_init__(self) -> None:
        lowest = {"port": 0, "metrics_keys": 0, "waiting": 0, "inline_rows": 0}
        for name in ("port", "processes", "threads", "waiting", "inline_rows", "metrics_keys"):
            if (value := getattr(self, name)) < lowest.get(name, 1):
                raise InputError(f"{name}={value}: give at least {lowest.get(name, 1)}.")
        for name in ("max_body_bytes", "max_rows", "timeout_s", "body_timeout_s", "poll_s"):
            if not (value := getattr(self, name)) > 0:
                raise InputError(f"{name}={value}: give more than 0.")
            if math.isinf(value):
                raise InputError(f"{name}={value}: give a number that ends.")
        if self.port > _LAST_PORT:
            raise InputError(f"port={self.port}: give at most {_LAST_PORT}.")
        if self.api_key and (len(self.api_key) < _SHORTEST_KEY or not self.api_key.isascii()):
            raise InputError(
                f"The API key has to be at least {_SHORTEST_KEY} ASCII characters long: "
                "`openssl rand -hex 32` makes one."
            )
        if not self.api_key and not is_loopback(self.host):
            raise InputError(
                f"Whoever reaches {self.host} could ask for predictions: name a file with an API "
                f"key by --api-key-file, or set {API_KEY_VARIABLE}; or listen at 127.0.0.1."
            )


def read_api_key(file: str | None) -> str:
    """Return the API key of a file, or else of the environment; "" where there is none.

    Args:
        file: Its path; white space around the key does not count.

    Raises:
        InputError: The file cannot be read, or is empty.
    """
    if file is None:
        return os.environ.get(API_KEY_VARIABLE, "").strip()
    try:
        key = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The API key cannot be read from {file}: {error}") from error
    if not key:
        raise InputError(f"The file {file} is empty: write the API key into it.")
    return key


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is one of this machine that no other one reaches."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
