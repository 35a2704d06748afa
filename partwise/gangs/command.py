"""The process of a rank that is a command: it becomes that."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from partwise.gangs.rank_settings import read_settings

_NOT_FOUND = 127
"""As a shell ends where there is no such command."""


def main(given: Mapping[str, Any]) -> None:
    """Run the command of a rank in the place of this process.

    Args:
        given: As for `read_settings`.
    """
    settings = read_settings(given)
    # It binds its port by itself: that is released just now.
    for descriptor in settings.descriptors():
        os.close(descriptor)
    try:
        os.makedirs(settings.working_directory, exist_ok=True)
        os.chdir(settings.working_directory)
        os.execvp(settings.words[0], list(settings.words))  # noqa: S606 (the caller's command)
    except OSError as error:
        sys.stderr.write(f"{settings.words[0]}: {error}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND)
