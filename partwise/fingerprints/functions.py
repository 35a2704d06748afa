"""Whether a function or trainer is still what it was, decided in another process on another day.

Source text does not see a changed helper or constant, pickled bytes differ in every process, and
compiled code holds line numbers. So the fingerprint walks over what a function consists of: its
instructions, the constants, defaults, closures and globals that they name, the functions and
classes of the user's own code among those, and the settings of trainers. A module of the user's own
that is only imported inside a function counts as a whole.

It cannot see: the code of installed packages (their versions belong to the environment), files that
are read, environment variables, or data behind an object that is known only by its name. Type
annotations, comments, docstrings and moved lines do not count.
"""

import contextlib
import dataclasses
import dis
import enum
import functools
import hashlib
import inspect
import logging
import operator
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from partwise.fingerprints.canonical import CanonicalEncoder, canonical_bytes, frame, type_name
from partwise.fingerprints.user_modules import OwnCode, absolute_name, defining_module

__all__ = ["CodeFingerprint", "canonical_bytes", "code_fingerprint"]

_GLOBAL_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE_LOADS = {"LOAD_ATTR", "LOAD_METHOD"}
_NAMED_OPERANDS = {*dis.hasname, *dis.haslocal, *dis.hasfree}
# A class statement stores these from constants; they change with lines and words only.
_WITHOUT_MEANING = {"__firstlineno__", "__doc__", "__static_attributes__"}
_MODULE_NAMES = {"__name__", "__file__", "__doc__", "__spec__", "__package__", "__builtins__"}
_DOCSTRING_FLAG = 0x4000000
_ROUTINES = (types.FunctionType, staticmethod, classmethod, property)
_IN_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFingerprint:
    """What `code_fingerprint` found."""

    digest: str | None
    """Equal when the code is; None when that cannot be determined."""
    unknown: tuple[str, ...] = ()
    """What cannot be compared, as "shop.fit: global LOCK (_thread.lock)"."""


def code_fingerprint(obj: Any, version: str | None = None) -> CodeFingerprint:
    """Return a fingerprint of a function, or of an object such as a trainer with its settings.

    Args:
        obj: A function, class, partial, bound method, or an object with methods.
        version: The user's own word for it, which is taken in place of looking.

    Example:
        >>> code_fingerprint(lambda data, context: None).unknown
        ()
    """
    if version is not None:
        return CodeFingerprint(digest=hashlib.sha256(frame("version", version)).hexdigest())
    walk = _CodeWalk(OwnCode(_package(obj)))
    try:
        digest = walk.digest(obj)
    except RecursionError:
        return CodeFingerprint(digest=None, unknown=(f"{_label(obj)}: nested too deeply",))
    unknown = tuple(sorted(set(walk.unknown)))
    return CodeFingerprint(digest=None if unknown else digest, unknown=unknown)


