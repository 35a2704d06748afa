"""Quiet: what libraries say while they capture and translate models is kept from people."""

import io
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

_lock = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let no other thread of this process change meanwhile what all of them share.

    Each would give back at its end what another one had put there.
    """
    with _lock:
        yield


@contextmanager
def quietly() -> Iterator[None]:
    """Silence warnings, logs and what is printed by way of Python; undo it afterwards."""
    with (
        one_thread(),
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        disabled = logging.root.manager.disable
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(disabled)


def _renew_lock() -> None:
    global _lock
    # As this process was forked, another thread may have held it.
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)
