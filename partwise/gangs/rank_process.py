"""A node's side of a rank: start its process, watch it from outside, end all of it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from partwise.engine.failures import Failure, fingerprint_failure, printable
from partwise.gangs.logs import RankLog
from partwise.gangs.rank_settings import (
    ERROR_FILE,
    STEPS_FILE,
    RankOutcome,
    RankSettings,
    read_outcome,
    write_settings,
)
from partwise.processes.family import children_of, descendants_of, kill, state_of
from partwise.processes.keeper import END_ALL, KEEPER_S
from partwise.processes.memory import anonymous_bytes
from partwise.processes.shared_files import own_folder_of, remove_own_files
from partwise.processes.starting import Starter, describe_exit

if TYPE_CHECKING:
    from partwise.environments.building import BuiltEnvironment

LOOK_S = 0.005
TAIL_BYTES = 1_500
"""So much of the end of its log stands in the failure of a rank that told nothing itself."""

# One for the whole process, as the kernel ends what a thread has started when that thread ends.
_starter = Starter("gang")


class RankProcess:
    """A running rank and all that it started.

    Args:
        settings: How it starts; the log, the port and the listener are inherited by number.
        environment: All of its variables.
        log: Where its output goes.
        reserved: Holds its port until it has started; then the rank alone does.
        packages: Come before those of this process; None: there are none.
    """

    def __init__(
        self,
        settings: RankSettings,
        environment: Mapping[str, str],
        log: RankLog,
        reserved: socket.socket,
        packages: "BuiltEnvironment | None" = None,
    ) -> None:
        self.rank = settings.rank
        self.directory = settings.directory
        self._token = settings.token
        self.log = log
        self.peak_bytes = 0
        self.ended_because = ""
        """Why it was ended from outside; empty: it was not."""
        self.was_told_to_end = False
        self._killed_since: float | None = None
        self._stopped_since: float | None = None
        self._stopped_s = 0.0
        """For so long it had been stopped when it was killed for that."""
        self.seconds = 0.0
        self._is_command = bool(settings.words)
        self._began = time.monotonic()
        self.exit_code: int | None = None
        settings_fd = write_settings(settings)
        inherited = [settings_fd, *settings.descriptors()]
        site_packages, held = "", -1
        if packages is not None:
            site_packages, held = packages.site_packages, packages.hold()
            # It may live on when this process has given the environment free.
            inherited += [held] if held >= 0 else []
        try:
            self._process = _starter.start(
                "partwise.gangs.guard",
                json.dumps([settings_fd, os.getpid()]),
                site_packages=site_packages,
                stdin=subprocess.DEVNULL,
                stdout=log.descriptor,
                stderr=log.descriptor,
                pass_fds=inherited,
                start_new_session=True,
                env=dict(environment),
            )
        finally:
            os.close(settings_fd)
            if held >= 0:
                os.close(held)
            # From now on the rank alone holds it.
            reserved.close()
        self.pid = self._process.pid

    def has_ended(self) -> bool:
        """Whether the rank has ended, and with it all that it started."""
        if self.exit_code is None:
            self.exit_code = self._process.poll()
            self.seconds = time.monotonic() - self._began
        return self.exit_code is not None

    def end_if_stopped(self, longest_s: float) -> None:
        """Kill the rank when it has been stopped (SIGSTOP) for longer, as others wait for it.

        One that a debugger holds is in another state, and left alone.
        """
        if "T" not in (state_of(pid) for pid in (self.pid, *children_of(self.pid))):
            self._stopped_since = None
            return
        now = time.monotonic()
        self._stopped_since = now if self._stopped_since is None else self._stopped_since
        if now - self._stopped_since > longest_s:
            self._stopped_s = now - self._stopped_since
            self.kill()

    def measure(self) -> None:
        """Note how much anonymous memory the rank and all that it started have now."""
        family = (self.pid, *descendants_of(self.pid))
        self.peak_bytes = max(self.peak_bytes, sum(map(anonymous_bytes, family)))

    def terminate(self, because: str) -> None:
        """Ask the rank to end, and all processes of its group."""
        if self.has_ended():
            return
        self.was_told_to_end = True
        # One that has told its outcome is ending by itself.
        if self.outcome() is None:
            self.ended_because = because
        for number in (signal.SIGTERM, signal.SIGCONT):
            # One that was stopped could not answer.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """Have the guard kill the rank and all that it started; call it until the rank has ended.

        It is not waited for, so that those of several ranks do so at the same time.
        """
        if self.has_ended():
            return
        now = time.monotonic()
        if self._killed_since is None:
            self._killed_since = now
            for number in (END_ALL, signal.SIGCONT):
                # Nothing of the user's has run where it does not hold signals back yet: it dies.
                self._process.send_signal(number)
        elif now - self._killed_since > KEEPER_S:
            self._kill_all()

    def _kill_all(self) -> None:
        # Those that have left the session too: they are found below the guard while it is there.
        family = [self.pid, *descendants_of(self.pid)]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        kill(family)
        self._process.wait()

    def close(self) -> None:
        """Kill the rank and wait until it has ended."""
        while not self.has_ended():
            self.kill()
            time.sleep(LOOK_S)
        self.log.close()

    def remove_files(self) -> None:
        """Remove what is left in shared memory, when all that it started has ended.

        Its guard has done so, unless somebody killed that.
        """
        remove_own_files(self._token, own_folder_of(self.directory, self._token))

    def outcome(self) -> RankOutcome | None:
        """Return what the rank told of its work; of a command, and of one that died, None."""
        return None if self._is_command else read_outcome(self.directory)

    def failure(self, outcome: RankOutcome | None) -> Failure | None:
        """Return why the rank failed; None: it did not, or it was ended from outside."""
        if outcome is not None and outcome.failure is not None:
            return Failure(**outcome.failure)
        if self.ended_because or self.exit_code is None:
            return None
        if self.exit_code == 0 and (self._is_command or outcome is not None):
            return None
        how = f"Its process ended: {describe_exit(self.exit_code)}"
        if self.exit_code == 0:
            how += ", before its function had returned"
        if self._stopped_s:
            how = f"Its process was stopped (SIGSTOP) for {self._stopped_s:.0f} s, and killed"
        tail = printable(self.log.content()[-TAIL_BYTES:].decode(errors="replace")).strip()
        message = f"{how}.\nIts log ends with:\n{tail}" if tail else f"{how}."
        digest = fingerprint_failure("ProcessDied", how)
        return Failure(error_type="ProcessDied", message=message, fingerprint=digest, final=False)

    def steps(self) -> tuple[tuple[int, float], ...]:
        """Return what the rank has told of its steps so far, with the watched metric at each."""
        try:
            text = Path(self.directory, STEPS_FILE).read_text()
        except FileNotFoundError:
            return ()
        # The last line may be in the making.
        whole = text[: text.rfind("\n") + 1].splitlines()
        return tuple((int(step), float(value)) for step, value in map(str.split, whole))

    def error(self) -> bytes:
        """Return the exception that the rank left, pickled; empty: none."""
        try:
            return Path(self.directory, ERROR_FILE).read_bytes()
        except FileNotFoundError:
            return b""
