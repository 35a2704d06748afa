"""What the author of a class wrote into it: methods, attributes, fields and members."""

import contextlib
import dataclasses
import enum
import inspect
import sys
import types
import typing
from typing import Any

from pydantic import BaseModel

_ROUTINES = (types.FunctionType, staticmethod, classmethod, property)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_MADE = frozenset(
    [
        *["__abstractmethods__", "__annotations__", "__annotations_cache__", "__annotate__"],
        *["__annotate_func__", "__class_getitem__", "__class_vars__", "__dataclass_fields__"],
        *["__dataclass_params__", "__dict__", "__doc__", "__firstlineno__", "__module__"],
        *["__orig_bases__", "__parameters__", "__qualname__", "__replace__", "__signature__"],
        *["__static_attributes__", "__weakref__", "_abc_impl"],
        *["model_computed_fields", "model_fields"],
    ]
)
"""What Python and pydantic put into a class, or what is encoded in another way."""
_NOTES = {"title", "description", "examples", "_attributes_set", "_complete", "_final"}
_NOTES |= {"_original_assignment", "_original_annotation"}
"""What a field of a model holds for people, or twice."""
_LATER = {"field_title_generator", "_has_names_of_today"}
"""What the base of all settings was given after runs had fingerprints of classes derived from it:
titles for forms, and a refusal of old names."""


def class_content(cls: type, *, whole: bool) -> dict[str, Any]:
    """Return what was written into a class, by name: values, functions, fields, members.

    `whole`: with docstrings, raw annotations, and all in the order in which it was written; else
    only what has an order of its own is in order: fields and members.
    """
    members = list(vars(cls).items())
    if not whole:
        members.sort(key=lambda member: member[0])
    content = {name: item for name, item in members if _is_written(cls, name, item)}
    if issubclass(cls, enum.Enum):
        content["members"] = [(name, item.value) for name, item in cls.__members__.items()]
    elif issubclass(cls, BaseModel):
        content["fields"] = [(name, _slots(info)) for name, info in cls.model_fields.items()]
        config = {name: value for name, value in cls.model_config.items() if name not in _LATER}
        content["config"] = content["model_config"] = config
        content["validators"] = _validators(cls)
    elif dataclasses.is_dataclass(cls):
        content["fields"] = [_field(field) for field in dataclasses.fields(cls)]
        content["dataclass"] = _slots(vars(cls).get("__dataclass_params__"))
    if whole:
        content["doc"] = cls.__doc__
        content["notes"] = dict(inspect.get_annotations(cls))
    return content


def annotations_of(cls: type) -> dict[str, Any]:
    """Return the annotations of a class, whether or not they were written or kept as text."""
    namespace = vars(sys.modules.get(cls.__module__, types))
    found = {}
    for name, note in inspect.get_annotations(cls).items():
        # Of a name that only type checkers import, the text remains.
        with contextlib.suppress(Exception):
            while isinstance(note, str | typing.ForwardRef):
                text = note if isinstance(note, str) else note.__forward_arg__
                note = eval(text, dict(namespace), dict(vars(cls)))  # noqa: S307 (as Python does)
        found[name] = note
    return found


def _is_written(cls: type, name: str, item: Any) -> bool:
    if name in _MADE or isinstance(item, _DESCRIPTORS) or name.startswith("__pydantic_"):
        return False
    if name == "__hash__" and item is None:
        return False  # follows from __eq__
    if isinstance(item, _ROUTINES):
        return not _is_generated(cls, item)
    if issubclass(cls, enum.Enum):
        return not name.startswith("_") and name not in cls.__members__
    return type(item).__name__ != "_tuplegetter"


def _is_generated(cls: type, item: Any) -> bool:
    if not dataclasses.is_dataclass(cls) or not isinstance(item, types.FunctionType):
        return False
    code = getattr(inspect.unwrap(item), "__code__", None)
    # Not by the file name "<string>": that of all code that exec() or `python -c` runs.
    return code is not None and (
        code.co_filename == dataclasses.__file__ or code.co_qualname.startswith("__create_fn__.")
    )


def _field(field: dataclasses.Field[Any]) -> list[Any]:
    given: dict[str, Any] = _slots(field, "type", "_field_type", "default", "default_factory")
    for name in ("default", "default_factory"):
        if (value := getattr(field, name)) is not dataclasses.MISSING:
            given[name] = value
    return [field.name, given]


def _slots(item: Any, *without: str) -> dict[str, Any]:
    names = [name for name in getattr(item, "__slots__", ()) if name not in (*without, *_NOTES)]
    held = {name: getattr(item, name) for name in names if hasattr(item, name)}
    return {name: None if name in _LATER else value for name, value in held.items()}


def _validators(cls: type[BaseModel]) -> list[Any]:
    """Return which fields the validators and serializers of a model are for."""
    kinds = cls.__pydantic_decorators__
    groups = [(field.name, getattr(kinds, field.name)) for field in dataclasses.fields(kinds)]
    return [
        (kind, name, found.info)
        for kind, group in groups
        for name, found in group.items()
        if name not in _LATER
    ]
