"""Quiet: what libraries say while they capture and translate models is kept from people."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quietly() -> Iterator[None]:
    """Silence warnings, logs and what is printed by way of Python; undo it afterwards."""
    disabled = logging.root.manager.disable
    with (
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(disabled)
