"""Reads our docstrings as the site shows them: texts without HTML, with code below `Example:`.

A flow has its parameters and their documentation from the class of its call, which griffe, who only
reads the code, cannot know.
"""

import inspect
import re
from typing import Any

import griffe

import partwise
from partwise.flows.orchestration.run_flow import RunFlow


class OurDocstrings(griffe.Extension):
    """Changes what griffe and Markdown would take for something else."""

    def on_package(self, *, pkg: griffe.Module, **_options: Any) -> None:
        """Change the docstrings of a package, when its fields have got theirs."""
        _change(pkg)


def _change(obj: griffe.Object) -> None:
    if isinstance(obj, griffe.Function) and isinstance(
        flow := getattr(partwise, obj.name, None), RunFlow
    ):
        _show_call(obj, flow)
    if obj.docstring:
        text = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
        obj.docstring.value = re.sub(r"(`[^`]*`)|<(\w[\w ]*)>", _escape, text)
    for member in obj.members.values():
        if not member.is_alias:
            _change(member)


def _show_call(obj: griffe.Function, flow: RunFlow[Any, Any]) -> None:
    obj.parameters = griffe.Parameters(
        *(
            griffe.Parameter(
                each.name,
                annotation=repr(each.annotation),
                kind=griffe.ParameterKind(each.kind.description),
                default=None if each.default is each.empty else repr(each.default),
            )
            for each in inspect.signature(flow).parameters.values()
        )
    )
    obj.docstring = griffe.Docstring(flow.__doc__ or "", parent=obj)


def _escape(match: re.Match[str]) -> str:
    return match[1] or f"&lt;{match[2]}&gt;"
