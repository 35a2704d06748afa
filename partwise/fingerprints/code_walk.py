"""The walk over code: functions, classes, modules and values that lead to each other.

`partwise.fingerprints.functions` says what counts, and why.
"""

import bisect
import builtins
import contextlib
import dis
import functools
import hashlib
import inspect
import logging
import operator
import os
import sys
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

from pydantic_core import PydanticUndefined

from partwise.fingerprints.bytecode import (
    Words,
    exception_places,
    global_loads,
    imported_names,
    instructions,
    words,
    words_for,
)
from partwise.fingerprints.canonical import CanonicalEncoder, frame, type_name
from partwise.fingerprints.class_content import annotations_of, class_content
from partwise.fingerprints.first_places import first_place
from partwise.fingerprints.libraries import library_version
from partwise.fingerprints.statements import acts_of
from partwise.fingerprints.user_modules import (
    SCRIPTS,
    OwnCode,
    compile_statements,
    defining_module,
    find_module,
)

_NAMED_OPERANDS = {*dis.hasname, *dis.haslocal, *dis.hasfree}
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
# A class statement stores these from constants; they change with lines and words only.
_WITHOUT_MEANING = {"__firstlineno__", "__doc__", "__static_attributes__"}
_MODULE_NAMES = {"__name__", "__file__", "__spec__", "__package__", "__builtins__"}
_WITHOUT_FLAGS = ~(0x4000000 | 0x1000000)  # has a docstring; keeps annotations as text
_PART_CHARS = 16
_IN_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_LOOKING = ("builtins", "importlib", "inspect", "runpy", "typing")
"""The modules of Python that have functions to look at code, or to import what has no name."""
_FOLLOWED: tuple[type, ...] = (
    *(type, types.FunctionType, types.MethodType, types.ModuleType, types.CodeType),
    *(list, tuple, dict, set, frozenset, functools.partial, staticmethod, classmethod),
)
"""What is encoded of the values that a module uses on import: code, and what can hold code."""


