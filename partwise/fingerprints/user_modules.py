"""Which code is the user's own, and what stands in the files of its modules.

A fingerprint goes into a project's own code, and only names everything else: the standard library,
and what was installed, of which the versions count.
"""

import ast
import contextlib
import functools
import hashlib
import importlib.util
import os
import pkgutil
import sys
import sysconfig
import types
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec

from partwise.fingerprints.bytecode import Words, imported_names, words
from partwise.fingerprints.statements import acts_of, place_statements, without_notes

_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = tuple(
    os.path.join(os.path.realpath(path), "")
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)
SCRIPTS = ("__main__", "__mp_main__")
_PARSE_ATTEMPTS = 20


@dataclass(frozen=True, kw_only=True)
class ModuleText:
    """What stands in the file of a module."""

    content: bytes
    """As it lies there."""
    package: str
    """What relative imports are relative to."""
    code: types.CodeType | None
    """Its statements, without docstrings and annotations; None: it is not Python, or broken."""
    acts: tuple[ast.stmt, ...]
    """Of these, those that may do more on import than bind its names, whatever they call."""

    def digest(self, *, whole: bool) -> str:
        """Hash it: its statements, or with docstrings and annotations where these are read."""
        return self._whole_digest if whole else self._digest

    @functools.cached_property
    def _digest(self) -> str:
        if self.code is None:
            return hashlib.sha256(self.content).hexdigest()
        return _digest_of(without_notes(_parse(self.content)))

    @functools.cached_property
    def _whole_digest(self) -> str:
        return self._digest if self.code is None else _digest_of(_parse(self.content))

    @functools.cached_property
    def words(self) -> Words:
        """What its statements may do that their names do not show."""
        return Words() if self.code is None else words(self.code)

    @functools.cached_property
    def imported(self) -> frozenset[str]:
        """The names in all its imports, those in functions too."""
        return self._imports(on_import=False)

    @functools.cached_property
    def imported_at_once(self) -> frozenset[str]:
        """The names in the imports that run when it is imported."""
        return self._imports(on_import=True)

    def _imports(self, *, on_import: bool) -> frozenset[str]:
        if self.code is None:
            return frozenset()
        return frozenset(imported_names(self.code, self.package, on_import=on_import))


class OwnCode:
    """Tells own modules from others.

    `packages` are top-level ones that are own wherever they lie, being those of the function or
    trainer in question. Elsewhere all that is not installed is own; partwise never is.
    """

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = frozenset(packages) - {"partwise"}
        self._known: dict[str, bool] = {}
        self._texts: dict[str, ModuleText | None] = {}

    def has_module(self, name: str) -> bool:
        """Tell whether a module is the user's own."""
        if name not in self._known:
            self._known[name] = self._has_module(name)
        return self._known[name]

    def _has_module(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in SCRIPTS:
            return True
        if top in sys.stdlib_module_names or top == "partwise":
            return False
        if top in self._packages:
            return True
        module = sys.modules.get(name)
        if module is None:
            # What came by value from another process has no module here; what can be found does.
            spec = find_module(name)
            return spec is None or _is_own_file(spec.origin, spec)
        return _is_own_file(getattr(module, "__file__", None), getattr(module, "__spec__", None))

    def text(self, name: str) -> ModuleText | None:
        """Read the file of a module without importing it; None: there is none."""
        if name not in self._texts:
            self._texts[name] = _read(name)
        return self._texts[name]

    def imported_by(self, name: str) -> frozenset[str]:
        """Return the names in the imports that run when a module of this name is imported."""
        text = self.text(name)
        return text.imported_at_once if text else frozenset()

    def is_imported_own(self, name: str) -> bool:
        """Tell whether a name in an import statement is an own module that exists."""
        exists = name in sys.modules or find_module(name) is not None
        return exists and self.has_module(name)


def compile_statements(statements: list[ast.stmt]) -> types.CodeType:
    """Compile statements of a module."""
    tree = ast.Module(body=statements, type_ignores=[])
    place_statements(tree)
    # By default the __future__ imports of this module would hold for it, too.
    return compile(tree, "<statements>", "exec", dont_inherit=True)


def find_module(name: str) -> ModuleSpec | None:
    """Find a module without running any of it, nor of the packages above it."""
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for place in range(len(rest)):
            if spec is None or spec.submodule_search_locations is None:
                return None
            full = ".".join([top, *rest[: place + 1]])
            spec = _find_below(full, list(spec.submodule_search_locations))
    except (ImportError, ValueError):
        return None
    return spec


def _find_below(name: str, folders: list[str]) -> ModuleSpec | None:
    """Find a module in the folders of its package.

    As `PathFinder.find_spec` does, which fails for a folder without `__init__.py` in a package that
    nobody has imported.
    """
    portions: list[str] = []
    for folder in folders:
        finder = pkgutil.get_importer(folder)
        found = None if finder is None else finder.find_spec(name)
        if found is not None and found.loader is not None:
            return found
        if found is not None:
            portions += found.submodule_search_locations or []
    if not portions:
        return None
    package = ModuleSpec(name, None, is_package=True)
    package.submodule_search_locations = portions
    return package


def defining_module(value: types.FunctionType | type) -> str:
    """Return the name of the module in whose code a function or class is written.

    Of a wrapper made by a decorator that is the decorator's, not what its `__module__` says.
    """
    if isinstance(value, types.FunctionType):
        return str(value.__globals__.get("__name__", value.__module__))
    return value.__module__


def _read(name: str) -> ModuleText | None:
    module = sys.modules.get(name)
    spec = find_module(name) if module is None else None
    path = spec.origin if spec else getattr(module, "__file__", None)
    if not path or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        content = file.read()
    is_package = os.path.basename(path) == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]
    return _text_of(content, package, path.endswith(".py"))


# To parse and compile 80,000 lines takes seconds, and each call asks for all that its function's
# module imports. Kept for the process by what stands there, so that a changed file is read anew;
# without its tree, which takes a hundred times what the text takes.
@functools.lru_cache(maxsize=4096)
def _text_of(content: bytes, package: str, is_python: bool) -> ModuleText:
    try:
        tree = without_notes(_parse(content)) if is_python else None
    except SyntaxError:
        tree = None
    if tree is None:
        return ModuleText(content=content, package=package, code=None, acts=())
    acts = tuple(acts_of(tree.body, lambda _: True))
    code = compile_statements(tree.body)
    return ModuleText(content=content, package=package, code=code, acts=acts)


def _digest_of(tree: ast.Module) -> str:
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _parse(content: bytes) -> ast.Module:
    """Parse a module, also while other threads parse.

    Python 3.11 counts the depth of syntax trees in one place for all threads, and may then take a
    tree for a wrong one (python/cpython#106905). Prefect has threads that parse as well.
    """
    for _ in range(_PARSE_ATTEMPTS - 1):
        with contextlib.suppress(SystemError):
            return ast.parse(content)
    return ast.parse(content)


def _is_own_file(path: str | None, spec: ModuleSpec | None) -> bool:
    if path is None or path in ("built-in", "frozen"):
        # A module made by hand, or a namespace package.
        folders = [] if spec is None else spec.submodule_search_locations
        return folders is not None and not (folders and all(map(_is_installed, folders)))
    return not _is_installed(path)


def _is_installed(path: str) -> bool:
    path = os.path.realpath(path)
    return bool(_INSTALLED & set(path.split(os.sep))) or path.startswith(_STANDARD)
