"""Names that stand in tables of a store: whoever may write to it may write any there."""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import RunFormatError
from partwise.runs.bundle import is_bundle, is_name_below

_PARTITION_ID = r"\A[a-z0-9_-][a-z0-9._-]{0,79}\z"
"""As RE2 has it, by which Arrow looks at a million of them in a tenth of a second."""
_ROWS = re.compile(r"(?:predictions|outputs)/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def check_names(
    where: str,
    partition_ids: pa.ChunkedArray,
    artifacts: Sequence[pa.ChunkedArray],
    rows_files: Sequence[str] = (),
) -> None:
    """Refuse names that partwise never writes: one that leads elsewhere would be followed.

    `where` is the file in which they stand; `artifacts` are of the type `ARTIFACT`.

    Raises:
        RunFormatError: There are such names.
    """
    bundles, files = (
        [name for each in artifacts for name in pc.struct_field(each, field).unique().to_pylist()]
        for field in ("bundle", "filename")
    )
    for name, strange in (
        ("partition_id", strange_ids(partition_ids)),
        ("rows_file", [text for text in rows_files if not _is_rows_file(text)]),
        ("bundle", [text for text in bundles if not is_bundle(text)]),
        ("filename", [text for text in files if not is_name_below(text)]),
    ):
        if strange:
            raise RunFormatError(
                f"{where} names {str(strange[0])[:80]!r} as {name}, which partwise never writes; "
                "it was damaged, or made by somebody else."
            )


def strange_ids(names: pa.ChunkedArray) -> list[str | None]:
    """Return the names that cannot be those of partitions."""
    fits = pc.fill_null(pc.match_substring_regex(names, _PARTITION_ID), fill_value=False)
    strange: list[str | None] = names.filter(pc.invert(fits)).to_pylist()
    return strange


def _is_rows_file(text: object) -> bool:
    return isinstance(text, str) and _ROWS.fullmatch(text) is not None
