"""Lists of security.md and reliability.md, and the modules that they are held against."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("security", "reliability")]


def modules() -> Iterator[tuple[str, Path]]:
    """Yield each module, as the page names it, and its file."""
    for top in ("partwise", "flows", "tasks", "blocks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if top == "partwise":
                parts = parts[1:]
                # Links to the three above, and contracts that users' tests call.
                if parts[0] in ("flows", "tasks", "blocks", "testing"):
                    continue
            yield "/".join(parts), path


def tables(heading: str) -> list[list[list[str]]]:
    """Return the tables below a heading of these pages: the cells of each row, without its head."""
    text = "\n".join(page.read_text() for page in PAGES)
    section = text.partition(f"{heading}\n")[2].partition("\n#")[0]
    found = [each.strip().splitlines() for each in section.split("\n\n")]
    return [
        [row.strip("| ").split(" | ") for row in rows[2:]]
        for rows in found
        if rows[0].startswith("|")
    ]
