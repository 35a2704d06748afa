"""Blocks whose values are given by name, as a form shows them."""

from typing import Any, Self

from prefect.blocks.core import Block


class NamedFields(Block):
    """The base of all blocks of ours.

    Raises:
        TypeError: A value is given without its name; it is not repeated, as it may be secret.
    """

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """Refuse values without names, of which Prefect tells only how many its own code takes."""
        if values:
            first = next(iter(cls.model_fields))
            raise TypeError(
                f"{cls.__name__} takes its values by name, and was given {len(values)} without "
                f"one: write {cls.__name__}({first}=...)."
            )
        return super().__new__(cls, **named)
