"""Calls of flows that need no Prefect server: where none is named, and nobody asks for one.

A direct call runs the body of its flow in this process. Only its own lines report it,
its run in the store, and what it returns or raises, which are those of a flow run.
"""

import functools
import os
import signal
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from partwise.flows.orchestration.interruption import Terminated
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import run_logger

ALLOW_EPHEMERAL = "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"
EPHEMERAL_MODE = (ALLOW_EPHEMERAL, "PREFECT_SERVER_EPHEMERAL_ENABLED")
"""The environment variables by which a person asks for Prefect's embedded server."""
_NO = ("", "0", "false", "f", "no", "n", "off")
_SHIPPED_PROFILE = "ephemeral"
"""Prefect's own, of whoever has made none: it allows the embedded server without being asked."""


def runs_directly() -> bool:
    """Whether a call of a flow, here and now, runs without Prefect."""
    if not is_direct():
        return False
    if "prefect.settings" not in sys.modules and not may_name_server():
        # What Prefect would find as well, without its second of imports.
        return True
    from prefect.settings import PREFECT_API_URL

    return not PREFECT_API_URL.value() and not _asks_for_embedded_server()


def may_name_server() -> bool:
    """Whether Prefect's settings, wherever they may stand, may name a server or ask for one.

    Its sources are the environment, files in the working directory, and the profile in use.
    """
    # Prefect takes them in any case.
    variables = {name.upper(): value for name, value in os.environ.items()}
    asked = [variables.get(name, "").lower() for name in EPHEMERAL_MODE]
    if variables.get("PREFECT_API_URL") or any(value not in _NO for value in asked):
        return True
    if Path("prefect.toml").exists() or "prefect" in _text_of(Path(".env")).lower():
        return True
    return _is_of_prefect(Path("pyproject.toml")) or bool(_profile_settings(variables))


def _is_of_prefect(project: Path) -> bool:
    """Whether a project's file sets anything of Prefect, or cannot be read."""
    try:
        return "prefect" in tomllib.loads(_text_of(project)).get("tool", {})
    except (TypeError, ValueError, AttributeError):
        return True


def _profile_settings(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what the profile in use sets, but for what the one that Prefect ships sets.

    Where only Prefect knows that, something is returned.
    """
    home = Path(variables.get("PREFECT_HOME") or "~/.prefect").expanduser()
    path = Path(variables.get("PREFECT_PROFILES_PATH") or home / "profiles.toml").expanduser()
    try:
        written = tomllib.loads(_text_of(path)) if path.exists() else {}
        active = variables.get("PREFECT_PROFILE") or written.get("active") or _SHIPPED_PROFILE
        shipped: dict[str, Any] = {_SHIPPED_PROFILE: {}}
        settings = dict((shipped | written.get("profiles", {}))[active])
    except (KeyError, TypeError, ValueError, AttributeError):
        # Another that it ships, none of that name, or no TOML: it is for Prefect to say.
        return {"": path}
    if active == _SHIPPED_PROFILE:
        settings.pop(ALLOW_EPHEMERAL, None)
    return settings


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _asks_for_embedded_server() -> bool:
    from prefect.context import get_settings_context
    from prefect.settings import PREFECT_SERVER_ALLOW_EPHEMERAL_MODE

    if not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
        return False
    is_shipped = get_settings_context().profile.name == _SHIPPED_PROFILE
    return not is_shipped or any(name in os.environ for name in EPHEMERAL_MODE)


@contextmanager
def direct_call() -> Iterator[None]:
    """Have a call find no Prefect server, and SIGTERM interrupt it as it interrupts a flow run."""
    without_server: Any = nullcontext()
    if "prefect.settings" in sys.modules:
        from prefect.settings import PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, temporary_settings

        # What asks for a server all the same has to fail, and not to start one. Prefect validates
        # all of its settings once more for that: 24 ms.
        if PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
            updates = {PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}
            without_server = temporary_settings(updates=updates)
    with without_server, _terminated():
        yield


@functools.cache
def say_so() -> None:
    """Say once in a process, however many calls there are, why Prefect shows nothing of them."""
    run_logger().info("running without a Prefect server; PREFECT_API_URL names one that shows runs")


@contextmanager
def _terminated() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # Signals are those of the main thread.
        yield
        return

    def stop(*_: object) -> NoReturn:
        raise Terminated

    # None: it was set by no Python code.
    earlier = signal.signal(signal.SIGTERM, stop) or signal.SIG_DFL
    try:
        yield
    except Terminated:
        # Nobody made a cancelled run of it: it does what it would have done without us.
        signal.signal(signal.SIGTERM, earlier)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, earlier)
