"""An environment of which every package is known."""

import hashlib
import json
import re
import sys
from dataclasses import dataclass, field

from partwise.environments.environment import without_passwords
from partwise.environments.uv import PackageSources

_FORMAT = 1
_HASH = re.compile(r"--hash=sha256:([0-9a-f]+)")
_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?\s*(==\s*(?P<version>\S+)|@\s*(?P<url>\S+))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEnvironment:
    """An environment of which every package is known; travels to workers."""

    name: str
    """How messages name it."""
    pins: tuple[str, ...] = field(default=(), repr=False)
    """Requirement lines, each of one version with the checksums of its files."""
    replaceable: frozenset[str] = frozenset()
    """Names of those that come from a folder or page of wheels, where a file of the same version
    may be another one tomorrow; an index never replaces a file."""
    options: tuple[str, ...] = ()
    """Which of them are to be taken, or not, as wheels."""
    conda: str = field(default="", repr=False)
    """The text of a conda file, which conda itself resolves; empty: it is of pip packages."""
    is_own: bool = True
    """False: it is the workers' own Python, as it is."""
    python: str
    """Of which Python, such as 3.11."""
    platform: str
    sources: PackageSources = field(default=PackageSources(), repr=False)

    @property
    def key(self) -> str:
        """What it is named by where it is built: equal for equal packages, for any wording."""
        content = [_FORMAT, self.python, self.platform, sorted(self.pins), self.options, self.conda]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package, or the address that it comes from, without passwords.

        Equal where the packages are: of what may be replaced, a part of the checksum is there too.
        """
        if self.conda:
            return {"conda-file": hashlib.sha256(self.conda.encode()).hexdigest()[:12]}
        found = {}
        for pin in self.pins:
            if match := _PIN.match(pin):
                name = match["name"]
                found[name] = match["version"] or without_passwords(match["url"])
                if name in self.replaceable:
                    found[name] += f" ({'/'.join(digest[:12] for digest in _HASH.findall(pin))})"
        return found


def python_version() -> str:
    """Return the version of this Python by which packages are chosen, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