class CodeWalk(CanonicalEncoder):
    """Encodes code. What has a name of its own is encoded once, and referred to by that name.

    `whole`: with docstrings, annotations and the order of methods.
    """

    def __init__(self, own: OwnCode, *, whole: bool = False) -> None:
        super().__init__()
        self.unknown: list[str] = []
        self.reads = False
        self._own = own
        self._whole = whole
        self._strict = True
        self._reaches = False
        self._path: list[str] = []
        self._named: dict[str, Any] = {}
        self._queue: list[str] = []
        self._modules: set[str] = set()
        self._libraries: set[str] = set()

    def parts(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Encode arguments and all own code that they lead to."""
        bodies: dict[str, bytes] = {}
        for name, value in arguments.items():
            with self._at(label_of(value) if callable(value) else name):
                bodies[name] = self.encode(value)
        self._follow(bodies)
        # Settings that modules make on import are out of sight in the libraries that hold them, so
        # the statements count. What else these name may be anything, and need not be comparable.
        self._strict = False
        for name in sorted(self._imported()):
            if f"module {name}" not in bodies and (body := self._import_body(name)):
                bodies[f"import of {name}"] = body
        self._follow(bodies)
        python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
        digests = {
            name: hashlib.sha256(body).hexdigest()[:_PART_CHARS] for name, body in bodies.items()
        }
        versions = {f"library {name}": library_version(name) for name in self._all_libraries()}
        return {"python": python} | digests | versions

    def _follow(self, bodies: dict[str, bytes]) -> None:
        """Encode what is referred to, until there is no more."""
        # A queue in place of recursion: functions may call each other in circles.
        while self._queue:
            while self._queue:
                name = self._queue.pop()
                with self._at(name.partition(" ")[2].replace(":", ".")):
                    bodies[name] = self._body(self._named[name])
            if self._reaches:
                for name in self._imported() if self._strict else self._loaded():
                    self._module(name)

    def _imported(self) -> set[str]:
        """Return the own modules that are imported before any of the code runs."""
        found: set[str] = set()
        waiting = [name for name in self._modules if name not in SCRIPTS]
        while waiting:
            name = waiting.pop()
            if name in found or not self._own.is_imported_own(name):
                continue
            found.add(name)
            waiting += [name.rpartition(".")[0]] if "." in name else []
            waiting += self._own.imported_by(name)
        return found

    def _loaded(self) -> set[str]:
        """Return the own modules that are loaded here, as code on import can load any."""
        tops = {name.partition(".")[0] for name in self._imported()}
        return {
            name
            for name in tuple(sys.modules)
            if name.partition(".")[0] in tops and self._own.has_module(name)
        }

    def _all_libraries(self) -> list[str]:
        """Return the installed packages that the code names, or that importing it imports."""
        names = set(self._libraries)
        for module in self._imported():
            names |= self._own.imported_by(module)
        return sorted(
            top
            for top in {name.partition(".")[0] for name in names} - {"", "partwise", *SCRIPTS}
            if top not in sys.stdlib_module_names
            and (top in sys.modules or find_module(top) is not None)
            and not self._own.has_module(top)
        )

    def member(self, name: str, value: Any) -> bytes:
        """Encode one attribute of an object."""
        with self._at(name):
            return self.encode(value)

    def reference(self, cls: type) -> bytes:
        """Encode a class: an own one with its methods."""
        if not self._own.has_module(cls.__module__):
            return self._foreign("class", cls.__module__, cls.__qualname__)
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
            module = str(getattr(value, "__module__", ""))
            owner: Any = getattr(value, "__self__", None)
            if isinstance(owner, types.ModuleType):
                owner = None
            return self._foreign("built-in", module, value.__qualname__) + self.encode(owner)
        if value is PydanticUndefined:
            return frame("undefined")
        if type_name(value) == "numpy.ufunc":
            return self._foreign("ufunc", "numpy", value.__name__)
        if not self._own.has_module(str(getattr(value, "__module__", ""))) and _is_found(value):
            return self._foreign("named", value.__module__, value.__qualname__)
        return self._not_comparable(value)

    def instance(self, value: Any) -> bytes:
        """Encode an object whose state is all in Python attributes."""
        match value:
            case logging.Logger():
                return frame("logger", value.name)
            case functools.cached_property():
                return frame("cached", self.encode(value.func))
        if value is os.environ:
            return frame("environment")
        before = len(self.unknown)
        encoded = super().instance(value)
        if len(self.unknown) > before and not self._own.has_module(type(value).__module__):
            # The insides of another package's object would mean nothing to its user.
            self.unknown[before:] = [self._place(value)]
        return encoded

    def _nested(self, value: Any) -> bytes:
        if value is sys.modules or value is builtins.__dict__:
            self._reaches = True
            return frame("modules")
        if not self._strict and not isinstance(value, _FOLLOWED):
            return frame("some", self.encode(type(value)))
        return super()._nested(value)

    def _not_comparable(self, value: Any) -> bytes:
        if self._strict:
            self.unknown.append(self._place(value))
        return b""

    def _foreign(self, kind: str, module: str, name: str) -> bytes:
        """Encode what another package has under a name."""
        self._libraries.add(module)
        # Called by its own name, it was seen in the code, where what it is called with counts too.
        if module in _LOOKING and not self._path[-1].endswith(name):
            self._take_note(words_for(name))
        return frame(kind, first_place(module), name)

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
            return self._module_body(item)
        return self._class_body(item) if isinstance(item, type) else self._function_body(item)

    def _module(self, name: str) -> bytes:
        if not self._own.has_module(name):
            return self._foreign("module", name, "")
        if f"module {name}" not in self._named:
            self._named[f"module {name}"] = name
            self._queue.append(f"module {name}")
        return frame("named", f"module {name}")

    def _module_body(self, name: str) -> bytes:
        self._modules.add(name)
        text = self._own.text(name)
        if text is None:
            return frame("missing")
        digest = text.digest(whole=self._whole)
        if text.code is None:
            return frame("module", digest)
        self._take_note(text.words)
        return frame("module", digest, *self._imports(text.imported))

    def _import_body(self, name: str) -> bytes:
        """Encode what a module does on import besides binding names."""
        text = self._own.text(name)
        module = sys.modules.get(name)
        if module is None or text is None or text.code is None:
            return self._module(name)
        namespace = vars(module)

        def is_own(name: str) -> bool:
            value = namespace.get(name)
            owner = value.__name__ if isinstance(value, types.ModuleType) else None
            return value is not None and self._own.has_module(
                owner or str(getattr(value, "__module__", "builtins"))
            )

        acts = acts_of(text.acts, is_own)
        with self._at(name):
            return self._with_names(compile_statements(acts), namespace) if acts else b""

    def _function(self, function: types.FunctionType) -> bytes:
        module, qualname = defining_module(function), function.__code__.co_qualname
        if self._own.has_module(module):
            return self._refer(f"function {module}:{qualname}", function)
        if not self._own.has_module(str(function.__module__)) and _is_found(function):
            return self._foreign("function", function.__module__, function.__qualname__)
        # A wrapper made by another package's decorator: own code is in its closure, of which the
        # decorator may have read the annotations.
        self.reads |= module.partition(".")[0] not in sys.stdlib_module_names
        self._libraries.add(module)
        return frame("wrapper", module, qualname, *self._captured(function))

    def _function_body(self, function: types.FunctionType) -> bytes:
        self._modules.add(defining_module(function))
        notes: list[bytes] = []
        if self._whole:
            notes = [self.encode((function.__doc__, inspect.get_annotations(function)))]
        return frame(
            "function",
            self._with_names(function.__code__, function.__globals__),
            frame("captured", *self._captured(function)),
            *notes,
        )

    def _with_names(self, code: types.CodeType, namespace: dict[str, Any]) -> bytes:
        """Encode code with the globals that it names and the own modules that it imports."""
        self._take_note(words(code))
        loads = sorted(global_loads(code, whole=self._whole))
        package = namespace.get("__package__") or ""
        return frame(
            "names",
            self._code(code),
            frame("globals", *(self._global(namespace, load) for load in loads)),
            frame("imports", *self._imports(imported_names(code, package))),
        )

    def _imports(self, names: Set[str]) -> Iterator[bytes]:
        for name in sorted(names):
            if self._own.is_imported_own(name):
                yield self._module(name)
            else:
                self._libraries.add(name)

    def _take_note(self, found: Words) -> None:
        """Take note of what code may do that its names do not show."""
        self.reads |= found.reads
        self._reaches |= found.reaches
        if found.obstacles and self._strict:
            self.unknown += [f"{': '.join(self._path[:1])}: {why}" for why in found.obstacles]
        elif found.obstacles:
            self._reaches = True  # it was done when this process imported the module

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
                self._reaches |= value is sys and attribute == "modules"
                self._reaches |= value is builtins and attribute in ("eval", "exec", "globals")
                break
            value = vars(value)[attribute]
            name = f"{name}.{attribute}"
        with self._at(f"global {name}"):
            return frame(name, self.encode(value))

    def _code(self, code: types.CodeType) -> bytes:
        parts: list[bytes] = []
        steps = instructions(code, whole=self._whole)
        offsets = [step.offset for step in steps]
        for step in steps:
            if step.opname == "STORE_NAME" and step.argval in _WITHOUT_MEANING and not self._whole:
                # With the constant that was loaded for it.
                parts.pop()
                continue
            # Operands are often places in tables and code, which other changes renumber: what
            # stands there counts.
            operand: bytes | str = str(step.arg)
            if step.opcode in dis.hasconst:
                operand = self.encode(step.argval)
            elif step.opcode in _NAMED_OPERANDS:
                operand = repr(step.argval)
            elif step.opcode in _JUMPS:
                operand = str(bisect.bisect_left(offsets, step.argval))
            parts.append(frame(step.opname, operand))
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        flags = code.co_flags & _WITHOUT_FLAGS
        head = (counts, flags, code.co_varnames[: sum(counts)])
        first = code.co_consts[:1]
        docstring = first if self._whole and first and isinstance(first[0], str) else ()
        handlers = [bisect.bisect_left(offsets, place) for place in exception_places(code)]
        return frame("code", repr((head, docstring, handlers)), *parts)

    def _class_body(self, cls: type) -> bytes:
        self._modules.add(cls.__module__)
        bases = [self.encode(base) for base in (type(cls), *cls.__bases__)]
        content = self._members(class_content(cls, whole=self._whole))
        # Annotations may hold anything, and mostly say nothing to the code that runs.
        strict, self._strict = self._strict, False
        with self._at("annotations"):
            notes = self._members(annotations_of(cls))
        self._strict = strict
        return frame("class", *bases, *content, frame("annotations", *notes))

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


def _is_found(value: Any) -> bool:
    """Tell whether a value is what its module has under its name."""
    current: Any = sys.modules.get(str(getattr(value, "__module__", "")))
    for name in str(getattr(value, "__qualname__", "?")).split("."):
        current = getattr(current, name, None)
    return current is value


def root_of(obj: Any) -> Any:
    """Return the function or class behind a partial, a method or an object."""
    while isinstance(obj, functools.partial):
        obj = obj.func
    if isinstance(obj, types.MethodType):
        obj = obj.__self__
    return obj if isinstance(obj, type | types.FunctionType) else type(obj)


def package_of(obj: Any) -> str:
    """Return the top-level package in which a function, or the class of an object, is written."""
    return defining_module(root_of(obj)).partition(".")[0]


def label_of(obj: Any) -> str:
    """Name a function, or the class of an object, as a person would import it."""
    root = root_of(obj)
    return f"{root.__module__}.{root.__qualname__}"
