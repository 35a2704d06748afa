"""How files are read that do not describe themselves: CSV files and Excel workbooks.

Plain values: parameters of a flow, options of the command line, and parts of a source's recipe.
"""

import codecs
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from partwise.form_schema import FormSettings

UTF_8 = "utf-8"
_TABS = ("\\t", "tab")
_BETWEEN_THOUSANDS = ("", ".", ",", " ", "'")
_FORMAT_CHECK = datetime(2026, 12, 31, 13, 5, 7)  # noqa: DTZ001 (only its digits count)


def codec_name(encoding: str) -> str:
    """Return the name that Python gives an encoding; empty: it has none of this name.

    Example:
        >>> [codec_name(name) for name in ("UTF8", "latin-1", "klingon")]
        ['utf-8', 'iso8859-1', '']
    """
    try:
        codec = codecs.lookup(encoding)
    except (LookupError, ValueError):
        return ""
    return codec.name if codec._is_text_encoding else ""


def _tab(text: object) -> object:
    return "\t" if text in _TABS else text


def _one_character(text: str) -> str:
    if len(text) > 1 or not text.isascii() or text in ("\r", "\n"):
        raise ValueError("it has to be one ASCII character, and not the end of a line")
    return text


def _between_thousands(text: str) -> str:
    if text not in _BETWEEN_THOUSANDS:
        raise ValueError("it has to be a dot, a comma, a space or an apostrophe")
    return text


def _encoding(text: str) -> str:
    if text and not codec_name(text):
        raise ValueError(
            "there is no encoding of this name: use one of Python's, such as latin-1, cp1252 or "
            "utf-16"
        )
    return text


def _date_format(text: str) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if "%" not in text:
            raise ValueError(text)
        pc.strptime(pa.array([_FORMAT_CHECK.strftime(text)]), format=text, unit="s")
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a format of dates that can be read: use those of strptime without "
            "fractions of a second, such as %d.%m.%Y or %m/%d/%Y %H:%M"
        ) from error
    return text


class CsvOptions(FormSettings):
    r"""How CSV files are read. What is empty is found out, where that is safe.

    Example:
        >>> options = CsvOptions(delimiter=";", decimal=",", encoding="cp1252")
        >>> CsvOptions(delimiter="tab").delimiter
        '\t'
    """

    model_config = ConfigDict(title="CSV options")

    delimiter: Annotated[str, BeforeValidator(_tab), AfterValidator(_one_character)] = Field(
        default="",
        description="What stands between values: one character, or tab. Empty: a comma, or else "
        "the one of ; | and tab that the header has.",
    )
    quote: Annotated[str, AfterValidator(_one_character)] = Field(
        default='"',
        description="What stands around values that have delimiters in them. Empty: nothing does.",
    )
    encoding: Annotated[str, AfterValidator(_encoding)] = Field(
        default="",
        description="Such as latin-1, cp1252 or utf-16. Empty: UTF-8, or what a byte order mark "
        "says.",
    )
    decimal: Literal[".", ","] = Field(
        default=".", description="What stands in front of the decimals of a number."
    )
    # No Literal: a list of such characters says little in help, and breaks the completion of fish.
    thousands: Annotated[str, AfterValidator(_between_thousands)] = Field(
        default="",
        description="What stands between the thousands of a number, as in 1.234,50: a dot, a "
        "comma, an apostrophe, or a space, also one that breaks no line. Empty: nothing does, "
        "and such numbers are text.",
        json_schema_extra={"enum": [*_BETWEEN_THOUSANDS]},
    )
    column_names: tuple[str, ...] = Field(
        default=(),
        description="The names of the columns, where the files have no header line.",
    )
    skip_rows: int = Field(
        default=0, ge=0, description="Lines in front of the header, which are passed over."
    )
    date_formats: tuple[Annotated[str, AfterValidator(_date_format)], ...] = Field(
        default=(),
        description="Formats of dates and times besides ISO's, such as %d.%m.%Y.",
    )
    null_words: tuple[str, ...] = Field(
        default=(),
        description="Words that stand for null, in text as well. In columns that are not text an "
        "empty value, NA, NaN, null and their like always do.",
    )

    @model_validator(mode="after")
    def _are_not_the_same(self) -> "CsvOptions":
        if self.delimiter and self.delimiter == self.quote:
            raise ValueError(f"delimiter and quote are both {self.quote!r}: choose two characters")
        if self.thousands == self.decimal:
            raise ValueError(
                f"decimal and thousands are both {self.decimal!r}: choose two characters"
            )
        return self


class ExcelOptions(FormSettings):
    """How Excel workbooks are read.

    Example:
        >>> options = ExcelOptions(sheet="2026", skip_rows=2)
    """

    model_config = ConfigDict(title="Excel options")

    sheet: str = Field(default="", description="The name of the sheet. Empty: the first one.")
    column_names: tuple[str, ...] = Field(
        default=(), description="The names of the columns, where the sheet has no header row."
    )
    skip_rows: int = Field(
        default=0, ge=0, description="Rows of the sheet above the header, which are passed over."
    )
    null_words: tuple[str, ...] = Field(
        default=(), description="Words that stand for null, as empty cells and errors always do."
    )


ReadingOptions = CsvOptions | ExcelOptions | None
"""How files of a format are read; None: the format says it."""

_DECIDE_VALUES = ("decimal", "thousands", "date_formats", "null_words")
"""With another one, the same file has other values of the same types."""
_PAIR = {"decimal", "thousands"}
"""Each makes sense with the other one only."""


def values_decided(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options with others of which the same file has other values."""
    return {name: options[name] for name in _DECIDE_VALUES if name in options}


def values_as(
    options: CsvOptions | ExcelOptions, earlier: Mapping[str, Any]
) -> tuple[CsvOptions | ExcelOptions, dict[str, Any], list[str]]:
    """Return options that read the same values as earlier ones did.

    What is as by default counts as not given: the command line, forms and recipes leave it out.

    Returned are they, what they took from the earlier ones, and which are given and other ones.

    Example:
        >>> values_as(CsvOptions(delimiter=";"), {"decimal": ",", "delimiter": "|"})[1:]
        ({'decimal': ','}, [])
        >>> values_as(CsvOptions(null_words=("-",)), {"decimal": ","})[1:]
        ({'decimal': ','}, ['null_words'])
    """
    own = options.model_dump(mode="json", exclude_defaults=True)
    given = own.keys() & set(_DECIDE_VALUES)
    others = [name for name in _DECIDE_VALUES if name in given and own[name] != earlier.get(name)]
    given |= _PAIR if given & _PAIR else set()
    taken = {k: v for k, v in earlier.items() if k in _DECIDE_VALUES and k not in given}
    return type(options).model_validate({**own, **taken}), taken, others
