"""The files of a user's modules, read while other threads are at work."""

import ast
import sys
import threading
from pathlib import Path

import pytest

from partwise.fingerprints import user_modules
from partwise.fingerprints.bytecode import code_objects
from partwise.fingerprints.statements import without_notes
from partwise.fingerprints.user_modules import ModuleText, OwnCode, compile_statements

CONTENT = Path(user_modules.__file__).read_bytes()
CODE = compile(CONTENT, "here", "exec")


def _digest() -> str:
    # A new one each time: it keeps what it has found.
    text = ModuleText(content=CONTENT, package="p", code=CODE, acts=())
    return text.digest(whole=True)


def test_a_module_is_read_while_another_thread_parses() -> None:
    alone, over = _digest(), threading.Event()

    def parse() -> None:
        while not over.is_set():
            try:
                ast.parse("x = [" + "f(1), " * 2000 + "]")
            except SystemError:  # the very mistake of Python's that is at stake
                continue

    thread = threading.Thread(target=parse)
    thread.start()
    try:
        seen = {_digest() for _ in range(30)}
    finally:
        over.set()
        thread.join()
    assert seen == {alone}


def test_a_tree_that_python_takes_for_a_wrong_one_is_parsed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, parse, failures = _digest(), ast.parse, iter([True, True, False])

    def parse_as_beside_a_thread(*arguments: object, **options: object) -> object:
        if next(failures, False):
            raise SystemError("AST constructor recursion depth mismatch (before=69, after=78)")
        return parse(*arguments, **options)

    monkeypatch.setattr(ast, "parse", parse_as_beside_a_thread)
    assert _digest() == alone
    assert list(failures) == []


def test_a_module_in_folders_without_init_is_found_though_nobody_imported_them(
    tmp_path, monkeypatch
) -> None:
    for name in ("outer/inner/deep.py", "outer/package/__init__.py", "outer/package/more.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("outer.inner.deep", "outer.package.more"):
        spec = user_modules.find_module(name)
        assert spec is not None
        assert spec.origin == str(tmp_path / f"{name.replace('.', '/')}.py")
    assert user_modules.find_module("outer.inner.none") is None
    assert "outer" not in sys.modules


EMPTIED = b"""
import typing
if typing.TYPE_CHECKING:
    import decimal
else:
    if __name__ == "__main__":
        go()
class Empty:
    "Says something."
    def nothing(self, x: int = 1) -> None:
        "Says something."
    for place in range(3):
        if typing.TYPE_CHECKING:
            place += 1
try:
    a: int = (
        len("x")
    )
except ValueError:
    b: int
finally:
    with open("x") as file:
        c: str
"""


def test_code_has_the_instructions_that_places_from_python_itself_give() -> None:
    """Which steps that do nothing the compiler leaves out depends on the lines around them."""
    folder = Path(user_modules.__file__).parents[1]
    contents = [EMPTIED, *(path.read_bytes() for path in sorted(folder.glob("[e-g]*/*.py")))]
    assert len(contents) > 50
    for content in contents:
        own = compile_statements(without_notes(ast.parse(content)).body)
        tree = ast.fix_missing_locations(without_notes(ast.parse(content)))
        pythons = compile(tree, "<statements>", "exec", dont_inherit=True)
        pairs = zip(code_objects(own), code_objects(pythons), strict=True)
        assert all(one.co_code == other.co_code for one, other in pairs), content


def test_the_same_text_is_compiled_once_and_a_changed_one_again(tmp_path, monkeypatch) -> None:
    path = tmp_path / "kept_in_mind.py"
    monkeypatch.syspath_prepend(tmp_path)
    path.write_text("import json\n")
    first = OwnCode([]).text("kept_in_mind")
    assert OwnCode([]).text("kept_in_mind") is first
    path.write_text("import csv\n")
    assert OwnCode([]).imported_by("kept_in_mind") == {"csv"}
    path.write_text("import json\n")
    assert OwnCode([]).text("kept_in_mind") is first
    # What relative imports mean depends on where it stands.
    (tmp_path / "above").mkdir()
    (tmp_path / "above" / "kept_in_mind.py").write_text("import json\n")
    assert OwnCode([]).text("above.kept_in_mind") is not first
