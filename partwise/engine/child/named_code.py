"""What a work's own code names: the modules that it imports, the modules and classes it may change.

The walk goes through the user's functions and classes, as far as they name each other. It enters no
installed library: of these, what the user's code names is known, and not what they do inside.
"""

import builtins
import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

from partwise.fingerprints.bytecode import instructions
from partwise.fingerprints.user_modules import OwnCode, defining_module

MOST_ELEMENTS = 1_000
"""So many elements of a container are looked at: a captured list of rows holds no code."""
_PARTS = (
    *("partwise.trainers.ready.lightgbm", "partwise.trainers.ready.xgboost"),
    *("partwise.trainers.choosing.tuned", "partwise.tuning.", "partwise.models.serdes."),
)
"""Our own modules that import a library in the functions of what the user hands over."""
_SETTING = {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"}
_SETTERS = {"setattr", "delattr", "vars", "globals", "patch", "__dict__", "__builtins__", "exec"}
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class NamedCode:
    """What the code reachable from some objects names.

    Attributes:
        words: The names and texts in that code.
        scopes: The namespaces that it names, by a name for messages: of modules, of classes, and
            the globals of functions that came by value.
        owners: The modules and classes that have these namespaces, by the same names.
        own: Those of `scopes` that are the user's own.
        sets_attributes: Whether that code sets attributes or globals.
        set_names: Those that it sets by an assignment.
        sets_by_name: Whether it may set others, as setattr does.
    """

    def __init__(self, roots: Iterable[object]) -> None:
        self.words: set[str] = set()
        self.scopes: dict[str, Mapping[str, Any]] = {"builtins": vars(builtins)}
        self.owners: dict[str, type | types.ModuleType] = {"builtins": builtins}
        self.own: set[str] = set()
        self.sets_attributes = False
        self.set_names: set[str] = set()
        self.sets_by_name = False
        self._imports: dict[tuple[str, int, tuple[str, ...], str], None] = {}
        self._codes: dict[int, tuple[types.CodeType, dict[str, Any]]] = {}
        self._seen: dict[int, object] = {}
        self._roots = list(roots)
        self._packages = OwnCode("")
        self.follow()

    def follow(self) -> None:
        """Walk again, from the start: modules that were imported since are then known."""
        self._seen.clear()
        waiting: list[object] = list(self._roots)
        known = -1
        # What a module's name is followed by is known only once the words of all code are.
        while waiting or known != len(self.words) + len(self.scopes):
            known = len(self.words) + len(self.scopes)
            while waiting:
                # Objects of users may do anything when they are looked at.
                with contextlib.suppress(Exception):
                    self._visit(waiting.pop(), waiting)
            for code, scope in list(self._codes.values()):
                waiting += [scope[name] for name in code.co_names if name in scope]
            for name in list(self.scopes):
                members = self.scopes[name]
                waiting += [
                    members[word]
                    for word in self.words & members.keys()
                    if isinstance(members[word], type | types.ModuleType)
                    or (name in self.own and not isinstance(members[word], _PLAIN))
                ]
            for word in self.words & sys.modules.keys():
                waiting.append(sys.modules[word])
            waiting = [
                value
                for value in waiting
                if id(value) not in self._seen and not isinstance(value, _PLAIN)
            ]

    def import_all(self) -> None:
        """Import what the code imports; what cannot be is left to the code itself to report."""
        done = 0
        while done < len(self._imports):
            statements = list(self._imports)[done:]
            done = len(self._imports)
            for name, level, members, package in statements:
                scope = {"__package__": package, "__name__": package}
                try:
                    importlib.__import__(name, scope, None, members, level)
                except (Exception, SystemExit):  # noqa: S112 (it will be raised where the user's code imports it)
                    continue
            self.follow()

    def is_own(self, module: str) -> bool:
        """Whether a module is the user's own, and of no installed library."""
        try:
            return self._packages.has_module(module)
        except Exception:
            # Nothing is found of a module whose code came by value from where it is.
            return True

    def _is_followed(self, module: str) -> bool:
        return module.startswith(_PARTS) or self.is_own(module)

    def _visit(self, value: object, waiting: list[object]) -> None:
        if id(value) in self._seen or isinstance(value, _PLAIN):
            return
        # Held, since the number of what is freed would be given to another object.
        self._seen[id(value)] = value
        match value:
            case types.FunctionType():
                module = defining_module(value)
                if self._is_followed(module):
                    self._add_scope(module, value.__globals__, module)
                    self._add_code(value.__code__, value.__globals__)
                    waiting += _captured(value)
                    waiting += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            case types.MethodType():
                waiting += [value.__func__, value.__self__]
            case functools.partial():
                waiting += [value.func, *value.args, *value.keywords.values()]
            case staticmethod() | classmethod():
                waiting.append(value.__func__)
            case property():
                waiting += [value.fget, value.fset]
            case types.ModuleType():
                self._add_scope(value.__name__, vars(value), value.__name__, value)
            case type():
                if value.__module__ != "builtins":
                    name = f"{value.__module__}.{value.__qualname__}"
                    self._add_scope(name, vars(value), value.__module__, value)
                if self._is_followed(value.__module__):
                    waiting += [*vars(value).values(), *value.__bases__]
            case dict():
                waiting += list(value.values())[:MOST_ELEMENTS]
            case list() | tuple() | set() | frozenset():
                waiting += list(value)[:MOST_ELEMENTS]
            case _:
                with contextlib.suppress(Exception):
                    waiting.append(value.__wrapped__)  # type: ignore[attr-defined]
                if any(value is root for root in self._roots) or self._is_followed(
                    type(value).__module__
                ):
                    waiting += [type(value), *_members(value)]

    def _add_scope(
        self,
        name: str,
        members: Mapping[str, Any],
        module: str,
        owner: type | types.ModuleType | None = None,
    ) -> None:
        if module.partition(".")[0] == "partwise":
            return
        # Functions that came by value have globals of their own, by the name of their module.
        while self.scopes.get(name, members) is not members and isinstance(members, dict):
            name += "'"
        self.scopes[name] = members
        if owner is not None:
            self.owners[name] = owner
        if self.is_own(module):
            self.own.add(name)

    def _add_code(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        if id(code) in self._codes:
            return
        self._codes[id(code)] = (code, scope)
        self.words.update(code.co_names)
        package = scope.get("__package__") or str(scope.get("__name__", "")).rpartition(".")[0]
        steps = instructions(code, whole=True)
        for place, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                # Both are loaded right before it, by an instruction that is another one from Python
                # 3.14 on.
                level, members = (earlier.argval for earlier in steps[place - 2 : place])
                self._imports[step.argval, level, tuple(members or ()), package] = None
            elif step.opname in _SETTING:
                self.sets_attributes = True
                self.set_names.add(step.argval)
        if not _SETTERS.isdisjoint(code.co_names):
            self.sets_attributes = self.sets_by_name = True
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant, scope)
            elif isinstance(constant, str):
                self.words.add(constant)


def _captured(function: types.FunctionType) -> list[object]:
    """Return what a function has taken from around it, as far as that is there already."""
    captured = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            captured.append(cell.cell_contents)
    return captured


def _members(value: object) -> list[object]:
    """Return what an object holds in its attributes, slots included."""
    slots = [
        name
        for kind in type(value).__mro__
        for name in (vars(kind).get("__slots__") or ())
        if isinstance(name, str) and hasattr(value, name)
    ]
    return [*getattr(value, "__dict__", {}).values(), *(getattr(value, name) for name in slots)]
