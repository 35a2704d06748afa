"""Settings: values that are given by name; the one whose meaning is obvious needs none."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import ComputedFieldInfo, FieldInfo

from partwise.errors import InputError
from partwise.formatting import lone_surrogate
from partwise.mistakes import refused_settings
from partwise.renamed import is_called_now


def field_title(name: str, _: FieldInfo | ComputedFieldInfo) -> str:
    """Return what a form calls a field that says no title: its name as words."""
    return name.replace("_", " ").strip().capitalize()


class Settings(BaseModel):
    """The base of all settings that a user writes down.

    A field with `kw_only=False` may be given by its place.

    Raises:
        InputError: A value cannot be used or is missing, there is no setting of its name, it needs
            its name and has none, or it is given twice.
    """

    model_config = ConfigDict(field_title_generator=field_title)

    def __init__(self, *values: Any, **named: Any) -> None:
        if values:
            named = _by_name(type(self), values, named)
        try:
            super().__init__(**named)
        except ValidationError as error:
            raise refused_settings(type(self), error) from None

    @model_validator(mode="before")
    @classmethod
    def _has_names_of_today(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name, value in values.items():
                if sentence := is_called_now(cls.__name__, name):
                    raise ValueError(sentence)
                if found := lone_surrogate(value):
                    raise ValueError(f"{name} holds {found}: correct it, or rename the file")
        return values

    # So that pydantic validates documents and forms as it does for classes without an `__init__`:
    # there all values have names.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def kind_field(kind: str) -> Any:
    """Return the field by which settings of one kind are known from those of others."""
    return Field(default=kind, title="Kind", description="Tells kinds apart in a document.")


def _by_name(
    kind: type[Settings], values: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    fields = kind.model_fields
    places = [name for name, field in fields.items() if field.kw_only is False]
    if len(values) > len(places):
        all_names = [*places, *(name for name in fields if name != "kind")]
        if not all_names:
            raise InputError(f"{kind.__name__} takes no values: write {kind.__name__}().")
        but = f" but {places[0]}" if places else ""
        raise InputError(
            f"{kind.__name__} takes its values by name{but}, and was given {len(values)} without "
            f"one: write {kind.__name__}({all_names[0]}=...)."
        )
    given = dict(zip(places, values, strict=False))
    if twice := given.keys() & named.keys():
        raise InputError(f"{kind.__name__} was given {min(twice)} twice: by its place and by name.")
    return given | named
