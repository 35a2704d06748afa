"""What a server is given to register."""

import importlib
import pkgutil

from prefect.blocks.core import Block

from partwise import blocks
from partwise.blocks.saved import SavedBlock, block_of
from partwise.flows.operations.deploy import REGISTERED


def test_every_block_of_partwise_is_registered() -> None:
    modules = [
        importlib.import_module(f"partwise.blocks.{module.name}")
        for module in pkgutil.iter_modules(blocks.__path__)
    ]
    defined = {
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Block)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert set(REGISTERED) == defined - {SavedBlock}
    assert [block_of(getattr(blocks, name)).__name__ for name in blocks.__all__] == blocks.__all__
    assert "files-block" in {block.get_block_type_slug() for block in REGISTERED}
