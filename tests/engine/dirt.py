"""Kinds of dirt that a partition may leave, and what its neighbours would see of each."""

import _thread
import builtins
import decimal
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa

from partwise.processes.family import children_of

DAEMON = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)"
COUNTER = 0


class Settings:
    """A class of the user's own."""

    rate = 1


def nothing(*_: object) -> None:
    """Stand for a handler or a hook."""


def set_environment() -> None:
    os.environ["MODE"] = "dirty"
    del os.environ["PATH"]


def limit_openmp() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


def replace_environ() -> None:
    os.environ = {}  # noqa: B003


def set_time_zone() -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    del os.environ["TZ"]


def replace_builtin() -> None:
    builtins.sorted = lambda values: list(values)


def add_builtin() -> None:
    builtins.surprise = 1


def replace_function() -> None:
    np.mean = lambda *_: -1.0


def replace_class_attribute() -> None:
    Settings.rate = 2


def replace_method() -> None:
    pd.DataFrame.head = nothing


def count() -> None:
    global COUNTER
    COUNTER += 1


def replace_module() -> None:
    sys.modules["json"] = types.ModuleType("json")


def remove_module() -> None:
    del sys.modules["json"]


def ignore_warnings() -> None:
    warnings.simplefilter("error")
    warnings.showwarning = nothing


def block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])


def handle(number: signal.Signals) -> Callable[[], None]:
    return lambda: signal.signal(number, nothing)


def start_timer() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 100.0)


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def start_thread() -> None:
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()


def start_process() -> None:
    subprocess.Popen(["sleep", "300"])


def start_daemon() -> None:
    subprocess.run([sys.executable, "-c", DAEMON], env={}, check=True)


def close_output() -> None:
    sys.stdout.close()
    os.close(1)


def redirect_output() -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def change_logging() -> None:
    root = logging.getLogger()
    root.handlers[0].setFormatter(logging.Formatter("dirty %(message)s"))
    root.handlers[0].setLevel(logging.CRITICAL)
    root.addHandler(logging.NullHandler())
    root.setLevel(logging.ERROR)


def set_logger() -> None:
    logging.getLogger("user").setLevel(logging.CRITICAL)


def set_hooks() -> None:
    sys.excepthook = threading.excepthook = sys.unraisablehook = nothing
    threading.settrace(nothing)


def use_generator() -> None:
    np.random.set_state(np.random.RandomState(5).get_state())
    random.seed(5)


KINDS: dict[str, Callable[[], object]] = {
    "environment": set_environment,
    "OMP_NUM_THREADS": limit_openmp,
    "os.environ": replace_environ,
    "time zone": set_time_zone,
    "umask": lambda: os.umask(0o077),
    "folder": lambda: os.chdir("/"),
    "decimal precision": lambda: setattr(decimal.getcontext(), "prec", 3),
    "decimal default": lambda: setattr(decimal.DefaultContext, "prec", 3),
    "numpy errors": lambda: np.seterr(all="raise"),
    "numpy print options": lambda: np.set_printoptions(precision=2),
    "function of numpy": replace_function,
    "builtin": replace_builtin,
    "new builtin": add_builtin,
    "class of one's own": replace_class_attribute,
    "method of pandas": replace_method,
    "global of one's own": count,
    "module": replace_module,
    "removed module": remove_module,
    "warnings": ignore_warnings,
    "locale": lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"),
    "sys.path": lambda: sys.path.insert(0, "/nowhere"),
    "other sys.path": lambda: setattr(sys, "path", ["/nowhere", *sys.path]),
    "sys.argv": lambda: sys.argv.append("dirty"),
    "gc": gc.disable,
    "gc thresholds": lambda: gc.set_threshold(1, 2, 3),
    "affinity": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "SIGINT": handle(signal.SIGINT),
    "SIGTERM": handle(signal.SIGTERM),
    "SIGALRM": handle(signal.SIGALRM),
    "blocked signals": block_signals,
    "timer": start_timer,
    "priority": lambda: os.nice(1),
    "open files": limit_files,
    "thread": start_thread,
    "process": start_process,
    "daemon": start_daemon,
    "closed output": close_output,
    "redirected output": redirect_output,
    "logging": change_logging,
    "logging.disable": lambda: logging.disable(logging.CRITICAL),
    "logger": set_logger,
    "seeds": use_generator,
    "pandas options": lambda: pd.set_option("display.max_rows", 3),
    "recursion limit": lambda: sys.setrecursionlimit(400),
    "switch interval": lambda: sys.setswitchinterval(0.5),
    "hooks": set_hooks,
    "profile": lambda: sys.setprofile(nothing),
    "socket": lambda: socket.setdefaulttimeout(1.0),
    "start method": lambda: multiprocessing.set_start_method("spawn", force=True),
    "faulthandler": faulthandler.disable,
}


