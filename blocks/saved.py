"""The values of this package as Prefect keeps them: the same classes, and blocks as well.

Prefect finds the class of a document by its block type as soon as this module is imported.
"""

from typing import Any, Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, GetJsonSchemaHandler, HttpUrl
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from partwise.blocks import clusters, custom_cluster, sources, store
from partwise.blocks.named_fields import NamedFields, refuse_unnamed


class SavedBlock(Block, NamedFields):
    """A value that is a block of Prefect's; the class of the value comes before this one."""

    # Prefect gives a block the fields of its document, and the type of the block among them.
    model_config = ConfigDict(extra="allow")

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """Refuse values without names, of which Prefect tells only how many its own code takes."""
        refuse_unnamed(cls, values)
        return super().__new__(cls, **named)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return its own."""
        return handler(schema)

    def __init_subclass__(cls, **named: Any) -> None:
        # The class is named and described as the value, since Prefect shows both.
        kind = cls.block_type
        cls.__doc__ = cls.__bases__[0].__doc__
        cls._block_type_name, cls._block_type_slug = kind.name, kind.slug
        cls._documentation_url = HttpUrl(kind.documentation_url)
        cls._logo_url = HttpUrl(kind.logo_url)
        super().__init_subclass__(**named)


class StoreBlock(store.StoreBlock, SavedBlock): ...


class FilesBlock(sources.FilesBlock, SavedBlock): ...


class LocalCluster(clusters.LocalCluster, SavedBlock): ...


class CudaCluster(clusters.CudaCluster, SavedBlock): ...


class RemoteCluster(clusters.RemoteCluster, SavedBlock): ...


class CustomCluster(custom_cluster.CustomCluster, SavedBlock): ...


class QueryBlock(sources.QueryBlock, SavedBlock): ...


class TableBlock(sources.TableBlock, SavedBlock): ...


BLOCKS: tuple[type[SavedBlock], ...] = (
    *(StoreBlock, FilesBlock, LocalCluster, CudaCluster, RemoteCluster, CustomCluster),
    *(QueryBlock, TableBlock),
)
"""All of them."""


def block_of(kind: type[NamedFields]) -> type[SavedBlock]:
    """Return the block of a kind of values.

    Raises:
        TypeError: The kind is a class of somebody's own, of which Prefect keeps nothing.

    Example:
        >>> block_of(store.StoreBlock) is StoreBlock
        True
    """
    for block in BLOCKS:
        if issubclass(block, kind):
            return block
    raise TypeError(
        f"Prefect keeps no {kind.__name__}, which is a class of your own: save one of "
        f"{', '.join(each.__name__ for each in BLOCKS)}."
    )
