"""Calling uv: which program, with which of the caller's indexes, and what it says when it fails.

How uv is set up besides (UV_ variables, uv.toml) is left to uv and its user. Indexes are handed
over as variables, since other users of a machine can read command lines. uv runs in a folder
without a project: what a project says of uv would count on the driver only.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import uv

from partwise.environments.environment import without_passwords

_MOST_CHARS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSources:
    """Where packages come from besides what uv is set up with; may hold passwords."""

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def variables(self) -> dict[str, str]:
        """Return the variables that tell uv the same, with what stands in them already."""
        places = [*self.find_links, os.environ.get("UV_FIND_LINKS", "")]
        indexes = [*self.extra_index_urls, os.environ.get("UV_INDEX", "")]
        # Not as arguments, which other users of a machine see: an address may have a password.
        given = {"UV_FIND_LINKS": ",".join(filter(None, places))}
        if not self.no_index:
            given["UV_DEFAULT_INDEX"] = self.index_url
            given["UV_INDEX"] = " ".join(filter(None, indexes))
        return {name: value for name, value in given.items() if value}

    def options(self) -> list[str]:
        """Return the options for what no variable says."""
        return ["--no-index"] if self.no_index else []


class UvError(Exception):
    """uv failed; its own words, without passwords."""


def run_uv(
    arguments: Sequence[str],
    sources: PackageSources,
    directory: str,
    *,
    text: str = "",
    inherited: Sequence[int] = (),
) -> None:
    """Run uv to its end.

    `inherited` descriptors are held by it, and what it starts, as long as they live.

    Raises:
        UvError: It failed.
    """
    variables = {**os.environ, **sources.variables(), "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    # They would have it look at another Python than the one that it is given.
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME"):
        variables.pop(name, None)
    try:
        program = uv.find_uv_bin()
    except FileNotFoundError as error:
        raise UvError("it is not there, and partwise needs it: pip install uv") from error
    ended = subprocess.run(  # noqa: S603
        [program, *arguments],
        input=text,
        capture_output=True,
        text=True,
        cwd=directory,
        env=variables,
        pass_fds=inherited,
        check=False,
    )
    if ended.returncode:
        # Masked before it is cut: of a secret that the cut divides, nobody would know the rest.
        said = without_passwords(_plain(ended.stderr or ended.stdout))
        raise UvError(said[-_MOST_CHARS:] or "it says nothing")


def _plain(text: str) -> str:
    """Return what a program says of its failure as lines without its drawings."""
    lines = [re.sub(r"^\W+", "", line).strip() for line in text.splitlines()]
    return " ".join(filter(None, lines))
