"""Prefect's server where it is embedded, and where it is gone.

What this needs of Prefect is not in its public interface: it holds for the releases that
pyproject.toml allows, and tests look at it.
"""

import contextvars
import os
import queue
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE

_CONSOLE_LEVEL = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"


def start_embedded_server() -> None:
    """Start the server that Prefect would start itself, but quiet, and out of reach of Ctrl-C.

    As it is stopped, it shows tracebacks of whatever it was about to write down; with
    PREFECT_SERVER_LOGGING_LEVEL set it still does. And a terminal sends Ctrl-C to all processes of
    a command: the server would go at once, and the flow that tidies up would wait for it.

    Does nothing where a server is named.
    """
    if PREFECT_API_URL.value() is not None or not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
        return
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    if server.running:
        return

    def start() -> None:
        # Of this thread only; but a process inherits what the thread that starts it does not hear.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        with _quiet_children():
            server.start()

    with ThreadPoolExecutor(1) as starter:
        # Prefect's settings are those of the context.
        starter.submit(contextvars.copy_context().run, start).result()


@contextmanager
def _quiet_children() -> Iterator[None]:
    """Have Prefect's processes that are started meanwhile show nothing but the worst."""
    if "PREFECT_SERVER_LOGGING_LEVEL" in os.environ or _CONSOLE_LEVEL in os.environ:
        yield
        return
    os.environ[_CONSOLE_LEVEL] = "CRITICAL"
    try:
        yield
    finally:
        del os.environ[_CONSOLE_LEVEL]


def forget_unsent() -> None:
    """Drop events and logs that wait to be sent to a server that is gone.

    As the process ends, Prefect tries for seven seconds to send each of them, minutes in all.
    """
    from prefect._internal.concurrency.services import _active_services

    for service in list(_active_services):
        with suppress(queue.Empty):
            while True:
                service._queue.get_nowait()
