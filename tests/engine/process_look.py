"""What code finds in its process when it is loaded, as far as others could have left it there."""

import decimal
import json
import locale
import os
import random
import resource
import signal
import sys
import threading
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

LIBRARIES = ("pandas", "sklearn.ensemble", "lightgbm", "partwise.trainers")


def look() -> dict[str, Any]:
    """Return what is there."""
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    mask = os.umask(0)
    os.umask(mask)
    return {
        "path": sys.path,
        "flags": repr(sys.flags),
        "filters": repr(warnings.filters),
        "recursion": sys.getrecursionlimit(),
        # A child seeds what is imported later by one of its own.
        "finders": sorted({type(each).__name__ for each in sys.meta_path} - {"Seeding"}),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "handlers": {int(each): repr(signal.getsignal(each)) for each in signal.valid_signals()},
        "umask": mask,
        # A child writes no core file.
        "limits": {
            name: resource.getrlimit(getattr(resource, name))
            for name in limits
            if name != "RLIMIT_CORE"
        },
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cpus": sorted(os.sched_getaffinity(0)),
        "locale": locale.setlocale(locale.LC_ALL),
        "decimal": repr(decimal.getcontext()),
        "threads": threading.active_count(),
        "streams": [each.encoding for each in (sys.stdin, sys.stdout, sys.stderr)],
        "variables": {
            name: value for name, value in os.environ.items() if name != "PARTWISE_CHILD"
        },
    }


def main(path: str) -> None:
    """Write it to a file, with numbers drawn at random, which are to be this process's own."""
    import numpy as np

    # They add to what there is, wherever they are imported.
    for name in LIBRARIES:
        import_module(name)
    drawn = [random.random(), np.random.random()]
    Path(path).write_text(json.dumps({**look(), "drawn": drawn}))


class Look:
    """Pickled, it looks where it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return main, (self.path,)
