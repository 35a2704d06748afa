"""What the fields of calls are, in the words that stand below each in its class."""

import ast
import functools
import inspect
import sys
from collections.abc import Mapping
from itertools import pairwise
from textwrap import TextWrapper

from partwise.calls.call import Call, fields_in_order, roles


def descriptions(call: type[Call]) -> Mapping[str, str]:
    """Return what each field of a kind of call is, by name; empty where there is no source code."""
    return {name: " ".join(text.split()) for name, text in _texts(call).items()}


def first_paragraphs(call: type[Call]) -> Mapping[str, str]:
    """Return the first paragraph on each field: what a command says of it as well.

    What stands behind it is for Python, documents and forms alone.
    """
    return {
        name: " ".join(text.partition("\n\n")[0].split()) for name, text in _texts(call).items()
    }


def _texts(call: type[Call]) -> Mapping[str, str]:
    """Python keeps no docstrings of fields: they are read from the source of the classes."""
    found: dict[str, str] = {}
    for each in reversed(call.__mro__):
        if issubclass(each, Call):
            found |= _of_module(each.__module__).get(each.__name__, {})
    return {name: found[name] for name in roles(call) if name in found}


def with_parameters(text: str, call: type[Call]) -> str:
    """Return the documentation of a flow with a section on the fields of its call."""
    texts = descriptions(call)
    names = [each.name for each in fields_in_order(call)]
    wrapped = TextWrapper(
        96, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False
    )
    lines = [wrapped.fill(f"{name}: {texts[name]}") for name in names if name in texts]
    begin, returns, end = inspect.cleandoc(text).partition("\n\nReturns:")
    return "\n".join([begin, "", "Args:", *lines]) + returns + end


@functools.cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except OSError:
        return {}
    return {each.name: _of_class(each) for each in tree.body if isinstance(each, ast.ClassDef)}


def _of_class(body: ast.ClassDef) -> Mapping[str, str]:
    texts = {}
    for field, below in pairwise(body.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                texts[name] = inspect.cleandoc(text)
    return texts
