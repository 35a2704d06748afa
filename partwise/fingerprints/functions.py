"""Whether a function or trainer is still what it was, decided in another process on another day.

Source text does not see values, pickled bytes differ in every process, and compiled code holds line
numbers. So the fingerprint walks over what a function consists of: its instructions, the constants,
defaults, closures and globals that they name, the functions and classes of the user's own code
among those, and the settings of trainers. Order counts, but for sets.

What such a walk cannot see counts as a whole, or makes the fingerprint unknown:

- A module of the user's own that is only imported inside a function counts with all its statements.
- Code that can reach any other (`globals()`, `eval`, `sys.modules`, `__subclasses__`) makes all own
  modules count that it can find loaded: those that importing the function imports.
- Of these, the statements count that do something on import, such as settings of libraries.
- Docstrings, annotations of functions and the order of methods count once any own code reads such.
- Imports of a computed name, and code that is read as text or from files, make it unknown.

Of installed packages that own code imports, the versions count. It cannot see files that are read,
environment variables, or data behind an object that is known only by its name. Comments and moved
lines do not count.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from partwise.fingerprints.canonical import canonical_bytes, frame
from partwise.fingerprints.code_walk import CodeWalk, label_of, package_of
from partwise.fingerprints.user_modules import OwnCode

__all__ = ["CodeFingerprint", "arguments_fingerprint", "canonical_bytes", "code_fingerprint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFingerprint:
    """What `code_fingerprint` found."""

    digest: str | None
    """Equal when the code is; None when that cannot be determined."""
    unknown: tuple[str, ...] = ()
    """What cannot be compared, as "shop.fit: global LOCK (_thread.lock)"."""
    parts: Mapping[str, str] = field(default_factory=dict, compare=False)
    """What it is made of, as "function shop:fit" and its hash, or "library lightgbm" and its
    version."""


def code_fingerprint(obj: Any, version: str | None = None) -> CodeFingerprint:
    """Return a fingerprint of a function, or of an object such as a trainer with its settings.

    `version` is the user's own word for it, which is taken in place of looking.
    """
    if version is not None:
        return CodeFingerprint(digest=hashlib.sha256(frame("version", version)).hexdigest())
    return arguments_fingerprint({label_of(obj): obj})


def arguments_fingerprint(
    arguments: Mapping[str, Any], given: Mapping[str, str] | None = None
) -> CodeFingerprint:
    """Return a fingerprint of values and functions, each of which is a part of its own.

    `given` are more parts, as they are: versions of libraries, checksums of files.
    """
    own = OwnCode({package_of(value) for value in arguments.values()})
    try:
        walk = CodeWalk(own)
        parts = walk.parts(arguments)
        if walk.reads and not walk.unknown:
            # Not at once: where no code reads docstrings, a new one is not a change.
            walk = CodeWalk(own, whole=True)
            parts = walk.parts(arguments)
    except RecursionError:
        name = next(iter(arguments), "")
        return CodeFingerprint(digest=None, unknown=(f"{name}: nested too deeply",))
    if walk.unknown:
        return CodeFingerprint(digest=None, unknown=tuple(sorted(set(walk.unknown))))
    parts |= given or {}
    pairs = [frame(name, parts[name]) for name in sorted(parts)]
    digest = hashlib.sha256(frame("code", *pairs)).hexdigest()
    return CodeFingerprint(digest=digest, parts=parts)
