"""Names and values as lines of two columns."""

from collections.abc import Mapping

from rich.text import Text


def field_lines(fields: Mapping[str, Text | str]) -> list[Text]:
    """Return names and values in two columns; a value may have several lines."""
    width = max(map(len, fields))
    lines = []
    for name, value in fields.items():
        parts = (value if isinstance(value, Text) else Text(value)).split("\n", allow_blank=True)
        lines += [
            Text(f"  {'' if i else name:<{width}}  ").append_text(part)
            for i, part in enumerate(parts)
        ]
    return lines
