"""Imports of names that mean the same here, written anew; all else of a file stays as it is."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from partwise.errors import InputError
from partwise.migration.names import Names
from partwise.migration.programs import parsed

_FROM = re.compile(rb"^(from\s+)[\w.]+")


def write_imports(path: Path, names: Names) -> list[str]:
    """Have a script or notebook import from partwise what means the same there; return the names.

    Raises:
        InputError: The notebook is laid out in another way than Jupyter does it.
    """
    text = path.read_bytes().decode()
    if path.suffix != ".ipynb":
        new, changed = with_own_imports(text, names)
    else:
        new, changed = _with_own_cells(path, text, names)
    if changed:
        path.write_bytes(new.encode())
    return changed


def _with_own_cells(path: Path, text: str, names: Names) -> tuple[str, list[str]]:
    notebook, changed = json.loads(text), []
    layout = next((each for each in _layouts(text) if _dumped(notebook, *each) == text), None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            new, names_of_it = with_own_imports("".join(cell["source"]), names)
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


def with_own_imports(source: str, names: Names) -> tuple[str, list[str]]:
    """Return a source with those imports changed, and the names that they import.

    A statement that imports anything else as well stays.
    """
    tree = parsed(source)
    nodes = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)] if tree else []
    lines, changed = source.encode().split(b"\n"), []
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        imported = [alias.name for alias in node.names]
        if all(_is_same(f"{node.module}.{name}", names) for name in imported):
            line = lines[node.lineno - 1]
            begin, rest = line[: node.col_offset], line[node.col_offset :]
            lines[node.lineno - 1] = begin + _FROM.sub(rb"\1partwise", rest, count=1)
            changed += imported
    return b"\n".join(lines).decode(), changed[::-1]


def _is_same(path: str, names: Names) -> bool:
    found = names.find(path)
    return found is not None and found[0].verdict == "same" and path.endswith(f".{found[0].name}")