class _CodeWalk(CanonicalEncoder):
    """Encodes code. What has a name of its own is encoded once, and referred to by that name."""

    def __init__(self, own: OwnCode) -> None:
        super().__init__()
        self.unknown: list[str] = []
        self._own = own
        self._path: list[str] = []
        self._named: dict[str, Any] = {}
        self._queue: list[str] = []

    def digest(self, obj: Any) -> str:
        """Encode an object and all own code that it leads to."""
        python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
        with self._at(_label(obj)):
            parts = [frame(python, self.encode(obj))]
        # A queue in place of recursion: functions may call each other in circles. The bodies are
        # sorted by name, since their order of discovery changes with unrelated code.
        bodies: dict[str, bytes] = {}
        while self._queue:
            name = self._queue.pop()
            with self._at(name.partition(" ")[2].replace(":", ".")):
                bodies[name] = self._body(self._named[name])
        parts += [frame(name, bodies[name]) for name in sorted(bodies)]
        return hashlib.sha256(frame("code", *parts)).hexdigest()

    def member(self, name: str, value: Any) -> bytes:
        """Encode one attribute of an object."""
        with self._at(name):
            return self.encode(value)

    def reference(self, cls: type) -> bytes:
        """Encode a class: an own one with its methods."""
        if not self._own.has_module(cls.__module__):
            return frame("class", cls.__module__, cls.__qualname__)
        return self._refer(f"class {cls.__module__}:{cls.__qualname__}", cls)

    def other(self, value: Any) -> bytes:
        """Encode code, or note what cannot be compared."""
        match value:
            case types.FunctionType():
                return self._function(value)
            case types.MethodType():
                return frame("method", self.encode(value.__self__), self.encode(value.__func__))
            case types.CodeType():
                return self._code(value)
            case types.ModuleType():
                return self._module(value.__name__)
            case staticmethod() | classmethod():
                return frame(type(value).__name__, self.encode(value.__func__))
            case property():
                return frame("property", *map(self.encode, (value.fget, value.fset, value.fdel)))
            case functools.partial():
                bound = (value.func, value.args, dict(value.keywords))
                return frame("partial", *map(self.encode, bound))
            case functools._lru_cache_wrapper():
                return frame("cache", self.encode(value.__wrapped__))
        if isinstance(value, _GETTERS):
            return frame(type(value).__name__, *map(self.encode, value.__reduce__()[1:]))
        if isinstance(value, _IN_C):
            owner: Any = getattr(value, "__self__", None)
            if owner is None or isinstance(owner, types.ModuleType):
                owner = str(getattr(value, "__module__", ""))
            return frame("built-in", self.encode(owner), value.__qualname__)
        if type_name(value) == "numpy.ufunc":
            return frame("ufunc", value.__name__)
        if not self._own.has_module(str(getattr(value, "__module__", ""))) and _is_found(value):
            return frame("named", value.__module__, value.__qualname__)
        self.unknown.append(self._place(value))
        return b""

    def instance(self, value: Any) -> bytes:
        """Encode an object whose state is all in Python attributes."""
        match value:
            case logging.Logger():
                return frame("logger", value.name)
            case functools.cached_property():
                return frame("cached", self.encode(value.func))
        before = len(self.unknown)
        encoded = super().instance(value)
        if len(self.unknown) > before and not self._own.has_module(type(value).__module__):
            # The insides of another package's object would mean nothing to its user.
            self.unknown[before:] = [self._place(value)]
        return encoded

    def _refer(self, name: str, item: Any) -> bytes:
        """Put an item on the list of those to encode, or encode it here if it is nameless."""
        # A notebook uses names again: the second item of a name is encoded where it stands.
        if "<" in name or (name in self._named and self._named[name] is not item):
            return self._body(item)
        if name not in self._named:
            self._named[name] = item
            self._queue.append(name)
        return frame("named", name)

    def _body(self, item: Any) -> bytes:
        if isinstance(item, str):
            digest, imported = self._own.module_digest(item)
            return frame("module", digest, *map(self._module, imported))
        return self._class_body(item) if isinstance(item, type) else self._function_body(item)

    def _module(self, name: str) -> bytes:
        if not self._own.has_module(name):
            return frame("module", name)
        return self._refer(f"module {name}", name)

    def _function(self, function: types.FunctionType) -> bytes:
        module, qualname = defining_module(function), function.__code__.co_qualname
        if self._own.has_module(module):
            return self._refer(f"function {module}:{qualname}", function)
        if not self._own.has_module(str(function.__module__)) and _is_found(function):
            return frame("function", function.__module__, function.__qualname__)
        # A wrapper made by another package's decorator: own code is in its closure.
        return frame("wrapper", module, qualname, *self._captured(function))

    def _function_body(self, function: types.FunctionType) -> bytes:
        package = function.__globals__.get("__package__") or ""
        loads = sorted(_global_loads(function.__code__))
        imports = sorted(_imports(function.__code__, package))
        return frame(
            "function",
            self._code(function.__code__),
            frame("captured", *self._captured(function)),
            frame("globals", *(self._global(function.__globals__, load) for load in loads)),
            frame("imports", *map(self._module, filter(self._own.is_imported_own, imports))),
        )

    def _captured(self, function: types.FunctionType) -> Iterator[bytes]:
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                continue  # a name that is bound later, or never
            with self._at(f"closure {name}"):
                yield frame(name, self.encode(content))
        with self._at("default"):
            yield self.encode(function.__defaults__)
            yield self.encode(function.__kwdefaults__)
        attributes = {name: item for name, item in vars(function).items() if name != "__wrapped__"}
        yield from self._members(attributes)

    def _global(self, namespace: dict[str, Any], load: tuple[str, ...]) -> bytes:
        name, *attributes = load
        if name in _MODULE_NAMES or name not in namespace:
            return frame("not here", name)
        value = namespace[name]
        for attribute in attributes:
            is_own = isinstance(value, types.ModuleType) and self._own.has_module(value.__name__)
            if not is_own or attribute not in vars(value):
                break
            value = vars(value)[attribute]
            name = f"{name}.{attribute}"
        with self._at(f"global {name}"):
            return frame(name, self.encode(value))

    def _code(self, code: types.CodeType) -> bytes:
        parts: list[bytes] = []
        for instruction in dis.get_instructions(code):
            # A part of the next operand, which comes and goes with the size of a table.
            if instruction.opname == "EXTENDED_ARG":
                continue
            if instruction.opname == "STORE_NAME" and instruction.argval in _WITHOUT_MEANING:
                # With the constant that was loaded for it.
                parts.pop()
                continue
            # Operands are often places in tables, which other changes renumber: what stands there
            # counts.
            operand: bytes | str = str(instruction.arg)
            if instruction.opcode in dis.hasconst:
                operand = self.encode(instruction.argval)
            elif instruction.opcode in _NAMED_OPERANDS:
                operand = repr(instruction.argval)
            parts.append(frame(instruction.opname, operand))
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        head = (counts, code.co_flags & ~_DOCSTRING_FLAG, code.co_varnames[: sum(counts)])
        return frame("code", repr(head), code.co_exceptiontable, *parts)

    def _class_body(self, cls: type) -> bytes:
        bases = [self.encode(base) for base in (type(cls), *cls.__bases__)]
        return frame("class", *bases, *self._members(_class_content(cls)))

    @contextlib.contextmanager
    def _at(self, name: str) -> Iterator[None]:
        self._path.append(name)
        try:
            yield
        finally:
            self._path.pop()

    def _place(self, value: Any) -> str:
        first, *rest = self._path
        where = f"{first}: {' '.join(rest)}" if rest else first
        return f"{where} ({type_name(value)})"


