"""Imports of what `partwise.compat` has, written for it; all else of a file stays as it is."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from partwise.errors import InputError
from partwise.migration import layer
from partwise.migration.programs import parsed

_MODULE = re.compile(rb"^((?:from|import)\s+)(?=[\w.])")


def write_imports(path: Path) -> list[str]:
    """Have a script or notebook import from `partwise.compat` what that has; return the names.

    Raises:
        InputError: The notebook is laid out in another way than Jupyter does it.
    """
    text = path.read_bytes().decode()
    if path.suffix != ".ipynb":
        new, changed = with_own_imports(text)
    else:
        new, changed = _with_own_cells(path, text)
    if changed:
        path.write_bytes(new.encode())
    return changed


def _with_own_cells(path: Path, text: str) -> tuple[str, list[str]]:
    notebook, changed = json.loads(text), []
    layout = next((each for each in _layouts(text) if _dumped(notebook, *each) == text), None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            new, names_of_it = with_own_imports("".join(cell["source"]))
            changed += names_of_it
            is_text = isinstance(cell["source"], str)
            cell["source"] = new if is_text else new.splitlines(keepends=True)
    if changed and layout is None:
        raise InputError(
            f"{path} is laid out in another way than Jupyter does it, and stays as it is: open and "
            f"save it there, or change the imports of {', '.join(changed)} by hand."
        )
    return (_dumped(notebook, *layout) if layout else text), changed


def _layouts(text: str) -> Iterator[tuple[int | None, bool, str]]:
    end = text[len(text.rstrip()) :]
    return ((indent, ascii_, end) for indent in (1, 2, 4, None) for ascii_ in (False, True))


def _dumped(notebook: object, indent: int | None, is_ascii: bool, end: str) -> str:
    return json.dumps(notebook, indent=indent, ensure_ascii=is_ascii) + end


def with_own_imports(source: str) -> tuple[str, list[str]]:
    """Return a source with those imports changed, and the names that they import.

    A statement that imports anything else as well stays.
    """
    tree = parsed(source)
    nodes = [each for each in ast.walk(tree) if isinstance(each, ast.stmt)] if tree else []
    lines, changed = source.encode().split(b"\n"), []
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        if imported := _kept(node):
            line = lines[node.lineno - 1]
            begin, rest = line[: node.col_offset], line[node.col_offset :]
            package = rb"\1" + layer.PACKAGE.encode() + b"."
            lines[node.lineno - 1] = begin + _MODULE.sub(package, rest, count=1)
            changed += imported
    return b"\n".join(lines).decode(), changed[::-1]


def _kept(node: ast.stmt) -> list[str]:
    """Return what a statement imports; empty: not all of it stands in the layer by that name."""
    match node:
        case ast.ImportFrom(module=str(module), level=0):
            names = [alias.name for alias in node.names]
            return names if all(layer.has(f"{module}.{name}") for name in names) else []
        # Without a name of its own it would be another one from there.
        case ast.Import(names=[ast.alias(name=module, asname=str())]):
            return [module] if layer.has(module) else []
    return []
