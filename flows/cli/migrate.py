"""`partwise migrate`: what becomes of programs that were written for another system."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import FAILURE, SUCCESS
from partwise.flows.cli.options import Json
from partwise.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from partwise.migration.following import Use
    from partwise.migration.programs import Cell


def migrate(path: Path, /, *, write: bool = False, as_json: Json = False) -> int:
    """Say of each name of Snowflake, AzureML, Databricks, Ray or Spark what to write here.

    Reads scripts and notebooks, and runs nothing of them. A name is known by its import, and a
    method by what its variable was made of. Ends with 1 where something has no counterpart.

    Args:
        path: A script (.py), a notebook (.ipynb), or a folder of both.
        write: Have the imports name partwise.compat where it has all that they import.
        as_json: Print a JSON object for each use, and one at the end.
    """
    from partwise.migration.following import uses_of
    from partwise.migration.names import VERDICTS, known_names
    from partwise.migration.programs import find_programs, read_program

    names, verdicts, passed_over = known_names(), Counter[str](), 0
    kept = lost = 0
    files = find_programs(path)
    for file in files:
        try:
            cells = read_program(file)
            uses = uses_of(cells, names)
        except InputError as error:
            if file == path:
                raise
            passed_over += 1
            output.tell(f"{file} is passed over. {error}")
            continue
        verdicts.update(use.row.verdict for use in uses)
        kept += sum(use.is_kept for use in uses)
        lost += sum(use.row.verdict == "none" and not use.is_kept for use in uses)
        others = [cell for cell in cells if cell.tree is None]
        passed_over += len(others)
        _print_uses(file, uses, as_json=as_json)
        for cell in others:
            _print_passed_over(file, cell, as_json=as_json)
        if write:
            _write(file, cells)
    if as_json:
        counts = {verdict: verdicts[verdict] for verdict in VERDICTS}
        output.print_json(
            {"programs": len(files), "passed_over": passed_over, "uses": counts, "kept": kept}
        )
    else:
        said = ", ".join(f"{verdicts[each]} {each}" for each in VERDICTS if verdicts[each])
        used = f"{counted(verdicts.total(), 'use')} of another system's names"
        told = f"{counted(len(files), 'program')}, {used}{said and ': '}{said}"
        output.print_line(f"{told}; {counted(passed_over, 'cell')} passed over")
        if kept:
            told = f"{kept} of them run as they are by partwise.compat"
            output.print_line(told if write else f"{told}: --write")
    return FAILURE if lost else SUCCESS


def _write(file: Path, cells: "Sequence[Cell]") -> None:
    from partwise.migration.imports import imports_that_stay, write_imports

    try:
        if changed := write_imports(file):
            output.tell(f"{file}: imports from partwise.compat now: {', '.join(changed)}")
    except InputError as error:
        output.tell(f"{file} stays as it is. {error}")
        return
    for cell in cells:
        for line, remedy in imports_that_stay(cell.tree):
            place = f"{_place(file, cell.number)}{line}"
            output.tell(f"{place}: this import stays: {remedy}, and run this again.")


def _print_uses(file: Path, uses: "Sequence[Use]", *, as_json: bool) -> None:
    said: set[str] = set()
    for use in uses:
        if as_json:
            told = {
                "name": use.name,
                "verdict": use.row.verdict,
                "here": use.row.here,
                "kept": use.is_kept,
            }
            place = {"file": str(file), "cell": use.cell, "line": use.line, "column": use.column}
            output.print_json({**place, **told, "text": use.row.text})
            continue
        # What there is to say stands at the first of many uses.
        text = "" if use.row.text in said else f": {use.row.text}"
        mark = " or as it is" if use.is_kept and use.row.verdict != "same" else ""
        said.add(use.row.text)
        output.print_line(
            f"{_place(file, use.cell)}{use.line}: {use.name}: {use.row.verdict}{mark}{text}"
        )


def _print_passed_over(file: Path, cell: "Cell", *, as_json: bool) -> None:
    if as_json:
        output.print_json({"file": str(file), "cell": cell.number, "passed_over": True})
    else:
        output.print_line(f"{_place(file, cell.number)} passed over, as it is no Python")


def _place(file: Path, cell: int | None) -> str:
    return f"{file}:" if cell is None else f"{file}: cell {cell}:"