def _class_content(cls: type) -> dict[str, Any]:
    """Return what the author of a class wrote into it: methods, attributes, defaults of fields."""
    content = {}
    for name, item in vars(cls).items():
        if name.startswith("__") and name.endswith("__"):
            written = isinstance(item, _ROUTINES) and not _is_generated(cls, item)
        elif issubclass(cls, enum.Enum):
            written = isinstance(item, _ROUTINES) and not name.startswith("_")
        else:
            made = (types.MemberDescriptorType, types.GetSetDescriptorType)
            written = not isinstance(item, made) and name not in ("_abc_impl", "model_fields")
            written = written and type_name(item) != "_collections._tuplegetter"
        if written:
            content[name] = item
    if issubclass(cls, enum.Enum):
        content |= {f"member {name}": item.value for name, item in cls.__members__.items()}
    if issubclass(cls, BaseModel):
        for name, info in cls.model_fields.items():
            default = "required" if info.default is PydanticUndefined else [info.default]
            content[f"field {name}"] = (default, info.default_factory)
    elif dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            both = (field.default, field.default_factory)
            content[f"field {field.name}"] = [
                item for item in both if item is not dataclasses.MISSING
            ]
    return content


def _is_generated(cls: type, item: Any) -> bool:
    if not dataclasses.is_dataclass(cls) or not isinstance(item, types.FunctionType):
        return False
    code = getattr(inspect.unwrap(item), "__code__", None)
    return code is not None and code.co_filename in ("<string>", dataclasses.__file__)


def _global_loads(code: types.CodeType) -> set[tuple[str, ...]]:
    """Return the globals that code reads, each with the attributes that it takes of them."""
    loads = set()
    load: list[str] = []
    for instruction in dis.get_instructions(code):
        if load and instruction.opname in _ATTRIBUTE_LOADS:
            load.append(instruction.argval)
            continue
        if load:
            loads.add(tuple(load))
        load = [instruction.argval] if instruction.opname in _GLOBAL_LOADS else []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            loads |= _global_loads(constant)
    return loads


def _imports(code: types.CodeType, package: str) -> set[str]:
    """Return the names in import statements inside a function."""
    found = set()
    instructions = list(dis.get_instructions(code))
    for place, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level, names = (earlier.argval for earlier in instructions[place - 2 : place])
            name = absolute_name(instruction.argval, level, package)
            found |= {name, *(f"{name}.{part}" for part in names or ())}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _imports(constant, package)
    return found


def _is_found(value: Any) -> bool:
    """Tell whether a value is what its module has under its name."""
    current: Any = sys.modules.get(str(getattr(value, "__module__", "")))
    for name in str(getattr(value, "__qualname__", "?")).split("."):
        current = getattr(current, name, None)
    return current is value


def _root(obj: Any) -> Any:
    while isinstance(obj, functools.partial):
        obj = obj.func
    if isinstance(obj, types.MethodType):
        obj = obj.__self__
    return obj if isinstance(obj, type | types.FunctionType) else type(obj)


def _package(obj: Any) -> str:
    return defining_module(_root(obj)).partition(".")[0]


def _label(obj: Any) -> str:
    root = _root(obj)
    return f"{root.__module__}.{root.__qualname__}"
