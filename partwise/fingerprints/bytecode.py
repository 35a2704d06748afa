"""What compiled code names: globals, imports, and the ways to reach code that it does not name.

Code that looks at other code at run time, as `globals()[name]` does, defeats any walk over names.
Such code is recognized by the few words that it cannot do without.
"""

import dis
import types
from collections.abc import Iterator
from dataclasses import dataclass

_GLOBAL_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE_LOADS = {"LOAD_ATTR", "LOAD_METHOD"}
_CALLS = (["CALL"], ["PRECALL", "CALL"])
_HAS_ANNOTATIONS, _HAS_CLOSURE = 0x4, 0x8
_ANNOTATES = (_HAS_ANNOTATIONS, 0x10)  # since Python 3.14 by a function that makes them (PEP 649)
_FUNCTION_BODY = 0x1  # CO_OPTIMIZED, which the body of a class or module is not

_IMPORTERS = {"import_module", "__import__"}
_BUILTINS = {"eval", "exec", "globals"}
_REACHES = {".__globals__", ".__builtins__", "__builtins__", ".f_globals", ".f_builtins"}
_REACHES |= {".__subclasses__", ".get_objects", ".get_referrers", ".cell_contents"}
_READS = {"__annotations__", "__doc__", "__dict__", "__annotate__", "get_type_hints"}
_READS |= {"get_annotations", "signature", "getfullargspec", "getdoc", "getmembers", "vars"}
_OWN_NOTES = ("LOAD_NAME", "__annotations__")  # the body of a class loads them to write to them
_FROM_FILES = {"run_path", "run_module", "exec_module", "load_module", "load_source"}
_TEXTS = {"getsource", "getsourcelines", "findsource"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the words in code say that it may do at run time."""

    reaches: bool = False
    """It can reach any code of the modules that are loaded: `globals()`, `sys.modules`, `eval`."""
    reads: bool = False
    """It reads docstrings, annotations or the order of members."""
    obstacles: tuple[str, ...] = ()
    """Why nobody can tell what it runs, as "imports a module of a computed name"."""


def code_objects(code: types.CodeType, *, whole: bool = False) -> Iterator[types.CodeType]:
    """Yield code, and the code of all functions and classes that are written in it.

    `whole`: with that which makes annotations, since Python 3.14.
    """
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and (whole or constant.co_name != "__annotate__"):
            yield from code_objects(constant, whole=whole)


def instructions(code: types.CodeType, *, whole: bool = False) -> list[dis.Instruction]:
    """Return the instructions, without those that come and go with the size of a table.

    `whole`: with those that make the annotations of functions.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    place = 0 if whole else len(steps)
    while place > 0:
        place -= 1
        step = steps[place]
        flags = step.arg or 0
        if step.opname == "MAKE_FUNCTION" and flags & _HAS_ANNOTATIONS:
            left = flags & ~_HAS_ANNOTATIONS
            steps[place] = step._replace(arg=left, argval=left)
            closes = bool(flags & _HAS_CLOSURE)
        elif step.opname == "SET_FUNCTION_ATTRIBUTE" and flags in _ANNOTATES:
            # Since Python 3.13 each attribute has an instruction of its own, after MAKE_FUNCTION.
            # That of what it closes over comes first.
            del steps[place]
            place -= 1
            closes = steps[place].opname == "SET_FUNCTION_ATTRIBUTE"
            place -= closes
        else:
            continue
        # Above the annotations lie what it closes over, if anything, and its code.
        stop = place - 1
        if closes:
            stop = _start_of_value(steps, stop)
        # What follows has been looked at, and moves forward.
        place = _start_of_value(steps, stop)
        del steps[place:stop]
    return steps


def _start_of_value(steps: list[dis.Instruction], stop: int) -> int:
    """Return where the instructions begin that leave one value on the stack in front of `stop`."""
    left = 0
    while left != 1:
        stop -= 1
        left += dis.stack_effect(steps[stop].opcode, steps[stop].arg, jump=False)
    return stop


def exception_places(code: types.CodeType) -> list[int]:
    """Return the beginnings, ends and targets of exception handlers, as places in the code."""
    # The table is read as Python's own `dis` reads it: numbers of 6 bits, the most significant
    # first; bit 6 says that more follow. Objects/exception_handling_notes.txt of CPython.
    numbers: list[int] = []
    going_on = False
    for byte in code.co_exceptiontable:
        bits = byte & 63
        numbers = [*numbers[:-1], numbers[-1] << 6 | bits] if going_on else [*numbers, bits]
        going_on = bool(byte & 64)
    places = []
    for start, length, target, depth in zip(*[iter(numbers)] * 4, strict=True):
        places += [2 * start, 2 * (start + length), 2 * target, -depth]
    return places


def global_loads(code: types.CodeType, *, whole: bool = False) -> set[tuple[str, ...]]:
    """Return the globals that code reads, each with the attributes that it takes of them."""
    loads = set()
    for part in code_objects(code, whole=whole):
        load: list[str] = []
        for instruction in instructions(part, whole=whole):
            if load and instruction.opname in _ATTRIBUTE_LOADS:
                load.append(instruction.argval)
                continue
            if load:
                loads.add(tuple(load))
            load = [instruction.argval] if instruction.opname in _GLOBAL_LOADS else []
    return loads


def imported_names(code: types.CodeType, package: str, *, on_import: bool = False) -> set[str]:
    """Return the names of modules in import statements, and in calls that import one by its name.

    Each name that is imported from a module counts as a module too: it may be one. `package` is
    what names with leading dots are relative to; `on_import`: only what is imported while the
    module is, not in bodies of functions.
    """
    found = set()
    for part in code_objects(code):
        if on_import and part is not code and part.co_flags & _FUNCTION_BODY:
            continue
        steps = instructions(part)
        for place, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                # Both are loaded right before it.
                level, names = (earlier.argval for earlier in steps[place - 2 : place])
                name = absolute_name(step.argval, level, package)
                found |= {name, *(f"{name}.{item}" for item in names or ())}
            elif text := _imported_by_call(steps, place):
                level = len(text) - len(text.lstrip("."))
                found.add(absolute_name(text[level:], level, package))
    return found


def absolute_name(name: str, level: int, package: str) -> str:
    """Return the full name of a module that is imported with `level` leading dots."""
    if not level:
        return name
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - level + 1], *([name] if name else [])])


