"""Columns that are guessed to be of numbers, though they may be codes: in all files of a set.

A key column of them is text; elsewhere the log says it.
"""

import logging
from collections.abc import Sequence

import pyarrow as pa

from partwise.sources.files.csv_files import ways_in
from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.file_head import FileHead
from partwise.sources.files.formats import head_codes, naming
from partwise.sources.files.path_columns import hive_codes
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.files.remote_files import at_once
from partwise.sources.files.written_numbers import has_several_ways
from partwise.sources.files.written_thousands import two_spellings
from partwise.sources.files.written_ways import TwoSpellings, Way, Ways, common_way, two_ways
from partwise.tables.column_types import is_ordered_number

logger = logging.getLogger(__name__)


class GuessedNumbers:
    """What files and their paths say of how their numbers are written."""

    def __init__(self, files: Sequence[FoundFile], heads: Sequence[FileHead]) -> None:
        self._files = files
        self._heads = heads
        self._codes = hive_codes(files)
        for head in heads:
            self._codes |= head.codes
        self._looked_at: set[str] = set()
        self._differing: set[str] = set()
        self.ways: dict[str, Way] = {}
        """How all files write the numbers of a key column, where there are several."""

    def are_codes(self, name: str) -> bool:
        """Whether a key column is to be text, as far as was looked."""
        return name in self._codes or name in self._differing

    def look_for_codes(self, names: Sequence[str], schema: pa.Schema) -> None:
        """Look for codes in all of the first rows of key columns, and say why they are text.

        Columns that the schema of all files lacks are not looked at.
        """
        new = [name for name in names if name in schema.names]
        new = [name for name in new if name not in self._codes and name not in self._looked_at]
        self._looked_at |= set(new)

        def look(file: FoundFile, head: FileHead) -> dict[str, str]:
            there = [name for name in new if name in head.schema.names]
            with naming(file):
                return (
                    head_codes(file.with_start(), head.options, head.schema, there)[0]
                    if there
                    else {}
                )

        if new:
            for codes in at_once(look, self._files, self._heads):
                self._codes |= codes
        if self._files[0].format == "csv" and len(self._files) > 1:
            for name in new:
                if name not in self._codes:
                    self._look_for_ways(name, schema.field(name).type)

    def _look_for_ways(self, name: str, kind: pa.DataType) -> None:
        """See that several files write their numbers in one way; those that do not are codes."""
        options = self._heads[0].options
        if not isinstance(options, CsvOptions) or not is_ordered_number(kind):
            return
        if not has_several_ways(kind, options):
            return

        def look(file: FoundFile, head: FileHead) -> dict[Ways, str]:
            if name not in head.schema.names or not isinstance(head.options, CsvOptions):
                return {}
            with naming(file):
                return ways_in(file.with_start(), head.options, name)

        # First what the heads say, for which no file is read again.
        different = self._two_spellings(name)
        if different is None:
            found = at_once(look, self._files, self._heads)
            way = common_way([ways for of_file in found for ways in of_file])
            if way is not None:
                self.ways[name] = way
                return
            paths = [file.path for file in self._files]
            different = two_ways(dict(zip(paths, found, strict=True)))
        self._differing.add(name)
        logger.warning(
            "Key column %r is read as text, since the files write its numbers in different ways, "
            "such as %s, and each that is written is a key; declare it with --types %s=%s, or in "
            "Python Files(..., types={%r: %r}), where equal numbers are one.",
            *(name, different, name, kind, name, str(kind)),
        )

    def _two_spellings(self, name: str) -> TwoSpellings | None:
        """Return two numbers of a column that may be one, by what the heads of files say."""
        heads = zip(self._files, self._heads, strict=True)
        of_files = [(file.path, head.thousands.get(name)) for file, head in heads]
        return two_spellings({path: found for path, found in of_files if found is not None})

    def warn(self, name: str, kind: pa.DataType) -> None:
        """Say that a column of another type than text, which is not a key, may be of codes."""
        as_text = (
            f"keep them as they are with --types {name}=string, or in Python Files(..., "
            f"types={{{name!r}: 'string'}}); declare it as {kind} to hide this"
        )
        if name in self._codes:
            logger.warning(
                "Column %r is read as %s, but values such as %s are written as codes: %s.",
                *(name, kind, self._codes[name], as_text),
            )
            return
        found = self._two_spellings(name)
        options = self._heads[0].options
        if found is None or not isinstance(options, CsvOptions):
            return
        if found.are_decimals:
            sign, other = options.decimal, "," if options.decimal == "." else "."
            logger.warning(
                "Column %r is read as %s, and the files write its numbers in different ways, such "
                "as %s: %r is read as the decimal point. If it stands between thousands, say "
                "--csv-thousands %s --csv-decimal %s, in Python CsvOptions(thousands=%r, "
                "decimal=%r); declare the column as %s to hide this.",
                *(name, kind, found, sign, sign, other, sign, other, kind),
            )
        else:
            logger.warning(
                "Column %r is read as %s, and the files write equal numbers of it in different "
                "ways, such as %s: %s.",
                *(name, kind, found, as_text),
            )
