"""A source that is opened again from what a document says of it."""

import json
from typing import Any

from partwise.sources.descriptions import Source
from partwise.sources.opening import data_of_recipe, open_source


def reopened(recipe: dict[str, Any] | None) -> Source:
    """Open a source again as flows do, from its recipe in a document."""
    said = json.loads(json.dumps(recipe))
    return open_source(data_of_recipe(said), columns=said["columns"], filter=said["filter"])
