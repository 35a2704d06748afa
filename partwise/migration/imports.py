"""Imports of what `partwise.compat` has, written for it; all else of a file stays as it is."""

import ast
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from partwise.errors import InputError
from partwise.migration import layer
from partwise.migration.programs import parsed

_LINE_END = re.compile(rb"\r\n|\r|\n")
"""What Python ends a line at, and so counts by."""
_TO_MODULE = re.compile(rb"(?:from|import)(?:[ \t\f]|\\(?:\r\n|\r|\n))+")
_BOM = "\ufeff"


def write_imports(path: Path) -> list[str]:
    """Have a script or notebook import from `partwise.compat` what that has; return the names.

    Raises:
        InputError: It cannot be read, changed or written, and stays as it is; or the notebook is
            laid out in another way than Jupyter does it.
    """
    try:
        whole = path.read_bytes().decode()
        text = whole.removeprefix(_BOM)
        new, changed = (_with_own_cells if path.suffix == ".ipynb" else with_own_imports)(text)
        if changed:
            _write_anew(path, (whole[: len(whole) - len(text)] + new).encode())
    except (OSError, UnicodeError, RecursionError) as error:
        raise InputError(
            f"It cannot be read or written: {type(error).__name__}: {error}."
        ) from error
    return changed


def _write_anew(path: Path, content: bytes) -> None:
    """Write a file in place of an old one, which stays where there is no room for it."""
    # A link is followed: its target is what is to be replaced.
    target = path.resolve()
    # What may not be written to is not replaced either.
    target.open("r+b").close()
    new = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        new.write_bytes(content)
        shutil.copymode(target, new)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def _with_own_cells(text: str) -> tuple[str, list[str]]:
    notebook, changed = json.loads(text), []
    layout = next((each for each in _layouts(text) if _dumped(notebook, *each) == text), None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            new, names_of_it = with_own_imports("".join(cell["source"]))
            if names_of_it:
                is_text = isinstance(cell["source"], str)
                cell["source"] = new if is_text else new.splitlines(keepends=True)
                changed += names_of_it
    if changed and layout is None:
        raise InputError(
            "It is laid out in another way than Jupyter does it: open and save it there, or "
            f"change the imports of {', '.join(changed)} by hand."
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

    Raises:
        InputError: The source would not import these from there, and all else as before.
    """
    if (tree := parsed(source)) is None:
        return source, []
    text, places, changed = source.encode(), [], []
    starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
    imports = _imports(tree)
    for node in imports:
        if imported := _kept(node):
            changed += imported
            if found := _TO_MODULE.match(text, starts[node.lineno - 1] + node.col_offset):
                places.append(found.end())
            _name_own(node)
    for place in reversed(places):
        text = text[:place] + f"{layer.PACKAGE}.".encode() + text[place:]
    new = text.decode()
    # Also what Python reads in another way than this does is never written.
    if changed and _told(_imports(parsed(new))) != _told(imports):
        raise InputError(
            f"Its imports of {', '.join(changed)} cannot be found in its text: change them by hand."
        )
    return new, changed


def _imports(tree: ast.Module | None) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.walk(tree) if tree else ()
    found = [each for each in nodes if isinstance(each, ast.Import | ast.ImportFrom)]
    return sorted(found, key=lambda each: (each.lineno, each.col_offset))


def _told(imports: list[ast.Import | ast.ImportFrom]) -> list[str]:
    return [ast.dump(each) for each in imports]


def imports_that_stay(tree: ast.Module | None) -> Iterator[tuple[int, str]]:
    """Yield the line of each import that stays theirs although the layer has a part, and why."""
    for node in _imports(tree):
        if _kept(node):
            continue
        if isinstance(node, ast.Import):
            for name in (each.name for each in node.names if layer.has(each.name)):
                yield node.lineno, f"write it alone, as import {name} as NAME"
        elif node.module and not node.level:
            names = [each.name for each in node.names]
            lacking = [each for each in names if not layer.has(f"{node.module}.{each}")]
            if "*" in names and layer.has(node.module):
                yield node.lineno, "name what it imports, in place of *"
            elif len(lacking) < len(names):
                yield node.lineno, f"have an import of their own for {', '.join(lacking)}"


def _name_own(node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.ImportFrom):
        node.module = f"{layer.PACKAGE}.{node.module}"
    else:
        node.names[0].name = f"{layer.PACKAGE}.{node.names[0].name}"


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
