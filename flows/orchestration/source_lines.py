"""What is found out about files as they are opened, such as their delimiter, in the flow's log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from partwise.tasks.steps import is_at_work, run_logger

_SOURCES = logging.getLogger("partwise.sources")


@contextmanager
def source_lines() -> Iterator[None]:
    """Have the lines about sources logged by the flow run, in place of where they go without it."""
    if any(isinstance(handler, _FlowRunLines) for handler in _SOURCES.handlers):
        # A flow within this one.
        yield
        return
    level, propagates = _SOURCES.level, _SOURCES.propagate
    handler = _FlowRunLines()
    _SOURCES.addHandler(handler)
    _SOURCES.setLevel(logging.INFO)
    # The command line shows the lines of both.
    _SOURCES.propagate = False
    try:
        yield
    finally:
        _SOURCES.removeHandler(handler)
        _SOURCES.setLevel(level)
        _SOURCES.propagate = propagates


class _FlowRunLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if is_at_work():
            run_logger().log(record.levelno, record.getMessage())
        else:
            # Another thread, which opens sources for itself.
            logging.getLogger("partwise").handle(record)
