"""What was found out about how files are written, in lines of the log."""

import logging
from collections import defaultdict
from collections.abc import Sequence

from partwise.sources.files.discovery import FoundFile
from partwise.sources.files.file_head import FileHead
from partwise.sources.files.reading_options import UTF_8, CsvOptions, ExcelOptions, ReadingOptions

logger = logging.getLogger(__name__)


def tell_findings(
    files: Sequence[FoundFile], heads: Sequence[FileHead], requested: ReadingOptions
) -> None:
    """Log in one line for all alike what was found out about how files are written."""
    found: dict[str, list[str]] = defaultdict(list)
    for file, head in zip(files, heads, strict=True):
        found[_finding(requested, head.options)].append(file.path)
    for words, paths in found.items():
        if words:
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            logger.info("Reading %r%s %s.", paths[0], more, words)


def _finding(requested: ReadingOptions, settled: ReadingOptions) -> str:
    if isinstance(settled, ExcelOptions):
        return "" if requested == settled else f"from its first sheet, {settled.sheet!r}"
    if not isinstance(requested, CsvOptions) or not isinstance(settled, CsvOptions):
        return ""
    words = []
    if not requested.delimiter and settled.delimiter != ",":
        words.append(f"with the delimiter {settled.delimiter!r} of its header")
    if not requested.encoding and settled.encoding != UTF_8:
        words.append(f"as {settled.encoding}, by its byte order mark")
    return " and ".join(words)
