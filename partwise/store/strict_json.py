"""JSON of a store, read strictly: one meaning or an error.

Two readers of `{"a": 1, "a": 2}` may see two documents, and a file of any size may lie where a
document of kilobytes is expected. No pydantic here: ranks that start read documents too.
"""

import json
from collections import Counter
from typing import Any

from partwise.formatting import size

LARGEST_DOCUMENT_BYTES = 64 << 20
"""Far above the largest document that we write, which lists the files of a checkpoint."""


def parse_json(content: bytes | str) -> Any:
    """Return the value of a JSON document.

    Raises:
        ValueError: It is not JSON, too large or too deep, or an object of it has a name twice.
    """
    if len(content) > LARGEST_DOCUMENT_BYTES:
        raise ValueError(
            f"it has {size(len(content))}, and a document has at most "
            f"{size(LARGEST_DOCUMENT_BYTES)}"
        )
    try:
        return json.loads(content, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the name {twice[:80]!r} twice in one object")
    return values
