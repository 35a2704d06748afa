"""Signals that end a command, also while Python is busy with a finalizer.

What a signal's handler raises within `__del__` Python prints and forgets, and the command would go
on: an import of transformers has thousands of such moments, in its regular expressions.
"""

import signal
import sys
import threading

from partwise.flows.cli.exit_codes import TERMINATED

_AGAIN_S = 0.01
"""By then the finalizer is over; where another one forgets it, there is a next time."""


def end_by_signals() -> None:
    """Have Ctrl-C raise KeyboardInterrupt, and SIGTERM SystemExit, until one is heard of."""
    # By default Python ends at once on SIGTERM, and an embedded server would live on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    print_it = sys.unraisablehook

    def hear(unraisable: "sys.UnraisableHookArgs") -> None:
        match unraisable.exc_value:
            case KeyboardInterrupt():
                number = signal.SIGINT
            case SystemExit(code=code) if code == TERMINATED:
                number = signal.SIGTERM
            case _:  # a finalizer's own exit as well
                print_it(unraisable)
                return
        # Not from here: what is raised in this function is forgotten as well.
        main = threading.main_thread().ident
        again = threading.Timer(_AGAIN_S, signal.pthread_kill, [main, number])
        again.daemon = True
        again.start()

    sys.unraisablehook = hear
