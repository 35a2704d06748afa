"""docs/security.md lists every file that is read back; held against the code that reads."""

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.security.listed import modules, tables

HEADING = "### Every file that is read back"
LAYERS = {"store/store", "store/local_objects", "store/remote_objects"}
"""What carries out a read that others ask for."""
PLACES = {"state_folder", "scratch_folder", "own_folder", "own_scratch", "gettempdir"}
"""Functions that return a folder of this machine in which others find files by their path."""
KEEPS_NOTHING = {"connector/spooling", "flows/operations/doctor", "processes/shared_files"}
"""Ask for room there, have a file that no other process opens, or name a folder for sockets."""


def calls(of: Callable[[ast.Call], bool]) -> set[str]:
    """Return the modules that call what `of` chooses, as the page names them."""
    found = set()
    for module, path in modules():
        if any(map(of, calls_in(path))):
            found.add(module)
    return found


@cache
def calls_in(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def reads_a_store(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    if ast.unparse(call.func) == "fsspec.open":
        return True
    if call.func.attr in ("read_range", "read_document", "local_path"):
        return True
    owner = ast.unparse(call.func.value).rpartition(".")[2].lstrip("_")
    return call.func.attr == "read" and owner in ("store", "opened", "objects")


def names_a_place(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in PLACES


def listed(table: int) -> set[str]:
    """Return the modules that a table of the page names."""
    rows = tables(HEADING)[table]
    assert all(len(row) == 3 for row in rows)
    return set(re.findall(r"`([a-z_/]+)(?:\.py)?`", " ".join(row[1] for row in rows)))


def test_every_module_that_reads_a_store_is_listed() -> None:
    assert calls(reads_a_store) - LAYERS == listed(0)


def test_every_module_that_keeps_files_on_this_machine_is_listed() -> None:
    # The password of `partwise up` lies in the folder of a project.
    found = calls(names_a_place) - KEEPS_NOTHING
    assert found | {"flows/operations/services"} == listed(1)
