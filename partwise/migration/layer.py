"""What `partwise.compat` has under other systems' names, and runs when its import alone changes.

Its files are read as programs are, and not imported: that would take longer than all the rest.
"""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from partwise.errors import InputError

PACKAGE = "partwise.compat"
_ROOT = Path(__file__).resolve().parents[2]


class _Found(NamedTuple):
    """A module, or something in one."""

    module: str
    node: ast.AST


def has(path: str) -> bool:
    """Return whether something has this path there, such as `snowflake.snowpark.Session.table`."""
    return _at(f"{PACKAGE}.{path}") is not None


def takes(path: str, argument: str) -> bool:
    """Return whether what is called by a path there has an argument of this name."""
    found = _at(f"{PACKAGE}.{path}")
    return found is not None and argument in _parameters(found)


def carries_out(statement: str) -> bool:
    """Return whether the session there knows what to do at a statement of SQL."""
    statements = importlib.import_module(f"{PACKAGE}.snowflake.snowpark.statements")
    try:
        statements.statement(statement, None)
    except InputError:
        return False
    return True


@cache
def _at(path: str) -> _Found | None:
    if (tree := _tree(path)) is not None:
        return _Found(path, tree)
    owner, _, name = path.rpartition(".")
    found = _at(owner) if owner else None
    return _resolved(name, found) if found else None


@cache
def _tree(module: str) -> ast.Module | None:
    path = _ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else None


def _resolved(name: str, owner: _Found) -> _Found | None:
    """Return what a name of a module or of a class is, by its imports and its base classes."""
    for node in _body(owner.node):
        match node:
            case ast.ImportFrom(module=str(module)):
                for alias in node.names:
                    if name == (alias.asname or alias.name):
                        # What comes from another library is at least there.
                        return _at(f"{module}.{alias.name}") or _Found(module, node)
            case ast.FunctionDef() | ast.ClassDef() if node.name == name:
                return _Found(owner.module, node)
            case ast.AnnAssign(target=ast.Name(id=own), annotation=ast.Name(id=kind)) if (
                own == name != kind
            ):
                # It has what its class has.
                return _at(f"{owner.module}.{kind}") or _Found(owner.module, node)
            case ast.Assign() | ast.AnnAssign() if name in _assigned(node):
                other = node.value.id if isinstance(node.value, ast.Name) else ""
                return (other and _resolved(other, owner)) or _Found(owner.module, node)
    of_bases = (_resolved(name, base) for base in _bases(owner))
    return next(filter(None, of_bases), None)


def _assigned(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _body(node: ast.AST) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.Module | ast.ClassDef) else []


def _bases(owner: _Found) -> Iterator[_Found]:
    for base in getattr(owner.node, "bases", ()):
        if isinstance(base, ast.Name) and (found := _at(f"{owner.module}.{base.id}")):
            yield found


def _parameters(found: _Found) -> set[str]:
    if isinstance(found.node, ast.FunctionDef):
        taken = found.node.args
        return {each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
    if (own := _resolved("__init__", found)) is not None:
        return _parameters(own)
    # Of a dataclass.
    fields = [node for node in _body(found.node) if isinstance(node, ast.AnnAssign)]
    names = {node.target.id for node in fields if isinstance(node.target, ast.Name)}
    return names.union(*map(_parameters, _bases(found)))
