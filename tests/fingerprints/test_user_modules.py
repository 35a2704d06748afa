"""The files of a user's modules, read while other threads are at work."""

import ast
import sys
import threading
from pathlib import Path

import pytest

from partwise.fingerprints import user_modules
from partwise.fingerprints.user_modules import ModuleText

CONTENT = Path(user_modules.__file__).read_bytes()
TEXT = ModuleText(content=CONTENT, package="p", tree=ast.parse(CONTENT))


def _digest() -> str:
    return TEXT.digest(whole=True)


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
