"""Pages that a command writes to a file, or opens in a browser."""

from pathlib import Path

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.runs.local_file import check_free, new_file


def check_page(to: Path | None, *, in_browser: bool, as_json: bool, force: bool) -> None:
    """Refuse a page that cannot be written to a file, before the work that makes it."""
    if as_json and (to is not None or in_browser):
        raise InputError("--json prints the numbers: give --to and --open without it.")
    if to is not None and to.suffix.lower() != ".html":
        raise InputError(f"--to {str(to)!r}: name a file that ends in .html.")
    if to is not None:
        check_free(to, overwrite=force)


def write_page(name: str, page: str, to: Path | None, *, force: bool, in_browser: bool) -> None:
    """Write a page to a file, if one is named, and open it in a browser if that is wanted."""
    if to is not None:
        with new_file(to, overwrite=force) as temporary:
            temporary.write_bytes(page.encode())
        output.print_line(f"page: {to}")
    if in_browser:
        from partwise.flows.cli.open import open_page

        open_page("page", name, page)
