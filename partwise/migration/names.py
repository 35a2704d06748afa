"""The table of names: what the other systems call things, and what to write in place of each."""

import ast
import re
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

Verdict = Literal["same", "other name", "differs", "needs the session", "none"]
VERDICTS: tuple[Verdict, ...] = ("same", "other name", "differs", "needs the session", "none")

PAGES = ("snowflake.md", "azureml.md", "others.md")

_SECTION = re.compile(r"## (?:`([\w.]+)`|(.+))")
_ROW = re.compile(rf"\| (.+?) \| ({'|'.join(VERDICTS)}) \| (.+) \|")
_CODE = re.compile(r"`([^`]+)`")
_FULL = re.compile(r"((?:[a-z]\w*\.)*[a-z]\w*)\.(.+)")
_CELL = re.compile(r"(?:class )?([\w.]*[\w*])(?:\((.*)\))?(?: -> ([\w\[\]]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A row of the table: a class, function, method, property, argument or habit of theirs."""

    page: str
    module: str
    """Where it is imported from; empty: an argument or a habit."""
    name: str
    """`Class`, `Class.method`, `Class.*`, or `*` for all else of the module."""
    verdict: Verdict
    here: str
    """What to write, as code; empty where the sentence says it."""
    sentence: str
    base: str = ""
    """The class that it inherits from."""
    parameters: tuple[str, ...] | None = None
    """In their order; None: nothing is known of its arguments."""
    takes_others: bool = False
    """Whether nothing is said of an argument that is none of these."""
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of parameters that are functions, the classes of what these are given."""
    gives: str = ""
    """The class of what a call returns or a property is; of several `list[...]`, `dict[...]`."""
    arguments: MutableMapping[str, "Name"] = field(default_factory=dict)
    """Those of its arguments that have a row of their own."""

    @property
    def text(self) -> str:
        """What to write, and what there is to say."""
        return self.here + self.sentence

    @property
    def renamed(self) -> dict[str, str]:
        """What each parameter is called here that `here` hands on as it is."""
        called = [each for each in ast.walk(ast.parse(self.here)) if isinstance(each, ast.keyword)]
        return {
            each.value.id: each.arg
            for each in called
            if each.arg is not None and isinstance(each.value, ast.Name)
        }


class Names:
    """All rows, found by the dotted paths of a program."""

    def __init__(self, rows: list[Name]) -> None:
        self.rows = [row for row in rows if row.module]
        self.habits = {row.name: row for row in rows if not row.module}
        self.packages = {row.module.partition(".")[0] for row in self.rows} - {"torch"}
        """Whose names make a program one of those that are looked into."""
        self._named: defaultdict[str, list[Name]] = defaultdict(list)
        self._methods: defaultdict[str, list[Name]] = defaultdict(list)
        for row in self.rows:
            self._named[row.name].append(row)
            self._methods[row.name.partition(".")[2]].append(row)

    def find(self, path: str) -> tuple[Name, str] | None:
        """Return the row of a path, such as of a class that is imported, and what lies beyond it.

        The longest part of the path that has a row counts: beyond `RunStatus.DONE` it is "DONE".
        """
        parts = path.split(".")
        for end in range(len(parts), 1, -1):
            for start in (end - 2, end - 1):
                module, name = ".".join(parts[:start]), ".".join(parts[start:end])
                if module and (row := self._row(module, name)):
                    return row, ".".join(parts[end:])
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if row := next((each for each in self._named["*"] if each.module == module), None):
                return row, ".".join(parts[end:])
        return None

    def _row(self, module: str, name: str) -> Name | None:
        """Return the row of a name that is imported from a module; theirs have several places."""
        owner, _, attribute = name.partition(".")
        for each in (name, f"{owner}.*"):
            for row in self._named[each]:
                if _is_within(module, row.module) or _is_within(row.module, module):
                    return row
            if attribute and (found := self._row(module, owner)) and found.base:
                return self._row(self.class_path(found, found.base), f"{found.base}.{attribute}")
        return None

    def only_method(self, name: str, pages: set[str]) -> Name | None:
        """Return the row of a method that no other class of these pages has.

        Only of a class that programs are given, as a context: one that they make is followed.
        """
        rows = [row for row in self._methods[name] if row.page in pages]
        if "_" not in name or len(rows) != 1:
            return None
        makers = self._named[rows[0].name.partition(".")[0]]
        return None if any(row.parameters is not None for row in makers) else rows[0]

    def class_path(self, row: Name, name: str) -> str:
        """Return the path of a class that a row names; empty: nothing is known of it."""
        of_it = [each for each in self.rows if each.name.partition(".")[0] == name]
        found = [each.module for each in of_it if each.page == row.page]
        return f"{row.module if row.module in found else found[0]}.{name}" if found else ""


def _is_within(module: str, other: str) -> bool:
    return f"{module}.".startswith(f"{other}.")


@cache
def known_names() -> Names:
    """Read the table."""
    return Names([row for page in PAGES for row in _read_page(page)])


def _read_page(page: str) -> Iterator[Name]:
    common: dict[str, Name] = {}
    arguments: MutableMapping[str, Name] = common
    module = ""
    for line in (Path(__file__).parent / page).read_text(encoding="utf-8").splitlines():
        if found := _SECTION.fullmatch(line):
            # Arguments that stand below no name are the same in all calls of the page.
            module, arguments = found[1] or "", common
        elif found := _ROW.fullmatch(line):
            cells, verdict = _CODE.findall(found[1]), cast("Verdict", found[2])
            for cell in cells or [found[1]]:
                if cell.endswith("="):
                    row = _plain_row(page, cell.removesuffix("="), verdict, found[3])
                    arguments[row.name] = row
                    continue
                row = _plain_row(page, cell, verdict, found[3])
                arguments = ChainMap({}, common)
                yield (
                    replace(row, arguments=arguments, **_read_code(module, cell)) if cells else row
                )


def _plain_row(page: str, name: str, verdict: Verdict, text: str) -> Name:
    code = _CODE.match(text)
    here, sentence = (code[1], text[code.end() :]) if code else ("", text)
    sentence = sentence.replace("`", "")
    return Name(page=page, module="", name=name, verdict=verdict, here=here, sentence=sentence)


def _read_code(module: str, cell: str) -> dict[str, Any]:
    """Return what the code of a row says, in the form of a definition: `run(data) -> Run`."""
    found = _CELL.fullmatch(cell)
    if found is None:
        raise ValueError(f"The table of names has {cell!r}, which is no name with its arguments.")
    name, signature, gives = found.groups()
    if not module:
        # By its full name: packages are written in small letters, and classes are not.
        module, name = cast("re.Match[str]", _FULL.fullmatch(name)).groups()
    read = {"module": module, "name": name, "gives": gives or ""}
    if cell.startswith("class "):
        return {**read, "base": signature}
    if signature is None:
        return read
    (definition,) = ast.parse(f"def _({signature}): ...").body
    taken = cast("ast.FunctionDef", definition).args
    both = [*taken.args, *taken.kwonlyargs]
    functions = {
        each.arg: tuple(ast.unparse(one) for one in getattr(each.annotation, "elts", ()))
        for each in both
        if each.annotation
    }
    names = tuple(each.arg for each in both)
    others = taken.kwarg is not None
    return {**read, "parameters": names, "functions": functions, "takes_others": others}
