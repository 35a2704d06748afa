"""Values that are given by name, as a form shows them, and that Prefect saves as blocks.

They need no Prefect: a call with a cluster or a store of its own asks nobody for them. What Prefect
keeps are the classes of `partwise.blocks.saved`, which are these and blocks of Prefect's as well;
they are imported where something is saved, loaded or shown as a form.
"""

from typing import Any, ClassVar, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from partwise.mistakes import refused_settings

_SLUG = "block_type_slug"
"""Says in Prefect's JSON of a block which type it is of: a parameter may take several."""
_OF_PREFECT = (_SLUG, "_block_document_id", "_block_document_name", "_is_anonymous")
_LOGOS = (
    "https://raw.githubusercontent.com/PrefectHQ/prefect/420d0d6a78bb6df1fc18bcf188fdad43c1d22ea9"
    "/assets/block-logos/"
)


class BlockType(NamedTuple):
    """What Prefect shows of a kind of block."""

    name: str
    slug: str
    """Stands before the name of one that is saved: "store-block" of "store-block/prod"."""
    documentation_url: str
    logo: str
    """A picture of those that Prefect keeps of its own blocks."""

    @property
    def logo_url(self) -> str:
        """Where the picture is."""
        return f"{_LOGOS}{self.logo}.png"


class NamedFields(BaseModel):
    """The base of all values that Prefect saves as blocks.

    Raises:
        TypeError: A value is given without its name; it is not repeated, as it may be secret.
        InputError: A value cannot be used or is missing, or there is no field of its name.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    block_type: ClassVar[BlockType]

    _block_document_name: str | None = PrivateAttr(None)
    """Under which this was saved or loaded; Prefect's blocks have it by this name."""

    @property
    def saved_name(self) -> str:
        """As callers give it, such as "store-block/prod"; empty: it was not saved."""
        name = self._block_document_name
        return f"{self.block_type.slug}/{name}" if name else ""

    def __new__(cls, *values: Any, **_: Any) -> Self:
        """Refuse values without names, of which Python tells only how many there are."""
        refuse_unnamed(cls, values)
        return super().__new__(cls)

    def __init__(self, **named: Any) -> None:
        try:
            super().__init__(**named)
        except ValidationError as error:
            raise refused_settings(type(self), error) from None

    # So that pydantic validates parameters of flows as it does for classes without an `__init__`.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return repr(self)

    @model_validator(mode="before")
    @classmethod
    def _is_of_this_type(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        slug = values.get(_SLUG) or cls.block_type.slug
        if slug != cls.block_type.slug:
            raise ValueError(f"a block of the type {slug!r}, and not {cls.block_type.slug!r}")
        return {name: value for name, value in values.items() if name not in _OF_PREFECT}

    @model_serializer(mode="wrap")
    def _with_type(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**handler(self), _SLUG: self.block_type.slug}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return that of the block: a form offers the blocks that are saved."""
        from partwise.blocks.saved import block_of

        return handler(block_of(cls).__pydantic_core_schema__)

    @classmethod
    def load(cls, name: str) -> Any:
        """Return what is saved under a name, as a block of Prefect's.

        Raises:
            ValueError: Nothing is.
        """
        from partwise.blocks.saved import block_of

        return block_of(cls).load(name)

    def save(self, name: str, overwrite: bool = False) -> Any:
        """Save this as a block of Prefect's, and return the ID of its document.

        Raises:
            ValueError: The name is taken, and `overwrite` is false.
        """
        from partwise.blocks.saved import block_of

        given = {field: getattr(self, field) for field in self.model_fields_set}
        saved = block_of(type(self))(**given).save(name, overwrite=overwrite)
        self._block_document_name = name
        return saved


def refuse_unnamed(kind: type[BaseModel], values: tuple[Any, ...]) -> None:
    """Refuse values without names."""
    if values:
        first = next(iter(kind.model_fields))
        raise TypeError(
            f"{kind.__name__} takes its values by name, and was given {len(values)} without one: "
            f"write {kind.__name__}({first}=...)."
        )
