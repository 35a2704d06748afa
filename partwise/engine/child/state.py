"""The settings of a process that are put back after each partition.

What a setting was is noted once, when the work and what it imports are loaded; what these set is
the state that every partition meets. Functions are taken hold of here on import, so that a user's
replacement of one of them is not what puts it back.
"""

import contextlib
import decimal
import faulthandler
import gc
import locale
import logging
import operator
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

THOROUGH_S = 0.001
"""After a partition that took longer all is compared; after others what the work's code names, and
what is quickly compared."""

RESTORED_IN_SYS = (
    *("excepthook", "displayhook", "unraisablehook", "breakpointhook", "stdin", "tracebacklimit"),
    *("dont_write_bytecode", "path", "argv", "modules", "meta_path", "path_hooks", "warnoptions"),
)
_THREADING = ("excepthook", "_trace_hook", "_profile_hook")
_DECIMAL = ("DefaultContext", "BasicContext", "ExtendedContext")
_SIGNALS = range(1, signal.NSIG)
# Not that of `signal`, which makes an Enum of each answer and takes 25 times as long.
_get_handler: Callable[[int], Any] = import_module("_signal").getsignal
_LIMITS = range(16)
"""All that Linux has."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Something of the process that a function may change."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    words: Set[str] = frozenset()
    """It is compared where the work's code has one of these, and after partitions that took a
    while. Empty: always."""


class ProcessState:
    """The settings as they are now; made when the work is loaded."""

    def __init__(self, words: set[str]) -> None:
        self._every = list(_settings())
        self._quick = [s for s in self._every if not s.words or s.words & words]
        self._saved = {setting.name: _copy(setting.read()) for setting in self._every}
        self._reads = {
            thorough: (
                [setting.read for setting in settings],
                [self._saved[setting.name] for setting in settings],
            )
            for thorough, settings in ((False, self._quick), (True, self._every))
        }
        self._names_decimal = bool(words & {"decimal", "getcontext", "setcontext", "prec"})
        self._context = decimal.getcontext().copy()
        # There is no way to read it but to set it.
        self._umask = os.umask(0)
        os.umask(self._umask)

    def restore(self, seconds: float) -> list[str]:
        """Put all back; return the names of the settings of which that failed."""
        os.umask(self._umask)
        is_thorough = seconds > THOROUGH_S
        if is_thorough or self._names_decimal:
            decimal.setcontext(self._context.copy())
        reads, saved = self._reads[is_thorough]
        # As a rule nothing has changed, and one comparison says so.
        with contextlib.suppress(Exception):
            if [read() for read in reads] == saved:
                return []
        settings = self._every if is_thorough else self._quick
        return [setting.name for setting in settings if not self._put_back(setting)]

    def _put_back(self, setting: Setting) -> bool:
        saved = self._saved[setting.name]
        try:
            if setting.read() == saved:
                return True
        except Exception:  # noqa: S110 (an attribute was deleted, or compares in no way)
            pass
        try:
            setting.write(saved)
            return bool(setting.read() == saved)
        except Exception:
            return False


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(each) for name, each in value.items()}
    return value.copy() if isinstance(value, list) else value


def _settings() -> Iterator[Setting]:
    # The environment before the time zone, which follows from it.
    yield Setting("environment", _environment, _set_environment)
    is_ours = partial(operator.is_, _ENVIRON)
    yield Setting(
        "os.environ", lambda: is_ours(os.environ), lambda _: setattr(os, "environ", _ENVIRON)
    )
    yield Setting("time zone", _attribute(time, "tzname"), lambda _: time.tzset())
    yield from _interpreter_settings()
    yield from _kernel_settings()
    yield from _logging_settings()
    yield from _library_settings()


# ---------------------------------------------------------------- what the interpreter keeps


_ENVIRON = os.environ
_ENVIRON_DATA: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]


def _environment() -> dict[bytes, bytes]:
    # The bytes below os.environ, which would decode each variable to compare it.
    return _ENVIRON_DATA


def _set_environment(saved: dict[bytes, bytes]) -> None:
    for name in _ENVIRON_DATA.keys() - saved.keys():
        os.unsetenv(name)
    for name, value in saved.items():
        if _ENVIRON_DATA.get(name) != value:
            os.putenv(name, value)
    _ENVIRON_DATA.clear()
    _ENVIRON_DATA.update(saved)
    time.tzset()


def _attributes(module: ModuleType, names: tuple[str, ...]) -> Setting:
    """Return a setting of several attributes of a module, and of what lists among them hold."""
    present = tuple(name for name in names if hasattr(module, name))
    read = attrgetter(*present)

    def write(saved: Any) -> None:
        for name, value in zip(present, saved, strict=True):
            setattr(module, name, value)

    words = {module.__name__, *names}
    return Setting(f"attributes of {module.__name__}", lambda: read(module), write, words)


def _list(
    name: str, value: list[Any], keeps_new: bool = False, words: Set[str] = frozenset()
) -> Setting:
    """Return a setting of a list's elements."""

    def write(saved: list[Any]) -> None:
        # A finder that an import added is needed by what was imported.
        value[:] = saved + [item for item in value if keeps_new and item not in saved]

    def read() -> list[Any]:
        return value

    def read_old() -> list[Any]:
        return [item for item in value if item in saved_items]

    saved_items = list(value)
    return Setting(name, read_old if keeps_new else read, write, words)


