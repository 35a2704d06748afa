"""How settings show in the forms of Prefect's UI, which are made of their JSON schema."""

from typing import Any


def for_forms(schema: dict[str, Any]) -> None:
    """Change the schema of a model so that its form can be sent as it stands.

    The class's example is left out of the description, and so are defaults of null, which a form
    would send for a number that nobody entered.
    """
    schema["description"] = schema.get("description", "").partition("\n\nExample:")[0]
    for field in schema.get("properties", {}).values():
        if "default" in field and field["default"] is None:
            del field["default"]
