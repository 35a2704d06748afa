"""Prefect's server where it is embedded, and where it is gone.

What this needs of Prefect is not in its public interface: it holds for the releases that
pyproject.toml allows, and tests look at it.
"""

import contextvars
import functools
import json
import logging
import os
import queue
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import prefect.context
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    get_current_settings,
)
from pydantic import SecretStr

from partwise.processes.starting import python_words
from partwise.processes.variables import variables_set

logger = logging.getLogger(__name__)

_CONSOLE_LEVEL = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"


def start_embedded_server() -> None:
    """Start the server that Prefect would start itself, but quiet, and out of reach of others.

    It ends with this process, however that ends, and asks for a password that this process makes:
    it answers on the loopback address, where every user of the machine and every web page reaches
    it, and its blocks hold secrets.

    As it is stopped, it shows tracebacks of what it was about to write down; with
    PREFECT_SERVER_LOGGING_LEVEL set it still does. And a terminal sends Ctrl-C to all processes of
    a command: the server would go at once, and the flow that tidies up would wait for it.

    Does nothing where a server is named.
    """
    if PREFECT_API_URL.value() or not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
        return
    from prefect.server.api.server import SubprocessASGIServer

    class Server(SubprocessASGIServer):
        """Prefect knows one server of a process, whichever of these classes it is of."""

        def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
            sent = json.dumps({"parent": os.getpid(), "port": self.port})
            words = python_words("partwise.flows.orchestration.server_process", sent)
            return subprocess.Popen(words, env=_environment())  # noqa: S603 (our own arguments)

    # Of each call, also where the server runs: the settings of the last one may be gone.
    _show_password()
    server = SubprocessASGIServer._instances.get(None)
    if server is not None and server.running:
        return
    # Else Prefect would give out the one that has ended, as it has one for each port.
    SubprocessASGIServer._instances.pop(None, None)
    server = Server()
    # Of what Prefect starts, only the worst is shown.
    is_chosen = any(name in os.environ for name in ("PREFECT_SERVER_LOGGING_LEVEL", _CONSOLE_LEVEL))
    quiet = {} if is_chosen else {_CONSOLE_LEVEL: "CRITICAL"}

    def start() -> None:
        # Of this thread only; but a process inherits what the thread that starts it does not hear.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        with variables_set(quiet):
            server.start()

    logger.info("starting Prefect's embedded server; PREFECT_API_URL names one to use instead")
    # Prefect's settings are those of the context.
    _in_lasting_thread(contextvars.copy_context().run, start)


def _in_lasting_thread(call: Callable[..., None], *args: Any) -> None:
    """Call a function on a thread that lives as long as the process.

    The kernel ends a child when the thread that started it ends. A thread of a pool ends as the
    interpreter exits, before Prefect has sent its last lines to the server and stops it in order.
    """
    done: Future[None] = Future()

    def work() -> None:
        try:
            call(*args)
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)
            return
        threading.Event().wait()

    threading.Thread(target=work, name="partwise-server", daemon=True).start()
    done.result()


@functools.cache
def _password() -> str:
    """Return the password of this process's server: the user's, or one that is made once."""
    return PREFECT_API_AUTH_STRING.value() or f"partwise:{secrets.token_urlsafe(24)}"


def _show_password() -> None:
    """Have all of Prefect's clients show the server's password, in this call and after it.

    Settings are looked up in the context or, in threads of Prefect's own, in the global one.
    """
    for settings in (get_current_settings(), prefect.context.GLOBAL_SETTINGS_CONTEXT.settings):
        # Assigned as a whole: a copy of settings, as each flow makes one, takes along only the
        # parts that were set themselves.
        settings.api = settings.api.model_copy(update={"auth_string": SecretStr(_password())})


def _environment() -> dict[str, str]:
    """Return what Prefect has in the environment of the server, with a password."""
    return {
        **os.environ,
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
        **get_current_settings().to_environment_variables(exclude_unset=True),
        # Behind the settings of the user, which may have no password.
        "PREFECT_SERVER_API_AUTH_STRING": _password(),
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": "http://127.0.0.1",
    }


def forget_unsent() -> None:
    """Drop events and logs that wait to be sent to a server that is gone.

    As the process ends, Prefect tries for seven seconds to send each of them, minutes in all.
    """
    from prefect._internal.concurrency.services import _active_services

    for service in list(_active_services):
        with suppress(queue.Empty):
            while True:
                service._queue.get_nowait()
        # Nor is what is on its way waited for: a server that hangs takes a minute to fail.
        if service._loop is not None and service._done_event is not None:
            with suppress(RuntimeError):
                service._loop.call_soon_threadsafe(service._done_event.set)