def _interpreter_settings() -> Iterator[Setting]:
    yield _attributes(sys, RESTORED_IN_SYS)
    yield _list("sys.path", sys.path, words={"path", "sys", "site"})
    yield _list("sys.argv", sys.argv, words={"argv"})
    yield _list("sys.meta_path", sys.meta_path, True, {"meta_path"})
    yield _list("sys.path_hooks", sys.path_hooks, True, {"path_hooks"})
    yield _attributes(threading, _THREADING)
    tracing = {"settrace", "setprofile"}
    yield Setting("sys.settrace()", sys.gettrace, sys.settrace, tracing)
    yield Setting("sys.setprofile()", sys.getprofile, sys.setprofile, tracing)
    yield Setting("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield Setting(
        "switch interval",
        sys.getswitchinterval,
        sys.setswitchinterval,
        {"setswitchinterval"},
    )
    yield Setting("gc", gc.isenabled, lambda saved: gc.enable() if saved else gc.disable(), {"gc"})
    yield Setting(
        "gc thresholds",
        gc.get_threshold,
        lambda saved: gc.set_threshold(*saved),
        {"gc"},
    )
    yield Setting("gc flags", gc.get_debug, gc.set_debug, {"gc"})
    yield _list("gc.callbacks", gc.callbacks, words={"gc"})
    yield Setting(
        "socket timeout",
        socket.getdefaulttimeout,
        socket.setdefaulttimeout,
        {"setdefaulttimeout"},
    )
    yield Setting(
        "faulthandler",
        faulthandler.is_enabled,
        lambda _: faulthandler.enable(),
        {"faulthandler"},
    )
    # To read it is to stop it: there is no other way, and none is to run between partitions.
    yield Setting(
        "faulthandler's timer",
        faulthandler.cancel_dump_traceback_later,
        lambda _: None,
        {"dump_traceback_later"},
    )
    yield _attributes(decimal, _DECIMAL)
    for name in _DECIMAL:
        context = getattr(decimal, name)
        yield Setting(
            f"decimal.{name}",
            context.__reduce__,
            partial(_set_decimal, context),
            {*_DECIMAL, "decimal"},
        )


def _set_decimal(context: decimal.Context, reduced: Any) -> None:
    saved = reduced[0](*reduced[1])
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp"):
        setattr(context, name, getattr(saved, name))
    for flag in context.traps:
        context.traps[flag] = saved.traps[flag]
        context.flags[flag] = saved.flags[flag]


# ---------------------------------------------------------------------- what the kernel keeps


def _kernel_settings() -> Iterator[Setting]:
    yield Setting(
        "signal handlers",
        lambda: list(map(_get_handler, _SIGNALS)),
        _set_handlers,
        {"signal", "add_signal_handler", "siginterrupt", "SIG_IGN"},
    )
    yield Setting(
        "blocked signals",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda saved: signal.pthread_sigmask(signal.SIG_SETMASK, saved),
        {"pthread_sigmask"},
    )
    for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        yield Setting(
            f"timer {which}",
            partial(signal.getitimer, which),
            lambda saved, which=which: signal.setitimer(which, *saved),  # type: ignore[misc]
            {"setitimer", "alarm"},
        )
    yield Setting(
        "locale",
        lambda: locale.setlocale(locale.LC_ALL, None),
        lambda saved: locale.setlocale(locale.LC_ALL, saved),
        {"locale", "setlocale", "resetlocale"},
    )
    yield Setting(
        "CPU affinity",
        lambda: os.sched_getaffinity(0),
        lambda saved: os.sched_setaffinity(0, saved),
        {"sched_setaffinity", "cpu_affinity"},
    )
    yield Setting(
        "priority",
        lambda: os.getpriority(os.PRIO_PROCESS, 0),
        lambda saved: os.setpriority(os.PRIO_PROCESS, 0, saved),
        {"nice", "setpriority"},
    )
    yield Setting(
        "limits of the process (setrlimit)",
        lambda: list(map(resource.getrlimit, _LIMITS)),
        _set_limits,
        {"setrlimit", "prlimit", "rlimit"},
    )


