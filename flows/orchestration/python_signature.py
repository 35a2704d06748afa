"""A flow's signature: with what forms show, as Prefect reads it, and as a person reads it."""

import dataclasses
import inspect
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from partwise.calls.call import Call, field_types, fields_in_order
from partwise.flows.orchestration.block_parameters import with_blocks


class _Named:
    """A type that shows as a text, and of which pydantic makes what it makes of the type."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._text = _in_words(annotation)

    def __repr__(self) -> str:
        return self._text

    def __get_pydantic_core_schema__(
        self,
        source: Any,
        handler: GetCoreSchemaHandler,
    ) -> CoreSchema:
        """Return the schema of the type: Prefect makes forms of a flow's signature as well."""
        return handler.generate_schema(self._annotation)


def flow_signature(call: type[Call], returned: Any) -> inspect.Signature:
    """Return the signature of a flow: the fields of its call, with blocks where they may stand."""
    signature, types = inspect.signature(call), field_types(call)
    parameters = []
    for each in fields_in_order(call):
        parameter = signature.parameters[each.name]
        if each.default_factory is not dataclasses.MISSING:
            parameter = parameter.replace(default=each.default_factory())
        parameters.append(parameter.replace(annotation=with_blocks(types[each.name])))
    return inspect.Signature(parameters, return_annotation=returned)


def python_signature(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature of a flow for `help()` and for editors that ask a notebook.

    Its annotations hold JSON schemas, from which Prefect makes forms: thousands of characters. Here
    types have their names only.
    """
    parameters = [
        each.replace(annotation=_Named(each.annotation)) for each in signature.parameters.values()
    ]
    returned = _Named(signature.return_annotation)
    return signature.replace(parameters=parameters, return_annotation=returned)


def _in_words(annotation: Any) -> str:
    return " | ".join(dict.fromkeys(_members(annotation)))


def _members(annotation: Any) -> Iterator[str]:
    """Yield the members of a union by their names; of another type its own."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _members(arguments[0])
    elif origin in (Union, types.UnionType):
        for each in arguments:
            yield from _members(each)
    elif origin is Literal:
        yield from map(repr, arguments)
    elif origin is not None and isinstance(arguments[0], list | types.EllipsisType):
        # A function: what it takes says its documentation.
        yield _name(origin)
    elif origin is not None:
        yield f"{_name(origin)}[{', '.join(map(_in_words, arguments))}]"
    else:
        yield _name(annotation)


def _name(annotation: Any) -> str:
    if annotation is type(None):
        return "None"
    return str(getattr(annotation, "__name__", annotation))
