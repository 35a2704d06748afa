"""Queries of Snowflake as DuckDB is asked them; what might mean something else there is refused.

sqlglot reads and writes SQL, and DuckDB answers. The two say nothing of functions that they do not
know, so that only what is listed here goes through. What it means in Snowflake is taken from what
is written of it, and from sqlglot: none of it was run there.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_CLAUSES = """
Select From Where Group Having Qualify Order Ordered Limit Offset Join Table TableAlias Subquery CTE
With Union Intersect Except Alias Column Identifier Star Paren Distinct Values Tuple Window
WindowSpec Cube Rollup GroupingSets TableSample WithinGroup IgnoreNulls"""
_OF_VALUES = """
Literal RawString Null Boolean Var Cast DataType DataTypeParam Case If In Between Is Not And Or EQ
NEQ GT GTE LT LTE EqualNull NullSafeEQ NullSafeNEQ Like ILike Exists Any All Add Sub Mul Div Mod Neg
DPipe Concat Coalesce Nullif Nvl2 DecodeCase Greatest Least Abs Round Ceil Floor Sqrt Exp Ln Pow
Sign Upper Lower Trim Length Substring Left Right Replace StartsWith EndsWith Contains Rand Uniform
CurrentDate TsOrDsToDate ToChar ToDouble ToNumber"""
_OF_ROWS = """
Count CountIf Sum Avg Min Max Stddev StddevSamp StddevPop Variance VariancePop Median AnyValue Corr
GroupConcat LogicalOr LogicalAnd PercentileCont RowNumber Rank DenseRank PercentRank CumeDist Ntile
Lag Lead FirstValue LastValue"""
_WITH_UNITS = ("DateAdd", "DateDiff", "TimestampTrunc", "DateTrunc")
_OF_TIMES = (
    *_WITH_UNITS,
    *("Year", "Quarter", "Month", "Day", "DayOfMonth", "DayOfYear", "Hour", "Minute", "Second"),
    "LastDay",
)
_KNOWN = {*_CLAUSES.split(), *_OF_VALUES.split(), *_OF_ROWS.split(), *_OF_TIMES}
_ONLY = {"Trim": {"this", "position"}, "LastDay": {"this"}}
"""Functions of which these arguments alone are known."""
_OF_DATES = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
_UNITS = (*_OF_DATES, "HOUR", "MINUTE", "SECOND")
_PARTS = {*_UNITS} - {"WEEK"}
_TEXT = ("TEXT", "VARCHAR")
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_NO_ZONE = ("DATE", "TIMESTAMP", "TIMESTAMPNTZ", "DATETIME")
_NUMBERS = (*_WHOLE, "DOUBLE", "FLOAT", "DECIMAL", "INT128", "BIGDECIMAL")
_ALIKE = """
EQ NEQ GT GTE LT LTE EqualNull NullSafeEQ NullSafeNEQ In Between Add Sub Mul Div Mod Coalesce Nullif
Greatest Least"""
_OF_TEXTS = """
Upper Lower Trim Length Substring Left Right Replace StartsWith EndsWith Contains"""
_TYPES = (*_TEXT, *_WHOLE, *_NO_ZONE, "BOOLEAN", "DOUBLE", "FLOAT", "DECIMAL")
MACROS = """
SET TimeZone = 'UTC';
SET lock_configuration = true;
CREATE MACRO pw_divisor(b) AS CASE WHEN b = 0 THEN error('Division by zero.') ELSE b END;
CREATE MACRO pw_text(x) AS CASE
    WHEN typeof(x) IN ('VARCHAR', 'BOOLEAN', 'DATE', '"NULL"') OR typeof(x) LIKE '%INT'
        OR typeof(x) LIKE 'INTEGER%' OR typeof(x) LIKE 'DECIMAL%' THEN CAST(x AS VARCHAR)
    ELSE error('The text of a ' || typeof(x) || ' is another one in Snowflake.') END;
CREATE MACRO pw_zoneless(x) AS CASE
    WHEN typeof(x) LIKE '%ZONE' OR typeof(x) = 'VARCHAR'
        AND regexp_matches(CAST(x AS VARCHAR), ':.*(Z|[+-][0-9]{1,2}(:?[0-9]{2})?)\\s*$')
    THEN error('What day or hour it is depends on a time zone: give times without one.') ELSE x END;
