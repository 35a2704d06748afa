"""A process of its own for each partition, forked from one that has loaded all that the work needs.

The process that forks runs no function itself and starts no threads: a fork has only one of them,
and would wait for ever for what another one held. What a function starts is ended with its fork.
"""

import faulthandler
import gc
import os
import signal
import threading
from collections.abc import Callable

from partwise.errors import FunctionError
from partwise.processes.family import children_of, end_children
from partwise.processes.starting import end_with_parent


def refuse_threads() -> None:
    """Refuse to fork a process that has started threads."""
    started = [repr(t.name) for t in threading.enumerate() if t is not threading.main_thread()]
    if started:
        raise FunctionError(
            f"What the function needs starts a thread when it is imported ({', '.join(started)}); "
            "with isolation='partition' it is imported once, for all partitions, and their "
            "processes would lack that thread. Start it in the function, or use "
            "isolation='shared'."
        )


class ForkServer:
    """This process, ready to fork; made when all is loaded."""

    def __init__(self) -> None:
        refuse_threads()
        self._pid = os.getpid()
        # What importing has started, such as the process that keeps count of semaphores.
        self._spared = frozenset(children_of(self._pid))
        # A collection in a fork would write to every object, and so copy the memory of all.
        gc.collect()
        gc.freeze()

    def run(self, function: Callable[[], None]) -> int:
        """Call a function in a fork, end what is left of it, and return its wait status."""
        pid = os.fork()
        if pid == 0:
            try:
                end_with_parent(self._pid)
                function()
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitpid(pid, 0)[1]
        end_children(self._spared)
        return status


def end_like(status: int) -> None:
    """End this process as another one has ended: who waits for this one learns of that.

    `status` is from `waitpid`.
    """
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        faulthandler.disable()
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            # A keeper holds SIGTERM back: it would end by a code that no signal has.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
