"""Several sources, of any kinds, as one."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from partwise.sources.files.rows import FileRows
from partwise.sources.fragments import Fragment, Rows, is_known, unknown_identity
from partwise.tables.dictionaries import plain_storage
from partwise.tables.filters import Conditions, filter_columns
from partwise.tables.schemas import common_schema


class SeveralRows:
    """The rows of several sources, one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = list(parts)
        named = [(part.schema, f"item {index} of the list") for index, part in enumerate(parts)]
        self.schema = common_schema(named)

    def values_as(self, recipe: Mapping[str, Any]) -> "SeveralRows":
        """The rows as the options of an earlier call read them, where this one gives none."""
        is_as_long = len(recipe.get("sources", ())) == len(self._parts)
        return SeveralRows(
            [
                part.values_as(recipe, place if is_as_long else None)
                if isinstance(part, FileRows)
                else part
                for place, part in enumerate(self._parts)
            ]
        )

    def keyed_by(self, classes: Mapping[str, str]) -> "SeveralRows":
        """The rows with key columns as text whose numbers are written as codes, such as 01.

        Where those of one file are, they are text in all files.
        """
        first = [p.keyed_by(classes) if isinstance(p, FileRows) else p for p in self._parts]
        found = {n: p.schema.field(n).type for p in first for n in classes if n in p.schema.names}
        texts = {name: "string" for name, kind in found.items() if pa.types.is_string(kind)}
        classes = {**texts, **{name: known for name, known in classes.items() if known}}
        # Once more: a key that is text in one part has to be text in all.
        again = [p.keyed_by(classes) if isinstance(p, FileRows) else p for p in first]
        return SeveralRows(again)

    @property
    def rows(self) -> int | None:
        """Rows of all sources; None where one does not know."""
        counts = [part.rows for part in self._parts]
        return None if None in counts else sum(count or 0 for count in counts)

    def size_bytes(self, names: Sequence[str]) -> int:
        """The estimated size of some columns, of those sources that know it."""
        return sum(part.size_bytes(names) for part in self._parts)

    def identity(self) -> bytes:
        """Equal when those of all sources are."""
        identities = [part.identity() for part in self._parts]
        if not all(map(is_known, identities)):
            return unknown_identity()
        # All of one length, so that no two lists of identities join to the same bytes.
        return b"".join(hashlib.sha256(identity).digest() for identity in identities)

    def recipe(self) -> dict[str, Any] | None:
        """Those of all sources, if each has one."""
        recipes = [part.recipe() for part in self._parts]
        return None if None in recipes else {"sources": recipes}

    def buckets(self) -> frozenset[str]:
        """Those of all sources."""
        return frozenset().union(*(part.buckets() for part in self._parts))

    def fragments(
        self, names: Sequence[str], conditions: Conditions | None, keys: Sequence[str] = ()
    ) -> list[Fragment]:
        """The parts of all sources, in the order of these."""
        found: list[Fragment] = []
        for part in self._parts:
            looked_at = filter_columns(conditions)
            # Of other types a value might not compare.
            alike = all(part.schema.field(n).type == self.schema.field(n).type for n in looked_at)
            fragments = part.fragments(names, conditions if alike else None, keys)
            found += [self._of_common_types(fragment) for fragment in fragments]
        return found

    def _of_common_types(self, fragment: Fragment) -> Fragment:
        if not fragment.known:
            return fragment
        known = {
            key: value.cast(plain_storage(self.schema.field(key).type))
            for key, value in fragment.known.items()
        }
        whole: Any = fragment  # a dataclass, where anything is known of it
        return cast("Fragment", replace(whole, known=known))