def words(code: types.CodeType) -> Words:
    """Look for the words of code that looks at other code at run time."""
    names: set[str] = set()
    imports: set[str] = set()
    computed = False
    for part in code_objects(code):
        steps = instructions(part)
        # A name that is put together from parts is out of reach; one that is written is not.
        texts = {text for text in part.co_consts if isinstance(text, str) and text.isidentifier()}
        names |= {f".{text}" for text in texts if text.startswith("__") or text == "modules"}
        for place, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                imports.add(step.argval)
            elif step.opname == "IMPORT_FROM":
                names |= {step.argval, f".{step.argval}"}
                # Under another name, its calls would not be seen.
                stored = steps[place + 1].argval
                computed |= step.argval in _IMPORTERS and stored != step.argval
            elif step.opname in _ATTRIBUTE_LOADS or step.opname == "LOAD_SUPER_ATTR":
                names.add(f".{step.argval}")
            elif _loads_name(step) and (step.opname, step.argval) != _OWN_NOTES:
                names.add(step.argval)
            if _loads_importer(step) and not _imported_by_call(steps, place):
                computed = True
        computed |= bool(texts & _IMPORTERS)
    plain = {name.removeprefix(".") for name in names}
    obstacles = set()
    if computed:
        obstacles |= set(words_for("import_module").obstacles)
    for name in plain & (_FROM_FILES | _TEXTS):
        obstacles |= set(words_for(name).obstacles)
    reaches = bool(names & (_BUILTINS | _REACHES))
    reaches |= ".modules" in names and ("sys" in names or "sys" in imports)
    reaches |= "builtins" in names | imports and bool(plain & _BUILTINS)
    return Words(reaches=reaches, reads=bool(plain & _READS), obstacles=tuple(sorted(obstacles)))


def words_for(function: str) -> Words:
    """Return what code may do with one of Python's own functions, under any name."""
    obstacles = ["imports a module of a computed name"] if function in _IMPORTERS else []
    obstacles += [f"runs code from a file ({function})"] if function in _FROM_FILES else []
    obstacles += [f"reads the text of code ({function})"] if function in _TEXTS else []
    return Words(
        reaches=function in _BUILTINS, reads=function in _READS, obstacles=tuple(obstacles)
    )


def _loads_name(step: dis.Instruction) -> bool:
    is_load = step.opname.startswith("LOAD_") and step.opname != "LOAD_CONST"
    return is_load and isinstance(step.argval, str)


def _loads_importer(step: dis.Instruction) -> bool:
    return step.opname.startswith("LOAD_") and step.argval in _IMPORTERS


def _imported_by_call(steps: list[dis.Instruction], place: int) -> str | None:
    """Return the name in `import_module("name")`, where it is written there and nothing else is."""
    if not _loads_importer(steps[place]) or steps[place].opname == "LOAD_CONST":
        return None
    rest = [step for step in steps[place + 1 : place + 6] if step.opname != "PUSH_NULL"]
    if not rest or rest[0].opname != "LOAD_CONST" or not isinstance(rest[0].argval, str):
        return None
    text: str = rest[0].argval
    if text.startswith(".") and rest[1].argval in ("__package__", "__name__"):
        del rest[1]
    after = [step.opname for step in rest[1:]]
    return text if any(after[: len(call)] == call for call in _CALLS) else None
