"""A row of a frame."""

from collections.abc import Sequence
from typing import Any

from partwise.compat.snowflake.snowpark.identifiers import stored


class Row(tuple[Any, ...]):
    """Values in the order of the columns, also by their names: `Row(A=1)`, or `Row(1)`.

    Args:
        values: Of a row without names.
        named: The values by their columns.
    """

    _names: Sequence[str]

    def __new__(cls, *values: Any, **named: Any) -> "Row":
        """Make a row."""
        row = super().__new__(cls, (*values, *named.values()))
        row._names = tuple(named)
        return row

    def __getitem__(self, item: Any) -> Any:
        if not isinstance(item, str):
            return super().__getitem__(item)
        for name in (item, stored(item)):
            if name in self._names:
                return self[self._names.index(name)]
        raise KeyError(f"The row has no column {item!r}: it has {list(self._names)}.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _row, (tuple(self), self._names)

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" for name, value in self.as_dict().items()]
        return f"Row({', '.join(named or map(repr, self))})"

    def as_dict(self) -> dict[str, Any]:
        """Return the values by the names of their columns."""
        return dict(zip(self._names, self, strict=bool(self._names)))


def _row(values: tuple[Any, ...], names: Sequence[str]) -> Row:
    row = Row(*values)
    row._names = names
    return row