def see() -> dict[str, str]:
    """Return what a partition sees of each kind."""
    root = logging.getLogger()
    umask = os.umask(0)
    os.umask(umask)
    with warnings.catch_warnings():
        filters = len(warnings.filters), warnings.filters[:1]
    seen = {
        "environment": dict(os.environ) if isinstance(os.environ, dict) else os.environ.copy(),
        "os.environ": type(os.environ).__name__,
        "time zone": (time.tzname, time.localtime(0).tm_hour),
        "umask": umask,
        "folder": os.path.basename(os.getcwd()),
        "decimal precision": decimal.Decimal(1) / 3,
        "decimal default": decimal.DefaultContext.prec,
        "numpy errors": np.geterr(),
        "numpy print options": np.get_printoptions()["precision"],
        "function of numpy": np.mean([1.0, 2.0]),
        "builtin": sorted([2, 1]),
        "new builtin": hasattr(builtins, "surprise"),
        "class of one's own": Settings.rate,
        "method of pandas": pd.DataFrame.head.__name__,
        "global of one's own": COUNTER,
        "module": sys.modules.get("json") is json,
        "warnings": (filters, warnings.showwarning.__name__),
        "locale": locale.setlocale(locale.LC_ALL),
        "sys.path": sys.path,
        "sys.argv": len(sys.argv),
        "gc": (gc.isenabled(), gc.get_threshold()),
        "affinity": sorted(os.sched_getaffinity(0)),
        "SIGINT": [signal.getsignal(number) for number in (2, 14, 15)],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "timer": signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0,
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "thread": (threading.active_count(), _thread._count()),
        "process": len(list(children_of(os.getpid()))),
        "closed output": (
            sys.stdout.closed,
            sys.stderr.closed,
            os.fstat(1).st_ino == os.fstat(2).st_ino,
        ),
        "redirected output": (sys.stdout.name, sys.stderr.name),
        "logging": (len(root.handlers), root.level, root.handlers[0].level),
        "form of the log": root.handlers[0].formatter._fmt,
        "logging.disable": root.manager.disable,
        "logger": logging.getLogger("user").isEnabledFor(logging.INFO),
        "seeds": (random.random(), np.random.rand()),
        "pandas options": pd.get_option("display.max_rows"),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "hooks": [hook.__name__ for hook in (sys.excepthook, threading.excepthook)],
        "unraisable": (sys.unraisablehook.__name__, threading.gettrace()),
        "profile": sys.getprofile(),
        "socket": socket.getdefaulttimeout(),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "faulthandler": faulthandler.is_enabled(),
    }
    return {kind: repr(value) for kind, value in seen.items()}


def neighbours(kinds: list[str], reverse: bool = False) -> pa.Table:
    """Return rows of which every second partition is dirty, so that each has clean ones around."""
    keys = [f"{place:03d}" for place in range(2 * len(kinds) + 1)][:: -1 if reverse else 1]
    names = [name for kind in kinds for name in ("", kind)] + [""]
    return pa.table({"key": keys, "kind": names})


def soil_and_see(data, context):
    kind = data.to_arrow()["kind"][0].as_py()
    if kind:
        KINDS[kind]()
        return {"seen": ["{}"]}
    return {"seen": [json.dumps(see())]}


def only_see(data, context):
    kind = data.to_arrow()["kind"][0].as_py()
    return {"seen": ["{}" if kind else json.dumps(see())]}


def seen(run) -> dict[str, dict[str, str]]:
    """Return what each clean partition saw; names of temporary folders left out."""
    rows = run.predictions().select(["key", "seen"]).to_pylist()
    plain = {row["key"]: re.sub(r"PARTWISE_CHILD': '[^']*'", "", row["seen"]) for row in rows}
    return {key: json.loads(text) for key, text in plain.items() if text != "{}"}


def differences(run, clean) -> list[tuple[str, str, str, str]]:
    expected = seen(clean)
    return [
        (key, kind, value, expected[key][kind])
        for key, values in seen(run).items()
        for kind, value in values.items()
        if value != expected[key][kind]
    ]
