"""How settings show in the forms of Prefect's UI, which are made of their JSON schema."""

from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic.json_schema import SkipJsonSchema

from partwise.settings import Settings

Nothing = SkipJsonSchema[None]
"""Not given: from Python None, of which no form knows."""


def for_forms(schema: dict[str, Any]) -> None:
    """Change the schema of a model so that its form can be sent as it stands.

    The class's example is left out of the description, and so are defaults of null, which a form
    would send for a number that nobody entered.
    """
    schema["description"] = schema.get("description", "").partition("\n\nExample:")[0]
    for field in schema.get("properties", {}).values():
        if "default" in field and field["default"] is None:
            del field["default"]


class FormSettings(Settings):
    """Settings that a form shows and sends, and that are written down as they were given."""

    # JSON has no infinity, and a tolerance or limit of that size is none.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, json_schema_extra=for_forms
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield what differs from the defaults, as a caller would write it."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value

    @model_serializer(mode="wrap")
    def _without_nulls(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is not given: a form would send a null that it cannot have."""
        return {name: value for name, value in write(self).items() if value is not None}
