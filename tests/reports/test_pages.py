"""Templates are compiled once, and where nothing can be kept, each time."""

import subprocess
import sys

import pytest

import partwise.reports.pages

PROGRAM = """
import sys
from pathlib import Path
import partwise.reports.pages as pages

pages._HERE = Path(sys.argv[1])
environment = pages.page_environment()
compiled = []
generate = environment._generate
environment._generate = lambda *given, **more: compiled.append(1) or generate(*given, **more)
print(environment.get_template("page.j2").render(name="<one>"), len(compiled))
"""


@pytest.mark.parametrize(("may_keep", "expected"), [(True, [1, 0]), (False, [1, 1])])
def test_a_template_is_compiled_once_where_that_can_be_kept(tmp_path, may_keep, expected):
    (tmp_path / "page.j2").write_text("for {{ name }}")
    if may_keep:
        (tmp_path / "__pycache__").mkdir()
    words = [sys.executable, "-c", PROGRAM, tmp_path]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    found = [
        subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert found == [f"for &lt;one&gt; {times}\n" for times in expected]


def test_one_that_was_changed_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(partwise.reports.pages, "_HERE", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "__pycache__").mkdir()
    for text in ("first", "second"):
        partwise.reports.pages.page_environment.cache_clear()
        (tmp_path / "page.j2").write_text(text)
        page = partwise.reports.pages.page_environment().get_template("page.j2").render()
        assert page == text
    partwise.reports.pages.page_environment.cache_clear()


def test_one_that_is_kept_in_part_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(partwise.reports.pages, "_HERE", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "page.j2").write_text("text")

    def render() -> str:
        partwise.reports.pages.page_environment.cache_clear()
        return partwise.reports.pages.page_environment().get_template("page.j2").render()

    render()
    [kept] = (tmp_path / "__pycache__").iterdir()
    whole = kept.read_bytes()
    for end in range(len(whole)):
        kept.write_bytes(whole[:end])
        assert render() == "text"
        assert kept.read_bytes() == whole
    partwise.reports.pages.page_environment.cache_clear()
