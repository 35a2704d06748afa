"""Environments beside partwise, on this machine: built, and tried."""

import asyncio
import os
import re
import socket
import subprocess

from partwise.environments.building import BuiltEnvironment, open_environment
from partwise.environments.resolved_environment import ResolvedEnvironment, python_version
from partwise.errors import EnvironmentBuildError
from partwise.processes.starting import python_words
from partwise.redaction import without_secrets

TRIAL_TIMEOUT_S = 120.0
_TAIL_CHARS = 1_500


async def build_and_try(resolved: ResolvedEnvironment) -> None:
    """Build an environment on this machine, and see that partwise runs with it."""
    # Not on the worker's loop: it may take minutes, and the scheduler wants to hear of the worker.
    await asyncio.to_thread(_build_here, resolved)


def _build_here(resolved: ResolvedEnvironment) -> None:
    with open_environment(resolved) as built:
        try_environment(resolved, built)


def try_environment(resolved: ResolvedEnvironment, built: BuiltEnvironment) -> None:
    """See that partwise can be imported with these packages before its own.

    Raises:
        EnvironmentBuildError: It cannot; has what Python said.
    """
    found = re.search(r"python(\d+\.\d+)", os.path.basename(os.path.dirname(built.site_packages)))
    if found is not None and found[1] != python_version():
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} has Python {found[1]}, and functions for "
            f"partitions run in the workers' Python {python_version()}: name that one."
        )
    words = python_words("partwise.engine.child.trial", "", built.site_packages)
    ended = subprocess.run(  # noqa: S603
        words,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TRIAL_TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise EnvironmentBuildError(
            f"partwise does not run on {socket.gethostname()} with the environment of "
            f"{resolved.name} before its own packages; Python says: "
            f"{without_secrets(' '.join(ended.stderr.split()))[-_TAIL_CHARS:] or 'nothing'}"
        )


def packages_variables(built: BuiltEnvironment) -> dict[str, str]:
    """Return the variables by which a process finds the programs of an environment."""
    if not built.scripts:
        return {}
    return {"PATH": os.pathsep.join(filter(None, (built.scripts, os.environ.get("PATH", ""))))}
