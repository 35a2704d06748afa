"""docs/inputs.md names each input once, with an outcome, and with the sentence of a refusal."""

import re

import pytest

from tests.named_inputs import NAMED, OUTCOMES, PAGE, SENTENCE


def test_every_number_stands_on_the_page_once_and_in_order():
    assert [row.number for row in NAMED.values()] == list(range(1, 99))


def test_every_row_of_the_page_was_read():
    text = PAGE.read_text()
    assert len(re.findall(r"^\| *\d", text, re.MULTILINE)) == len(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_the_rule_is_complete(name):
    row = NAMED[name]
    assert row.outcome in OUTCOMES
    assert len(SENTENCE.findall(row.rule)) == (0 if row.outcome == "accepted" else 1)
    assert row.rule[0].islower() or not row.rule[0].isalpha()
    assert row.rule.endswith((".", "\u201d"))
