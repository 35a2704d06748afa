"""What the tests of the command line share."""

import functools
from collections.abc import Iterator

import docstring_parser
import pytest


@pytest.fixture(scope="session", autouse=True)
def docstrings_are_parsed_once() -> Iterator[None]:
    """Remember what docstrings say, which cyclopts asks of all classes above one for each option.

    Help of all commands and completion are six times as quick; nobody changes what is remembered.
    """
    with pytest.MonkeyPatch.context() as patch:
        known = functools.cache(docstring_parser.parse_from_object)
        patch.setattr(docstring_parser, "parse_from_object", known)
        yield
