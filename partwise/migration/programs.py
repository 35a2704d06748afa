"""Programs of people: scripts and notebooks, as trees of what Python makes of them."""

import ast
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from partwise.errors import InputError

_PASSED_OVER = ("site-packages", "node_modules", "__pycache__")
_LINE_END = re.compile(r"\r\n|\r|\n")
_MAGIC = re.compile(r"(\s*)(?:%%?\w|!).*")
_ASSIGNED_MAGIC = re.compile(r"(\s*[\w, ]+=\s*)[%!]\w.*")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a notebook, or all of a script."""

    number: int | None
    """From 1 on among all cells of the notebook; None: it is a script."""
    source: str
    tree: ast.Module | None
    """None: it is no Python, which a notebook may hold as well."""


def find_programs(path: Path) -> list[Path]:
    """Return a file itself, or the scripts and notebooks below a folder.

    Raises:
        InputError: There is none.
    """
    if path.is_file():
        return [path]
    found = [
        each
        for each in sorted(path.rglob("*"))
        if each.suffix in (".py", ".ipynb") and each.is_file() and _is_own(each.relative_to(path))
    ]
    if not found:
        raise InputError(f"There is no script (.py) and no notebook (.ipynb) at {str(path)!r}.")
    return found


def _is_own(path: Path) -> bool:
    return not any(part.startswith(".") or part in _PASSED_OVER for part in path.parts)


def read_program(path: Path) -> list[Cell]:
    """Read a script or a notebook.

    Raises:
        InputError: It cannot be read, or is no notebook.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        cells = list(_read_cells(text)) if path.suffix == ".ipynb" else [(None, text)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}.") from error
    return [Cell(number, source, parsed(source)) for number, source in cells]


def _read_cells(text: str) -> Iterator[tuple[int, str]]:
    for number, cell in enumerate(json.loads(text)["cells"], 1):
        if cell["cell_type"] == "code":
            yield number, "".join(cell["source"])


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a source; lines of IPython's own, with ! and %, count as `pass`."""
    for text in (source, _masked(source)):
        try:
            with warnings.catch_warnings():
                # Escapes of a user's strings.
                warnings.simplefilter("ignore")
                return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _masked(source: str) -> str:
    lines, goes_on = [], False
    for line in _LINE_END.split(source):
        magic, assigned = _MAGIC.fullmatch(line), _ASSIGNED_MAGIC.fullmatch(line)
        masked = f"{magic[1]}pass" if magic else f"{assigned[1]}None" if assigned else line
        lines.append("" if goes_on else masked)
        goes_on = (goes_on or magic is not None) and line.rstrip().endswith("\\")
    return "\n".join(lines)
