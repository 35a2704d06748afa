"""The log lines of calls without Prefect: of the logger, and in the words, of its flow runs.

So levels, handlers and the masking of secrets are the same with a server and without one.
"""

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any
from uuid import UUID

from partwise.engine.driver.cluster_watch import Logger

LOGGER = "prefect.flow_runs"
LEVEL = "PREFECT_LOGGING_LEVEL"
"""The variable by which a person sets the level of Prefect's lines."""
_FORMAT = "%(asctime)s.%(msecs)03d | %(levelname)-7s | Flow run %(flow_run_name)r - %(message)s"


def chosen_level() -> int | None:
    """Return the level that the environment sets; None: it sets none."""
    return logging.getLevelNamesMapping().get(os.environ.get(LEVEL, "").upper())


def direct_logger(name: str) -> Logger:
    """Return the logger of a direct call, whose lines begin as those of a flow run of a name."""
    found = logging.getLogger(LOGGER)
    # Prefect sets up its loggers as it is imported; until then they have neither level nor handler.
    if "prefect.main" not in sys.modules:
        if not found.level:
            found.setLevel(chosen_level() or logging.INFO)
        if not found.hasHandlers():
            found.addHandler(_console())
    # What a handler of Prefect's asks for, should it be there: nothing of this goes to a server.
    facts = {"flow_run_id": str(UUID(int=0)), "flow_name": "<unknown>", "send_to_api": False}
    return _Lines(found, {"flow_run_name": name, **facts})


class _Lines(logging.LoggerAdapter[logging.Logger]):
    """Keeps what a line is given besides."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(self.extra or {}), **(kwargs.get("extra") or {})}}


class _Console(logging.Handler):
    """Writes to what the standard error output is at that time: notebooks replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)  # noqa: T201 (a line of the log)


def _console() -> logging.Handler:
    handler = _Console()
    handler.setFormatter(logging.Formatter(_FORMAT, datefmt="%H:%M:%S"))
    return handler
