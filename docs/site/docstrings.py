"""Reads our docstrings as the site shows them: texts without HTML, with code below `Example:`."""

import re
from typing import Any

import griffe


class OurDocstrings(griffe.Extension):
    """Changes what griffe and Markdown would take for something else."""

    def on_package(self, *, pkg: griffe.Module, **_options: Any) -> None:
        """Change the docstrings of a package, when its fields have got theirs."""
        _change(pkg)


def _change(obj: griffe.Object) -> None:
    if obj.docstring:
        text = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
        obj.docstring.value = re.sub(r"(`[^`]*`)|<(\w[\w ]*)>", _escape, text)
    for member in obj.members.values():
        if not member.is_alias:
            _change(member)


def _escape(match: re.Match[str]) -> str:
    return match[1] or f"&lt;{match[2]}&gt;"
