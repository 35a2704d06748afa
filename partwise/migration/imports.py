"""Imports of names that mean the same here, written anew; all else of a file stays as it is."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from partwise.errors import InputError
from partwise.migration.names import Names
from partwise.migration.programs import parsed


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
    """Return a source with those imports changed, and the names that they import."""
    tree = parsed(source)
    nodes = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)] if tree else []
    changed: list[str] = []
    for node in sorted(nodes, key=lambda each: -each.lineno):
        same = [alias for alias in node.names if _is_same(f"{node.module}.{alias.name}", names)]
        new = _rewritten(source.encode(), node, same).decode() if same else source
        # What words alone cannot change rightly, as among comments of the same word, stays.
        if same and _imports(source, node, same) == _imports(new):
            source = new
            changed += [alias.name for alias in same]
    return source, changed[::-1]


def _is_same(path: str, names: Names) -> bool:
    found = names.find(path)
    return found is not None and found[0].verdict == "same" and path.endswith(f".{found[0].name}")


def _imports(
    source: str, node: ast.ImportFrom | None = None, own: Sequence[ast.alias] = ()
) -> list[tuple[str, str, str | None]]:
    """Return what a source imports, where a statement imports some of its names from partwise."""
    names = {alias.name for alias in own}
    found: list[tuple[str, str, str | None]] = []
    tree = parsed(source)
    for each in ast.walk(tree) if tree else ():
        if isinstance(each, ast.ImportFrom):
            is_it = node is not None and each.lineno == node.lineno
            for alias in each.names:
                module = "partwise" if is_it and alias.name in names else each.module
                found.append((module or "", alias.name, alias.asname))
    return sorted(found, key=str)


def _rewritten(source: bytes, node: ast.ImportFrom, same: Sequence[ast.alias]) -> bytes:
    lines = source.split(b"\n")

    def place(line: int | None, column: int | None) -> int:
        return sum(len(each) + 1 for each in lines[: (line or 1) - 1]) + (column or 0)

    begin, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
    indent = lines[node.lineno - 1][: node.col_offset].decode()
    statement = source[begin:end].decode()
    if len(same) == len(node.names):
        new = re.sub(r"^from\s+[\w.]+", "from partwise", statement)
    elif indent.strip():
        return source
    else:
        head, rest = re.split(r"\bimport\b", statement, maxsplit=1)
        for alias in same:
            rest = re.sub(rf"\b{alias.name}\b(\s+as\s+\w+)?[ \t]*,?[ \t]*", "", rest, count=1)
        rest = re.sub(r"\n[ \t]*(?=\r?\n)", "", rest)
        own = ", ".join(ast.unparse(alias) for alias in same)
        line_end = "\r\n" if b"\r\n" in source else "\n"
        rest = rest if "(" in rest else rest.rstrip(", ")
        new = f"from partwise import {own}{line_end}{indent}{head}import{rest}"
    return source[:begin] + new.encode() + source[end:]
