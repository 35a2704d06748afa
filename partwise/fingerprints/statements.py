"""The statements of a module: without words that do not run, and those that act on import."""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_DECORATORS = frozenset(
    [
        *["abstractmethod", "argument", "asynccontextmanager", "cache", "cached_property"],
        *["classmethod", "command", "contextmanager", "dataclass", "deleter", "final", "fixture"],
        *["field_serializer", "field_validator", "flow", "getter", "group", "lru_cache"],
        *["model_validator", "njit", "option", "overload", "override", "property"],
        *["runtime_checkable", "setter", "staticmethod", "task", "total_ordering", "unique"],
        "wraps",
    ]
)
"""Those that neither call what they decorate nor keep it where other code finds it."""
_CALLS = frozenset(
    [
        *["Decimal", "Field", "Fraction", "NewType", "ParamSpec", "Path", "PurePath", "TypeVar"],
        *["abs", "abspath", "all", "any", "array", "attrgetter", "bool", "bytes", "compile"],
        *["date", "datetime", "dict", "dirname", "enumerate", "field", "float", "format"],
        *["frozenset", "getLogger", "getenv", "int", "itemgetter", "join", "len", "list", "map"],
        *["max", "min", "namedtuple", "object", "partial", "range", "replace", "reversed"],
        *["round", "set", "slice", "sorted", "split", "str", "strip", "sum", "timedelta"],
        *["tuple", "type", "zip"],
    ]
)
"""Those that only make a value."""


def without_notes(tree: ast.Module) -> ast.Module:
    """Return the statements that run when a module is imported, and what they mean.

    Without docstrings, annotations (but those of classes, which make fields), imports from
    `__future__`, and blocks that only type checkers or `python file.py` run.
    """
    cleaned: ast.Module = _Cleaner().visit(tree)
    return cleaned


class _Cleaner(ast.NodeTransformer):
    def __init__(self) -> None:
        self._in_class = False

    def visit(self, node: ast.AST) -> Any:
        # No statement stands in an expression. They are most of the nodes.
        return node if isinstance(node, ast.expr) else super().visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._body(node, in_class=False)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._body(node, in_class=True)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node, in_class=False)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (a name that ast gives)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module == "__future__" else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        # In a class an annotation may make a field, of a dataclass or of a model.
        if self._in_class:
            return node
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_If(self, node: ast.If) -> Any:
        if _is_never_true(node.test):
            return [found for item in node.orelse if (found := self.visit(item))]
        return self.generic_visit(node)

    def _body(
        self,
        node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
        *,
        in_class: bool,
    ) -> ast.AST:
        outer, self._in_class = self._in_class, in_class
        match node.body:
            case [ast.Expr(value=ast.Constant(value=str())), *_]:
                del node.body[0]
        self.generic_visit(node)
        self._in_class = outer
        if not isinstance(node, ast.Module):
            # Without its docstring a body may be empty, which does not compile.
            node.body = node.body or [ast.Pass()]
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.ExceptHandler):
            node.body = node.body or [ast.Pass()]
        return node


def place_statements(tree: ast.AST, place: ast.AST | None = None) -> None:
    """Give statements that were put in by `without_notes` the place of the one around them.

    As `ast.fix_missing_locations` does, which also looks at each node of each expression.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.stmt) and not hasattr(node, "lineno"):
            if place is None:
                node.lineno = node.end_lineno = 1
                node.col_offset = node.end_col_offset = 0
            else:
                ast.copy_location(node, place)
        place_statements(node, node if isinstance(node, ast.stmt | ast.ExceptHandler) else place)


def _is_never_true(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Compare(
            left=ast.Name(id="__name__"),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value="__main__")],
        ):
            return True
    return False


def acts_of(body: Iterable[ast.stmt], is_own: Callable[[str], bool]) -> list[ast.stmt]:
    """Return the statements that may do more, when a module is imported, than bind its names.

    Such as `decimal.getcontext().prec = 6`, `register(fit)`, or a decorator that keeps a list. A
    call counts unless it is one of a few well-known ones.
    """
    return [statement for statement in body if _acts(statement, is_own)]


def _acts(statement: ast.stmt, is_own: Callable[[str], bool]) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Global():
            return False
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            arguments = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
            return _decorated(statement.decorator_list, is_own) or _calls(arguments, is_own)
        case ast.ClassDef():
            if _decorated(statement.decorator_list, is_own) or statement.keywords:
                return True
            # What is bound in a class is part of it; its fields are calls.
            return any(_acts(item, is_own) for item in statement.body if not _binds_names(item))
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.AugAssign(value=value):
            return not _binds_names(statement) or (value is not None and _calls([value], is_own))
        case ast.Delete(targets=targets):
            return not all(isinstance(target, ast.Name) for target in targets)
        case ast.If() | ast.For() | ast.While() | ast.Try() | ast.Match():
            children = list(ast.iter_child_nodes(statement))
            expressions = [node for node in children if isinstance(node, ast.expr)]
            inner = _inner_statements(statement)
            return _calls(expressions, is_own) or any(_acts(item, is_own) for item in inner)
    return True


def _inner_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    for node in ast.iter_child_nodes(statement):
        if isinstance(node, ast.stmt):
            yield node
        elif isinstance(node, ast.ExceptHandler | ast.match_case):
            yield from node.body


def _binds_names(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            targets = [target]
        case _:
            return False
    nodes = [node for target in targets for node in ast.walk(target)]
    return not any(isinstance(node, ast.Attribute | ast.Subscript) for node in nodes)


def _decorated(decorators: list[ast.expr], is_own: Callable[[str], bool]) -> bool:
    for decorator in decorators:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        first, last = _ends(called)
        if last not in _DECORATORS or is_own(first):
            return True
        if isinstance(decorator, ast.Call) and _calls(decorator.args, is_own):
            return True
    return False


def _calls(expressions: list[ast.expr], is_own: Callable[[str], bool]) -> bool:
    for node in (node for expression in expressions for node in ast.walk(expression)):
        match node:
            case ast.Call(func=called):
                first, last = _ends(called)
                if last not in _CALLS or is_own(first):
                    return True
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                return True
    return False


def _ends(called: ast.expr) -> tuple[str, str]:
    """Return the first and the last name of a dotted name, such as that of a call."""
    last = called.attr if isinstance(called, ast.Attribute) else ""
    while isinstance(called, ast.Attribute):
        called = called.value
    first = called.id if isinstance(called, ast.Name) else ""
    return first, last or first
