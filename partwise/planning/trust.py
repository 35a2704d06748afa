"""Whose call a document in the store holds: one's own, or anybody's who can write there."""

import json
from collections.abc import Mapping
from typing import Any

from partwise.errors import TrustError
from partwise.redaction import without_secrets
from partwise.runs.run import Run

_SHOWN_CHARS = 2000


def check_trusted(run: Run, call: Mapping[str, Any], *, trust: bool) -> None:
    """Refuse to use the call of a run that was made elsewhere, unless the caller says so.

    A store decides nothing that runs and nothing that is connected to. A call that a key of this
    process signed is the caller's own; of any other he is shown what it would do.
    """
    if trust or is_made_here(run):
        return
    text = without_secrets(json.dumps(call))
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    raise TrustError(
        f"The run {run.run_id!r} was not begun by this user on this machine, and no signing key of "
        "yours signed it, so whoever can write to the store may have put this call there: "
        f"{shown} It would call these functions and read these rows. If you know who made it, say "
        "--trust (from Python trust=True), or give both processes one signing key."
    )


def is_made_here(run: Run) -> bool:
    """Whether a key of this process signed the call of a run's newest generation."""
    return run.generation > 0 and run.is_made_here()