"""
"""What means something else in DuckDB: a division by zero gives infinity, texts of doubles and
times have another form, and a zone is counted in. As functions of SQL, which know the types."""


class Refused(Exception):  # noqa: N818 (a part of a sentence)
    """What a statement has that is not carried out, as the part of a sentence."""


def parsed(text: str, params: Sequence[Any] | None) -> Any:
    """Return a statement as sqlglot has it, with its parameters, or nulls, in their places.

    Raises:
        Refused: It is more than one, or has other parameters.
        sqlglot.errors.ParseError: It is no SQL.
    """
    import sqlglot
    from sqlglot import exp

    tokens = sqlglot.tokenize(text, read="snowflake")
    places = [each for each in tokens if each.token_type.name == "PLACEHOLDER"]
    if params is None:
        params = [None] * len(places)
    if len(places) != len(params):
        raise Refused(f"it has {len(places)} places for parameters, and {len(params)} came")
    # From the last on, so that the places of the others stay.
    for place, value in reversed(list(zip(places, params, strict=True))):
        # With spaces: a minus before -1 would make a comment.
        text = f"{text[: place.start]} {_literal(value)} {text[place.end + 1 :]}"
    trees = [tree for tree in sqlglot.parse(text, read="snowflake") if tree is not None]
    if len(trees) != 1:
        raise Refused("it is not one statement")
    for node in trees[0].find_all(exp.Anonymous):
        # Of one argument alone, which is no number of seconds: that cast is an error.
        if node.name.upper() in ("TO_TIMESTAMP", "TO_TIMESTAMP_NTZ") and len(node.expressions) == 1:
            node.replace(exp.cast(node.expressions[0], "TIMESTAMP"))
    for part in trees[0].find_all(exp.Extract):
        # DATE_PART too.
        if part.name.upper() in _PARTS:
            part.replace(getattr(exp, part.name.capitalize())(this=part.expression))
    if isinstance(trees[0], exp.Insert) and isinstance(trees[0].expression, exp.Values):
        trees[0].set("expression", exp.select("*").from_(trees[0].expression.copy()))
    return trees[0]


def _literal(value: Any) -> str:
    from sqlglot import exp

    try:
        if isinstance(value, float):
            return f"CAST({str(value)!r} AS DOUBLE)"
        return str(exp.convert(value).sql("snowflake"))
    except ValueError as error:
        raise Refused(f"{value!r} is no value of SQL") from error


def check(query: Any) -> None:
    """Refuse all that is not known to mean the same there.

    Raises:
        Refused: There is such a thing.
    """
    for node in query.walk():
        kind = type(node).__name__
        if kind not in _KNOWN:
            raise Refused(f"{node.sql('snowflake')[:80]} is not among what is known here ({kind})")
        if problem := next(_problems(node, kind), None):
            raise Refused(f"in {node.sql('snowflake')[:80]}, {problem}")


def check_written(tree: Any) -> None:
    """Refuse a statement that writes a table otherwise than by the rows of a query.

    Raises:
        Refused: It does.
    """
    from sqlglot import exp

    properties = getattr(tree.args.get("properties"), "expressions", ())
    kinds = {type(each).__name__ for each in properties}
    is_plain = isinstance(tree.this, exp.Table) or isinstance(tree, exp.Insert)
    others = {"clone", "partition", "where", "conflict", "returning", "default", "ignore", "with_"}
    if (
        not isinstance(tree.expression, exp.Query)
        or tree.args.get("kind", "TABLE") != "TABLE"
        or kinds - {"TransientProperty", "TemporaryProperty"}
        or not is_plain
        or any(tree.args.get(each) for each in others)
    ):
        raise Refused(
            "a table is written by CREATE TABLE name AS SELECT, or INSERT INTO name, and a stage "
            "has no URL"
        )


def is_temporary(tree: Any) -> bool:
    """Return whether a table is made for one session there."""
    return any(each.key == "temporaryproperty" for each in tree.walk())


def _problems(node: Any, kind: str) -> Iterator[str]:
    """Say what a part of a query has that may mean something else."""
    given = {name for name, value in node.args.items() if value}
    of_table = {"this", "db", "catalog", "alias", "joins", "sample"}
    if kind == "Table" and (type(node.this).__name__ != "Identifier" or given - of_table):
        yield "tables of the session are read, as they are now, and no stages, files and functions"
    if kind == "Join" and given & {"method", "match_condition"}:
        yield "a join says ON or USING"
    if kind == "Cast":
        word = node.to.this.value.upper()
        if word not in _TYPES or (node.to.expressions and word != "DECIMAL"):
            yield f"the type {node.to.sql('snowflake')} is not among what is known here"
    if kind in _WITH_UNITS and node.text("unit").upper() not in _UNITS:
        yield f"a unit is one of {', '.join(_UNITS)}"
    if (kind == "Rand" and "this" in given) or (kind == "TableSample" and "seed" in given):
        yield "what a seed draws there nobody else draws"
    if kind == "Uniform" and type(node.args.get("gen")).__name__ != "Rand":
        yield "numbers are drawn by RANDOM() without a seed"
    if given & {"format", "on"} and kind in ("TsOrDsToDate", "ToChar", "ToNumber", "Distinct"):
        yield "only its first arguments are known"
    if given - _ONLY.get(kind, given):
        yield "only its first arguments are known"
    if kind == "Count" and type(node.this).__name__ == "Column" and node.this.is_star:
        yield "rows without a null are counted there: write COUNT(*)"


def named(query: Any) -> None:
    """Give computed columns the names that they have there, and all names in one case."""
    from sqlglot import exp
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

    for select in query.find_all(exp.Select):
        _name(select, lambda column: column.sql("snowflake").upper())
    for values in query.find_all(exp.Values):
        if not values.alias_column_names:
            width = len(values.expressions[0].expressions)
            columns = [exp.to_identifier(f"COLUMN{number + 1}") for number in range(width)]
            name = values.args.get("alias") or exp.TableAlias(this=exp.to_identifier("VALUES"))
            name.set("columns", columns)
            values.set("alias", name)
    for column in query.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)
    normalize_identifiers(query, dialect="snowflake")
    for name in query.find_all(exp.Identifier):
        name.replace(exp.to_identifier(coded(name.name), quoted=True))


def name_by_places(query: Any) -> None:
    """Give computed columns names that are not the same where they are."""
    places = itertools.count(1)
    _name(query, lambda _: f"VALUE {next(places)}")


def _name(select: Any, name: Callable[[Any], str]) -> None:
    from sqlglot import exp

    for column in select.expressions:
        if not isinstance(column, (exp.Alias, exp.Column)) and not column.is_star:
            column.replace(exp.alias_(column.copy(), name(column), quoted=True))


def table(name: str, read: Any) -> Any:
    """Return a table of another name, under the alias that it has where it is read."""
    from sqlglot import exp

    other = read.copy()
    for part in ("db", "catalog"):
        other.set(part, None)
    other.set("this", exp.to_identifier(name, quoted=True))
    if not read.alias:
        other.set("alias", exp.TableAlias(this=read.this.copy()))
    return other


def tables_of(query: Any) -> list[Any]:
    """Return the tables that a query reads, and not those that it makes itself."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    sources = [each for scope in traverse_scope(query) for each in scope.sources.values()]
    # Those of a query stand among those of the queries within it, too.
    return list({id(each): each for each in sources if isinstance(each, exp.Table)}.values())


