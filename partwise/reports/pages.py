"""The pages that people look at: templates, and what stands in them for texts and numbers."""

import sys
from contextlib import suppress
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket

from partwise.formatting import counted, duration
from partwise.reports.scales import seconds_text

_HERE = Path(__file__).parent


class _KeptBytecode(jinja2.FileSystemBytecodeCache):
    """Compiled templates, kept where Python keeps its own: to compile one takes 0.1 s."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take a template that is kept whole; else it is compiled, and kept once more."""
        try:
            super().load_bytecode(bucket)
        except Exception:  # what pickle and marshal raise on a file that a full disk cut off
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template, where this user may write here."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


@cache
def page_environment() -> jinja2.Environment:
    """Return what turns templates into pages, and escapes every text of others."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        bytecode_cache=None if sys.dont_write_bytecode else _KeptBytecode(f"{_HERE}/__pycache__"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": counted,
        "duration": duration,
        "seconds": seconds_text,
        "utc": lambda moment: moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
    }
    return environment


# What a browser would not show, or take for the end of the file, as pictures of it.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), 0xFFFE, 0xFFFF], 0xFFFD)


def _visible(value: Any) -> Any:
    """Return a text with pictures of its control characters; markup and numbers as they are."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return value.translate(_PICTURES)
    return value
