"""Environments of a conda file: micromamba, mamba or conda resolves and builds them.

Which packages it chooses is known to it alone. So a changed file counts as changed packages, and an
unchanged one as the same packages, although another machine may have been given newer ones.
"""

import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from partwise.environments.environment import Environment, without_passwords
from partwise.environments.requirement_files import read_text
from partwise.environments.resolved_environment import ResolvedEnvironment, python_version
from partwise.errors import EnvironmentBuildError, PackageError

PROGRAMS = ("micromamba", "mamba", "conda")
_MOST_CHARS = 2_000


def resolve_conda(environment: Environment) -> ResolvedEnvironment:
    """Read a conda file and, where there is a conda program, see that it can be resolved."""
    text = read_text(Path(environment.conda_file).absolute())
    # The workers are asked in any case; the driver's machine may have no conda.
    if program := find_conda():
        with tempfile.TemporaryDirectory(prefix="partwise-conda-") as directory:
            ended = _run(program, text, Path(directory, "env"), directory, ["--dry-run"])
        if ended.returncode:
            raise PackageError(
                f"The environment of {environment} cannot be resolved. {Path(program).name} says: "
                f"{_words(ended)}"
            )
    return ResolvedEnvironment(
        name=str(environment),
        conda=text,
        python=python_version(),
        platform=sysconfig.get_platform(),
    )


def build_conda(resolved: ResolvedEnvironment, tree: Path, lock: int) -> None:
    """Have conda make an environment."""
    program, host = find_conda(), socket.gethostname()
    if program is None:
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} needs conda, and {host} has none of "
            f"{', '.join(PROGRAMS)}: install one there, or name pip packages."
        )
    ended = _run(program, resolved.conda, tree, str(tree.parent), [], (lock,))
    if ended.returncode:
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} cannot be built on {host}. {Path(program).name} "
            f"says: {_words(ended)}"
        )


def find_conda() -> str | None:
    """Return the first of the conda programs that this machine has."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def _run(
    program: str,
    text: str,
    tree: Path,
    directory: str,
    options: Sequence[str],
    inherited: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Have a conda program create an environment of a file with this text."""
    file = Path(directory, "environment.yml")
    file.write_text(text)
    create = ["create"] if Path(program).name == "micromamba" else ["env", "create"]
    words = [*create, "--prefix", str(tree), "--file", str(file), *options]
    # In place of --yes, which older ones of them do not all take.
    variables = {**os.environ, "CONDA_ALWAYS_YES": "true", "MAMBA_ALWAYS_YES": "true"}
    return subprocess.run(  # noqa: S603
        [program, *words],
        capture_output=True,
        text=True,
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        pass_fds=inherited,
        check=False,
    )


def _words(ended: subprocess.CompletedProcess[str]) -> str:
    said = ended.stderr.strip() or ended.stdout.strip() or "nothing"
    return without_passwords(" ".join(said.split()))[-_MOST_CHARS:]