def translated(query: Any, columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a query as DuckDB takes it.

    Args:
        query: With names as `named` makes them.
        columns: Of each table, with their types.

    Raises:
        Refused: It computes with times of which it is not known that they have no zone.
        sqlglot.errors.SqlglotError: It asks for columns that are not there, or sqlglot gives up.
    """
    from sqlglot import ErrorLevel, exp
    from sqlglot.optimizer.annotate_types import annotate_types
    from sqlglot.optimizer.qualify import qualify
    from sqlglot.schema import MappingSchema

    schema = MappingSchema(dict(columns), dialect="snowflake", normalize=False)
    drawn = len(list(query.find_all(exp.Rand)))
    query = qualify(query, schema=schema, dialect="snowflake")
    if len(list(query.find_all(exp.Rand))) > drawn:
        raise Refused(
            "the alias of a random number is used, which would be drawn again: name it "
            "in a subquery"
        )
    query = annotate_types(query, schema=schema, dialect="snowflake")
    for node in query.walk():
        _check_types(node, type(node).__name__)
    # The parts of each before itself, so that what is put in its place has them.
    for node in reversed(list(query.walk())):
        _put_right(node)
    return str(query.sql("duckdb", unsupported_level=ErrorLevel.RAISE))


def _put_right(node: Any) -> None:
    """Have a part of a query mean the same in DuckDB."""
    from sqlglot import exp

    match type(node).__name__:
        case "Div" | "Mod":
            node.expression.replace(exp.func("pw_divisor", node.expression.copy()))
        case "DPipe" | "Concat":
            for each in node.expressions or (node.this, node.expression):
                each.replace(exp.func("pw_text", each.copy()))
        case "Cast":
            node.replace(_cast(node.this, node.to.this.value.upper(), node.to))
        case "ToChar":
            node.replace(_cast(node.this, "TEXT", None))
        case "TsOrDsToDate":
            node.replace(_cast(node.this, "DATE", exp.DataType.build("DATE")))
        case "GroupConcat":
            value = node.this.this if isinstance(node.this, exp.Order) else node.this
            value = value.expressions[0] if isinstance(value, exp.Distinct) else value
            value.replace(exp.func("pw_text", value.copy()))
            # Of no texts there is an empty one.
            whole = node.parent if isinstance(node.parent, exp.Window) else node
            whole.replace(exp.Coalesce(this=whole.copy(), expressions=[exp.Literal.string("")]))
        case "DateAdd" if _type(node.this) == "DATE" and str(node.args["unit"]) in _OF_DATES:
            node.replace(exp.cast(node.copy(), "DATE"))


def _check_types(node: Any, kind: str) -> None:
    """Refuse times that may have a zone, and texts that would be numbers there.

    Raises:
        Refused: There are such.
    """
    if kind in _OF_TIMES:
        times = [node.this, *([node.expression] if kind == "DateDiff" else ())]
        if wrong := {*map(_type, times)} - {*_NO_ZONE}:
            raise Refused(
                f"{node.sql('snowflake')[:80]} takes dates and times without a zone, and one is of "
                f"type {wrong.pop()}: write ::DATE or ::TIMESTAMP behind it"
            )
    if kind in _OF_TEXTS.split() and _type(node.this) not in (*_TEXT, "NULL", "UNKNOWN"):
        raise Refused(f"{node.sql('snowflake')[:80]} takes texts: write ::VARCHAR behind others")
    for values in _together(node, kind):
        kinds = {_type(each) for each in values}
        if kinds & {*_TEXT} and kinds & {*_NUMBERS}:
            # DuckDB takes '5.4' for 5 beside whole numbers, or the numbers for texts.
            what = ", ".join(each.sql("snowflake") for each in values)
            raise Refused(f"{what[:80]} are texts and numbers: cast those that are not to stay so")


def _together(node: Any, kind: str) -> list[Sequence[Any]]:
    """Return what is compared or computed with each other, or comes in one column."""
    if kind in _ALIKE.split():
        return [list(node.iter_expressions())]
    if kind == "Case":
        results = [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
        return [[each for each in results if each]]
    if kind == "DecodeCase":
        value, *others = node.expressions
        last = [others.pop()] if len(others) % 2 else []
        return [[value, *others[::2]], [*others[1::2], *last]]
    if kind in ("If", "Nvl2"):
        return [[each for each in (node.args["true"], node.args.get("false")) if each]]
    if kind == "Values":
        return list(zip(*(each.expressions for each in node.expressions), strict=False))
    if kind in ("Union", "Intersect", "Except"):
        return list(zip(node.left.selects, node.right.selects, strict=False))
    return []


def _type(value: Any) -> str:
    return str(value.type.this.value.upper()) if value.type else "UNKNOWN"


def _cast(value: Any, word: str, kind: Any) -> Any:
    from sqlglot import exp

    if word in _TEXT:
        return exp.func("pw_text", value.copy())
    if word in _WHOLE:
        # Halves are rounded away from zero by decimals alone.
        return exp.cast(exp.cast(value.copy(), "DECIMAL(38, 0)"), "BIGINT")
    if word in _NO_ZONE:
        value = exp.func("pw_zoneless", value.copy())
    return exp.cast(value.copy(), kind)


def coded(name: str) -> str:
    """Return a name of upper case, another one for each, since DuckDB takes cases for one."""
    lower = [each != each.upper() and each == each.upper().lower() for each in name]
    if not any(lower) and "~" not in name:
        return name
    mask = sum(2**place for place, is_lower in enumerate(lower) if is_lower)
    letters = (each.upper() if low else each for each, low in zip(name, lower, strict=True))
    return f"{''.join(letters)}~{mask:X}"


def decoded(name: str) -> str:
    """Return the name that is coded so."""
    letters, tilde, mask = name.rpartition("~")
    if not tilde:
        return name
    places = enumerate(letters)
    return "".join(each.lower() if int(mask, 16) >> place & 1 else each for place, each in places)
