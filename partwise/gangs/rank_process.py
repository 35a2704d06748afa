"""A node's side of a rank: start its process, watch it from outside, end all of it."""

import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from partwise.engine.failures import Failure, fingerprint_failure, storable
from partwise.gangs.logs import RankLog
from partwise.gangs.rank_settings import (
    ERROR_FILE,
    STEPS_FILE,
    RankOutcome,
    RankSettings,
    read_outcome,
    write_settings,
)
from partwise.processes.family import state_of
from partwise.processes.memory import FamilyMemory
from partwise.processes.shared_files import own_folder_of, remove_own_files
from partwise.processes.starting import describe_exit
from partwise.processes.warm_server import SERVERS, Preloaded

if TYPE_CHECKING:
    from partwise.environments.building import BuiltEnvironment

TAIL_BYTES = 1_500
"""So much of the end of its log stands in the failure of a rank that reported nothing itself."""


class RankProcess:
    """A running rank and all that it started.

    The log, the port and the listener of `settings` are inherited by number. `reserved` holds its
    port until it has started; then the rank alone does.
    """

    def __init__(
        self,
        settings: RankSettings,
        descriptors: Mapping[str, int],
        mark: str,
        variables: Mapping[str, str],
        own_variables: Mapping[str, str],
        log: RankLog,
        reserved: socket.socket,
        packages: "BuiltEnvironment",
        preloaded: Preloaded,
    ) -> None:
        self.rank = settings.rank
        self.directory = settings.directory
        self._token = settings.token
        self._run_id = settings.run_id
        self.log = log
        self.peak_bytes = 0
        self._memory = FamilyMemory(settings.node_directory)
        self.ended_because = ""
        """Why it was ended from outside; empty: it was not."""
        self.was_told_to_end = False
        self._stopped_since: float | None = None
        self._stopped_s = 0.0
        """For so long it had been stopped when it was killed for that."""
        self.seconds = 0.0
        self._began = time.monotonic()
        self.exit_code: int | None = None
        settings_fd = write_settings(settings)
        # It may live on when this process has given the environment free.
        held = packages.hold()
        try:
            self._process = SERVERS.start(
                "partwise.gangs.rank",
                {"token": settings.token, "directory": settings.directory},
                {"settings_fd": settings_fd, "log_fd": log.descriptor, **descriptors},
                mark,
                variables,
                own_variables,
                # Ranks of one run, in every attempt and trial, use the same libraries.
                work_name=settings.run_id,
                preloaded=preloaded,
                site_packages=packages.site_packages,
                held=held,
            )
        finally:
            os.close(settings_fd)
            if held >= 0:
                os.close(held)
            # From now on the rank alone holds it.
            reserved.close()

    def has_ended(self) -> bool:
        """Whether the rank has ended, and with it all that it started."""
        if self.exit_code is None:
            self.exit_code = self._process.poll()
            self.seconds = time.monotonic() - self._began
            if self.exit_code is not None and (outcome := self.outcome()) is not None:
                SERVERS.learn(self._run_id, outcome.libraries)
        return self.exit_code is not None

    def end_if_stopped(self, longest_s: float) -> None:
        """Kill the rank when it has been stopped (SIGSTOP) for longer, as others wait for it.

        One that a debugger holds is in another state, and left alone.
        """
        if "T" not in map(state_of, (self._process.keeper_pid, self._process.pid)):
            self._stopped_since = None
            return
        now = time.monotonic()
        self._stopped_since = now if self._stopped_since is None else self._stopped_since
        if now - self._stopped_since > longest_s:
            self._stopped_s = now - self._stopped_since
            self.kill()

    def measure(self) -> None:
        """Note how much memory the rank and all that it started have now."""
        now = self._memory.measure(self._process.family(), sys.maxsize)
        self.peak_bytes = max(self.peak_bytes, now)

    def terminate(self, because: str) -> None:
        """Ask the rank to end, and all processes of its group."""
        if self.has_ended():
            return
        self.was_told_to_end = True
        # One that has reported its outcome is ending by itself.
        if self.outcome() is None:
            self.ended_because = because
        self._process.ask_to_end()

    def kill(self) -> None:
        """Have all of the rank killed; called until it has ended, which is not waited for."""
        self._process.end()

    def close(self) -> None:
        """Kill the rank and wait until it has ended."""
        self._process.wait_end()
        self.has_ended()
        self.log.close()

    def remove_files(self) -> None:
        """Remove what is left in shared memory, when all that it started has ended.

        Its keeper has done so, unless somebody killed that.
        """
        remove_own_files(self._token, own_folder_of(self.directory, self._token))

    def outcome(self) -> RankOutcome | None:
        """Return what the rank reported of its work; None: it died, or is at it."""
        return read_outcome(self.directory)

    def failure(self, outcome: RankOutcome | None) -> Failure | None:
        """Return why the rank failed; None: it did not, or it was ended from outside."""
        if outcome is not None and outcome.failure is not None:
            return Failure(**outcome.failure)
        if self.ended_because or self.exit_code is None:
            return None
        if self.exit_code == 0 and outcome is not None:
            return None
        how = f"Its process ended: {describe_exit(self.exit_code)}"
        if self.exit_code == 0:
            how += ", before its function had returned"
        if self._stopped_s:
            how = f"Its process was stopped (SIGSTOP) for {self._stopped_s:.0f} s, and killed"
        # A secret that the cut would divide is masked before.
        tail = storable(self.log.content().decode(errors="replace"))[-TAIL_BYTES:].strip()
        message = f"{how}.\nIts log ends with:\n{tail}" if tail else f"{how}."
        digest = fingerprint_failure("ProcessDied", how)
        return Failure(error_type="ProcessDied", message=message, fingerprint=digest, final=False)

    def steps(self) -> tuple[tuple[int, float], ...]:
        """Return what the rank has reported of its steps, with the watched metric at each."""
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