def _set_handlers(saved: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, saved, strict=True):
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _set_limits(saved: list[tuple[int, int]]) -> None:
    for number, limits in zip(_LIMITS, saved, strict=True):
        if resource.getrlimit(number) != limits:
            resource.setrlimit(number, limits)


# -------------------------------------------------------------------- what libraries keep


def _logging_settings() -> Iterator[Setting]:
    root = logging.getLogger()
    # That of the child's log: `_restore_output` has just put it there, alone.
    handler = root.handlers[0]
    words = {"logging", "handlers", "getLogger", "addFilter"}
    yield _list("filters of logging", root.filters, words=words)
    yield _list("filters of the log", handler.filters, words=words)
    yield Setting("form of the log", _attribute(handler, "formatter"), handler.setFormatter, words)
    yield Setting("level of the log", _attribute(handler, "level"), handler.setLevel, words)
    yield Setting("loggers", _loggers, _set_loggers, {"getLogger"})


def _attribute(owner: object, name: str) -> Callable[[], Any]:
    """Return what reads an attribute of one object."""
    get = attrgetter(name)
    return lambda: get(owner)


_LOGGER = ("level", "disabled", "propagate")
_logger_state = attrgetter(*_LOGGER)


def _loggers() -> dict[str, Any]:
    loggers = logging.Logger.manager.loggerDict
    return {
        name: (_logger_state(logger), list(logger.handlers), list(logger.filters))
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
        and (logger.level or logger.handlers or logger.filters or logger.disabled)
    }


def _set_loggers(saved: dict[str, Any]) -> None:
    new: Any = ((logging.NOTSET, False, True), [], [])
    for name in {*saved, *_loggers()}:
        logger = logging.getLogger(name)
        state, handlers, filters = saved.get(name, new)
        for attribute, value in zip(_LOGGER, state, strict=True):
            setattr(logger, attribute, value)
        logger.handlers[:], logger.filters[:] = handlers, filters
    # Each logger remembers which levels it takes.
    logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]


def _library_settings() -> Iterator[Setting]:
    yield Setting(
        "numpy's print options",
        np.get_printoptions,
        lambda saved: np.set_printoptions(**{**saved, "override_repr": None}),
        {"set_printoptions"},
    )
    yield Setting(
        "numpy's generator",
        np.random.mtrand.get_bit_generator,
        np.random.mtrand.set_bit_generator,
        {"set_bit_generator"},
    )
    yield Setting("pyarrow's threads", pa.cpu_count, pa.set_cpu_count, {"set_cpu_count"})
    if "multiprocessing.context" in sys.modules:
        context = sys.modules["multiprocessing.context"]._default_context
        yield Setting(
            "start method of multiprocessing",
            _attribute(context, "_actual_context"),
            partial(setattr, context, "_actual_context"),
            {"set_start_method"},
        )
    if "pandas" in sys.modules:
        yield from _pandas_settings(sys.modules["pandas"])
    if "torch" in sys.modules:
        yield from _torch_settings(sys.modules["torch"])


def _pandas_settings(pandas: Any) -> Iterator[Setting]:
    words = {"set_option", "options", "reset_option"}

    def read() -> dict[str, Any]:
        # Nested, as it is: to flatten it took half of the time of all settings.
        options: dict[str, Any] = pandas._config.config._global_config
        return options

    def write(saved: dict[str, Any]) -> None:
        now = _flat(read())
        for name, value in _flat(saved).items():
            if now.get(name) != value:
                # Without matplotlib one raises once it is set, and is not to keep the others.
                with contextlib.suppress(Exception):
                    pandas.set_option(name, value)

    with contextlib.suppress(AttributeError):
        read()
        yield Setting("pandas' options", read, write, words)


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat


def _torch_settings(torch: Any) -> Iterator[Setting]:
    # A module that is being imported, or another one of the name, lacks these.
    pairs = (
        ("get_num_threads", "set_num_threads"),
        ("get_default_dtype", "set_default_dtype"),
        ("is_grad_enabled", "set_grad_enabled"),
        ("are_deterministic_algorithms_enabled", "use_deterministic_algorithms"),
        ("is_anomaly_enabled", "autograd.set_detect_anomaly"),
    )
    for read, write in pairs:
        with contextlib.suppress(AttributeError):
            yield Setting(f"torch.{write}()", attrgetter(read)(torch), attrgetter(write)(torch))
