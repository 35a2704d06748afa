"""Quiet: what the libraries of Hugging Face say and draw while they load is kept from people."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from partwise.exports.quiet import one_thread

_LIBRARIES = ("transformers", "huggingface_hub", "tokenizers")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence logs, warnings and progress bars of transformers and its hub; undo it afterwards."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars
    from transformers.utils import logging as chatter

    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loggers = [logging.getLogger(name) for name in _LIBRARIES]
        levels = [logger.level for logger in loggers]
        had_bars = chatter.is_progress_bar_enabled()
        had_hub_bars = not are_progress_bars_disabled()
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        chatter.disable_progress_bar()
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if had_bars:
                # This turns on those of the hub as well.
                chatter.enable_progress_bar()
            if not had_hub_bars:
                disable_progress_bars()
