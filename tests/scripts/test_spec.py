"""What a shell makes of the paths and secrets that are filled into a command line."""

import subprocess

import pytest

from partwise.errors import InputError
from partwise.scripts.spec import ScriptSpec

PLACES = {"inputs.a": "/my rows/$HOME's.csv", "inputs.b": "/rows/b.csv"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{inputs.a}", [PLACES["inputs.a"]]),
        ('"{inputs.a}" {inputs.b}', [PLACES["inputs.a"], "/rows/b.csv"]),
        ("'{inputs.a}'", [PLACES["inputs.a"]]),
        (
            '"--from={inputs.a}/x" "$WORD \\" {inputs.b}"',
            [f"--from={PLACES['inputs.a']}/x", 'w " /rows/b.csv'],
        ),
        ('"a "{inputs.a}" b"', [f"a {PLACES['inputs.a']} b"]),
        ('"$(printf %s {inputs.a})"', [PLACES["inputs.a"]]),
        ('{env.KEY} "{env.KEY}"', ["k;$(exit)`", "k;$(exit)`"]),
        ("\\' \"{inputs.a}\" # don't\n", ["'", PLACES["inputs.a"]]),
    ],
)
def test_a_shell_has_what_is_filled_in_as_it_is_in_quotes_too(words, said) -> None:
    variables = {"WORD": "w", "KEY": "k;$(exit)`"}
    spec = ScriptSpec(shell=f"printf '%s\\n' {words}")
    ended = subprocess.run(
        spec.command("python", PLACES, variables),
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **variables},
        check=True,
    )
    assert ended.stdout.splitlines() == said


def test_a_plain_path_stands_in_a_text_for_the_shell_as_it_is() -> None:
    spec = ScriptSpec(shell='cat <<END\nopen("{inputs.b}")\nEND')
    assert spec.command("python", PLACES, {})[-1] == 'cat <<END\nopen("/rows/b.csv")\nEND'


def test_a_resume_argument_that_no_shell_could_read_is_refused_before_the_start():
    with pytest.raises(InputError, match=r"resume_argument='--from \"\{resume_from\}': No closing"):
        ScriptSpec(words=("train.py",), resume_argument='--from "{resume_from}')
