"""How settings show in a form, which is made of their JSON schema."""

from typing import Any


def drop_example(schema: dict[str, Any]) -> None:
    """Keep a class's example out of the description that a form shows for it."""
    schema["description"] = schema["description"].partition("\n\nExample:")[0]
