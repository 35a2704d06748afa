"""What reaches the terminal of text that others wrote: keys, messages, logs, paths."""

import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from partwise.flows.cli import output
from partwise.flows.cli.main import main
from partwise.formatting import visible

OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What a terminal obeys, but for line breaks and tabs."""
HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x7f\u202egnp.exe\u2066"
texts = st.text(st.characters(), max_size=60) | st.text("\x1b[]0;m\x9b\u202ea\n\ud800")


@given(texts)
@example(HOSTILE)
def test_no_character_that_a_terminal_obeys_is_left_and_no_place_moves(text):
    seen = visible(text)
    assert len(seen) == len(text)
    assert OBEYED.search(seen) is None
    assert not {"\n", "\t"} & set(seen)
    assert [(a, b) for a, b in zip(text, seen, strict=True) if a != b and not _is_odd(a)] == []
    seen.encode()


def _is_odd(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


@pytest.mark.parametrize("how", ["line", "text", "styled", "fields", "table", "tell", "log"])
def test_each_way_to_print_shows_pictures(how, capsys):
    @given(texts)
    @example(HOSTILE)
    def check(text):
        match how:
            case "line":
                output.print_line(text)
            case "text":
                output.console().print(text)
            case "styled":
                output.console().print(Text(text, "red"))
            case "fields":
                output.print_fields({"name": text, "styled": Text(text)})
            case "table":
                output.print_table(("A", "B"), [(text, 1)])
            case "tell":
                output.tell(text)
            case "log":
                output.print_text(text)
        printed = "".join(capsys.readouterr())
        assert OBEYED.search(printed) is None
        if how == "table":
            assert printed.count("\n") == 2

    check()


def test_what_looks_like_a_sign_of_rich_is_printed_as_it_is(capsys):
    output.print_line("s3://b/:key:/[red]x[/red]")
    output.console().print(":star: [bold]", style="bold")
    assert capsys.readouterr().out == "s3://b/:key:/[red]x[/red]\n:star: [bold]\n"


def test_json_is_the_same_to_a_program_and_harmless_to_a_terminal(capsys):
    @given(st.dictionaries(texts, texts))
    def check(value):
        output.print_json(value)
        printed = capsys.readouterr().out
        assert OBEYED.search(printed) is None
        assert json.loads(printed) == value

    check()


def test_a_run_with_hostile_keys_and_messages_is_shown_harmlessly(make_run, capsys):
    make_run.begin()
    make_run.commit((HOSTILE, "DONE", 1.0), (f"{HOSTILE}2", "FAILED", 2.0))
    make_run.end(2)
    place = ["--store", make_run.store.url]
    for words in (
        ["runs", "list"],
        ["runs", "show", "run"],
        ["runs", "show", "run", "--failures"],
        ["runs", "show", "run", "--key", HOSTILE],
        ["runs", "show", "run", "--key", HOSTILE, "--json"],
        ["runs", "show", "run", "--key", f"{HOSTILE}x"],
        ["runs", "show", HOSTILE],
    ):
        main([*words, *place])
        said = "".join(capsys.readouterr())
        assert said
        assert OBEYED.search(said) is None, words
