"""Which names of the table a program uses: by its imports, and by what its variables hold."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from partwise.errors import InputError
from partwise.migration import layer
from partwise.migration.names import Name, Names
from partwise.migration.programs import Cell

_PASSES = 3
"""A function is looked into before it is known who calls it, and with what."""
_SAME_ROWS = ("list", "sorted", "reversed", "tuple", "iter", "next")
_OF_A_DICT = ("items", "keys", "values", "get")
_POLLED = ("status", "get_progress", "partition_details", "get_status")
_QUOTED = re.compile(r'"[a-z][a-z0-9_]*"')
_WITH_SQL = ("Session.sql", "DataConnector.from_sql")
_REFUSED = "partwise.compat refuses it"
_UNKNOWN = "The table of names does not know it."


@dataclass(frozen=True, slots=True)
class Use:
    """A place of a program that uses a name of the table."""

    cell: int | None
    line: int
    column: int
    name: str
    row: Name
    is_kept: bool
    """Whether it runs as it is, where imports name `partwise.compat`."""


class _Held(NamedTuple):
    """What an expression is: what an import names, or one or more values of a class of theirs."""

    path: str
    is_value: bool = True
    is_annotated: bool = False


def uses_of(cells: Sequence[Cell], names: Names) -> list[Use]:
    """Return the uses in a program, in its order; one that imports none of theirs has none.

    Raises:
        InputError: It is nested too deeply to be followed.
    """
    follower = _Follower(names)
    for done in range(_PASSES):
        if done and not follower.pages:
            return []
        follower.begin()
        for cell in cells:
            if cell.tree is not None:
                follower.cell = cell.number
                try:
                    follower.visit(cell.tree)
                except RecursionError:
                    raise InputError("It is nested too deeply to be followed.") from None
    used = [use for use in follower.uses.values() if use.row.page in follower.pages]
    return sorted(used, key=lambda use: (use.cell or 0, use.line, use.column))


class _Follower:
    """Goes through a program in its order; a visit of an expression returns what it is."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.pages: set[str] = set()
        """Of the systems that it imports from."""
        self.uses: dict[tuple[int | None, int, int, str], Use] = {}
        self.cell: int | None = None
        self._scopes: list[dict[str, _Held | None]] = [{}]
        self._given: dict[str, dict[int | str, _Held]] = {}
        """What functions of the program are called with, by place or name."""
        self._returned: dict[str, _Held] = {}
        self._trains: set[str] = set()
        """The functions whose models are kept as they are."""
        self._function = ""
        self._all_of: set[str] = set()
        """The modules of which everything is imported."""

    def begin(self) -> None:
        """Begin a pass; functions may use what stands below them."""
        self.uses.clear()
        self._before = self._scopes[0]
        self._scopes = [{}]

    # What is noted.

    def _note(
        self, node: ast.expr | ast.stmt, name: str, row: Name, *, is_kept: bool = True
    ) -> None:
        line, column = node.lineno, node.col_offset
        if isinstance(node, ast.Attribute):
            # Where the last word stands: a chain may go over many lines.
            line = node.end_lineno or line
            column = (node.end_col_offset or 0) - len(node.attr)
        is_kept = is_kept and _REFUSED not in row.sentence
        self.uses[self.cell, line, column, name] = Use(self.cell, line, column, name, row, is_kept)

    def _note_habit(self, node: ast.expr | ast.stmt, habit: str) -> None:
        self._note(node, habit, self.names.habits[habit])

    def _note_path(self, node: ast.expr, path: str) -> None:
        if (found := self.names.find(path)) is None:
            return
        row, beyond = found
        name = row.name
        if name.endswith("*"):
            # Its class, or else its package, and the last word.
            *others, last = path.split(".")
            owners = [each for each in others if each[:1].isupper()] or others[-1:]
            name = last if last[:1].isupper() else f"{owners[0]}.{last}"
        if beyond and not row.name.endswith("*") and not row.gives:
            name = f"{row.name}.{beyond}"
            if not beyond[0].isupper():
                row = replace(row, verdict="none", here="", sentence=_UNKNOWN)
        self._note(node, name, row, is_kept=layer.has(path))

    # Imports, and what names stand for.

    def visit(self, node: ast.AST) -> _Held | None:
        """Go through a part of the program, and return what it is, where that is of theirs."""
        match node:
            case ast.Import():
                for alias in node.names:
                    path = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._import(alias.asname or path, path, alias.name)
            case ast.ImportFrom():
                for alias in node.names:
                    path = f"{node.module or ''}.{alias.name}"
                    self._import(alias.asname or alias.name, path, path)
                    if alias.name == "*":
                        self._all_of.add(node.module or "")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._definition(node)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                return self._assign(node)
            case ast.For():
                self._bind_each(node.target, node.iter)
                self._parts(node)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._bind(target, self.visit(node.context_expr))
            case ast.While():
                self._while(node)
            case ast.Return():
                self._return(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._comprehension(node)
            case ast.Lambda():
                self._lambda(node)
            case ast.Constant(value=str(text)) if _QUOTED.fullmatch(text):
                self._note_habit(node, "a quoted lower-case name")
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                self.visit(node.slice)
                return self.visit(node.value)
            case ast.Await():
                return self.visit(node.value)
            case ast.Call():
                return self._call(node)
            case _:
                self._parts(node)
        return None

    def _parts(self, node: ast.AST) -> None:
        for part in ast.iter_child_nodes(node):
            self.visit(part)

    def _import(self, name: str, path: str, whole: str) -> None:
        self._scopes[-1][name] = _Held(path, is_value=False)
        if whole.partition(".")[0] in self.names.packages and (found := self.names.find(whole)):
            self.pages.add(found[0].page)

    def _lookup(self, name: str) -> _Held | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        for module in self._all_of if name.isidentifier() else ():
            found = self.names.find(f"{module}.{name}")
            if found and found[0].name != "*":
                return _Held(f"{module}.{name}", is_value=False)
        return self._before.get(name) if len(self._scopes) > 1 else None

    def _imported(self, node: ast.expr) -> str:
        """Return the path of an expression that only imports and dots make up; empty: it is not."""
        if isinstance(node, ast.Attribute):
            owner = self._imported(node.value)
            # What a property gives is a value.
            return "" if not owner or self._property(owner) else f"{owner}.{node.attr}"
        held = self._lookup(node.id) if isinstance(node, ast.Name) else None
        return held.path if held and not held.is_value else ""

    # Expressions.

    def _name(self, node: ast.Name) -> _Held | None:
        held = self._lookup(node.id)
        if held and not held.is_value:
            self._note_path(node, held.path)
        return held

    def _attribute(self, node: ast.Attribute) -> _Held | None:
        if path := self._imported(node):
            self._note_path(node, path)
            return self._property(path) or _Held(path, is_value=False)
        if held := self._lookup(ast.unparse(node)):
            return held
        owner = self.visit(node.value)
        if owner is None:
            if row := self.names.only_method(node.attr, self.pages):
                path = f"{row.module}.{row.name}"
                self._note(node, row.name, row, is_kept=layer.has(path))
                return self._given_by(row) or _Held(path)
            return None
        path = f"{owner.path}.{node.attr}"
        found = self.names.find(path)
        is_whole = found is not None and found[0].name.endswith("*")
        if node.attr in _OF_A_DICT and (found is None or found[1]):
            return None if node.attr == "keys" else owner
        # Of a chain within the vendor's database the beginning is told, and what the layer lacks.
        is_lost = layer.has(owner.path) and not layer.has(path)
        if isinstance(node.value, ast.Name) or not is_whole or is_lost:
            self._note_path(node, path)
        is_call = is_whole or (
            found is not None and not found[1] and found[0].parameters is not None
        )
        return self._property(path) or (_Held(path) if is_call else None)

    def _property(self, path: str) -> _Held | None:
        found = self.names.find(path)
        return self._given_by(found[0]) if found and found[0].parameters is None else None

    def _given_by(self, row: Name) -> _Held | None:
        path = self.names.class_path(row, row.gives) if row.gives else ""
        return _Held(path) if path else None

    def _lambda(self, node: ast.Lambda, given: Sequence[str] = ()) -> None:
        names = [each.arg for each in node.args.args]
        self._scopes.append({name: _Held(path) for name, path in zip(names, given, strict=False)})
        self.visit(node.body)
        self._scopes.pop()

    def _call(self, node: ast.Call) -> _Held | None:
        held = self.visit(node.func)
        found = self.names.find(held.path) if held else None
        row = found[0] if found and not found[1] else None
        taken = self._arguments(node, row, held.path if held else "")
        own = node.func.id if isinstance(node.func, ast.Name) else ""
        if held is None and own in _SAME_ROWS and node.args:
            return taken.get(0)
        if held is None and own:
            # A function of the program.
            known = {place: each for place, each in taken.items() if each is not None}
            self._given.setdefault(own, {}).update(known)
            return self._returned.get(own)
        if held is None or found is None:
            return None
        if row is not None and row.name in _WITH_SQL and node.args:
            self._note(node.func, row.name, row, is_kept=layer.carries_out(_text(node.args[0])))
        return self._given_by(found[0]) or _made_by(held, found[0])

    def _arguments(
        self, node: ast.Call, row: Name | None, path: str
    ) -> dict[int | str, _Held | None]:
        """Visit the arguments of a call, judge them, and return what they are."""
        taken: dict[int | str, _Held | None] = {}
        places: list[tuple[int | str, ast.expr]] = list(enumerate(node.args))
        places += [(each.arg or "", each.value) for each in node.keywords]
        for place, value in places:
            name = place
            if isinstance(place, int):
                order = (row.parameters if row else None) or ()
                name = order[place] if place < len(order) else ""
            given: Iterable[str] = ()
            if row is not None and name and not isinstance(value, ast.Starred):
                self._judge(value, row, path, str(name))
                given = self._give(row, str(name), value)
            if isinstance(value, ast.Lambda):
                self._lambda(value, tuple(given))
            else:
                taken[place] = self.visit(value)
        return taken

    def _judge(self, value: ast.expr, row: Name, path: str, name: str) -> None:
        """Note an argument of which there is more to say than the row of its call says."""
        told = row.arguments.get(name) if row.parameters is not None else None
        called = row.renamed.get(name, name) if row.verdict == "same" and row.parameters else name
        if told is None and called != name:
            told = replace(row, verdict="other name", here=called, sentence="")
        if told is None and row.parameters and not row.takes_others and name not in row.parameters:
            told = replace(row, verdict="none", here="", sentence=_UNKNOWN)
        if told is not None:
            is_kept = layer.takes(path, name)
            self._note(value, f"{row.name}({name}=)", told, is_kept=is_kept)

    def _give(self, row: Name, name: str, value: ast.expr) -> Iterable[str]:
        """Remember what a function of the program will be given, and return it."""
        paths = [self.names.class_path(row, each) for each in row.functions.get(name, ())]
        if isinstance(value, ast.Name):
            given: dict[int | str, _Held] = {
                place: _Held(path) for place, path in enumerate(paths) if path
            }
            self._given.setdefault(value.id, {}).update(given)
            if row.name == "ManyModelTraining" and name == "train_func":
                self._trains.add(value.id)
        return paths

    # Statements.

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> _Held | None:
        held = self.visit(node.value) if node.value else None
        if isinstance(node, ast.AnnAssign) and (kind := self.visit(node.annotation)):
            held = _Held(kind.path, is_annotated=True)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._bind(target, held)
        return held

    def _bind(self, target: ast.expr, held: _Held | None) -> None:
        match target:
            case ast.Name():
                before = self._scopes[-1].get(target.id)
                # What is annotated stays what it is, also where nobody can tell what it is given.
                if held or not (before and before.is_annotated):
                    self._scopes[-1][target.id] = held
            case ast.Attribute():
                # Of an object of the program itself, such as self.session.
                if self.visit(target.value) is None and held:
                    self._scopes[0][ast.unparse(target)] = held
            case ast.Tuple() | ast.List():
                for element in target.elts:
                    self._bind(element, held)
            case _:
                self.visit(target)

    def _bind_each(self, target: ast.expr, rows: ast.expr) -> None:
        """Bind what a loop gets: of a dict of theirs the values, never the keys."""
        held = self.visit(rows)
        if isinstance(target, ast.Tuple):
            self._bind(target, None)
            target = target.elts[-1]
        self._bind(target, held if isinstance(rows, ast.Call | ast.Subscript) else None)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        self._scopes.append({})
        for generator in node.generators:
            self._bind_each(generator.target, generator.iter)
        self._parts(node)
        self._scopes.pop()

    def _while(self, node: ast.While) -> None:
        before = set(self.uses)
        self._parts(node)
        if any(
            self.uses[use].row.name.rpartition(".")[2] in _POLLED for use in {*self.uses} - before
        ):
            self._note_habit(node, "a loop that polls")

    def _return(self, node: ast.Return) -> None:
        held = self.visit(node.value) if node.value else None
        if held and held.is_value:
            self._returned[self._function] = held

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            if held := self.visit(decorator):
                # A call of it makes what is theirs, such as a job.
                self._returned[node.name] = _Held(held.path)
        self.visit(node.args)
        taken, given = node.args, self._given.get(node.name, {})
        scope: dict[str, _Held | None] = {}
        for place, each in enumerate([*taken.posonlyargs, *taken.args, *taken.kwonlyargs]):
            kind = self.visit(each.annotation) if each.annotation else None
            told = kind and _Held(kind.path, is_annotated=True)
            scope[each.arg] = told or given.get(each.arg) or given.get(place)
        if node.name == "run" and len(self._scopes) == 1 and "init" in self._scopes[0]:
            self._note_habit(node, "init() and run() of an entry script")
        self._scopes[-1][node.name] = None
        outer, self._function = self._function, node.name
        self._scopes.append(scope)
        for part in (*node.body, node.returns):
            if part:
                self.visit(part)
        self._scopes.pop()
        self._function = outer
        if node.name in self._trains:
            self._note_attributes(node)

    def _note_attributes(self, function: ast.AST) -> None:
        """Note what is set on the model that a function returns."""
        nodes = list(ast.walk(function))
        returned = {
            ast.unparse(each.value) for each in nodes if isinstance(each, ast.Return) and each.value
        }
        for each in nodes:
            match each:
                case ast.Attribute(ctx=ast.Store()) if ast.unparse(each.value) in returned:
                    self._note_habit(each, "an attribute set on a model")


def _text(node: ast.expr) -> str:
    """Return a text with a name in place of each value in it; empty: nobody knows it yet."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(_text(part) or "NAME" for part in node.values)
    return ""


def _made_by(held: _Held, row: Name) -> _Held | None:
    """Return what a call makes of which the row does not say it."""
    owner, _, last = held.path.rpartition(".")
    if last[:1].isupper():
        return _Held(held.path)
    if not row.name.endswith("*"):
        return None
    # Workspace.from_config() and the like make one of that class.
    is_of_class = not held.is_value and owner.rpartition(".")[2][:1].isupper()
    return _Held(owner if is_of_class else held.path)
