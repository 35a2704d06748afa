"""Tab in bash, zsh and fish: what `--install-completion` writes, in the shell that it is for."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from partwise.flows.cli.main import main

WORDS: tuple[tuple[str, set[str]], ...] = (
    ("tra", {"train", "train-distributed", "transformers"}),
    ("runs comp", {"compare"}),
    ("train --csv-th", {"--csv-thousands"}),
    ("train sales.csv --on-missing-", set()),
    ("infer sales.csv --on-missing-model s", {"skip"}),
)
"""What is typed, and what the last word may become."""

# Writes what zsh offers into a file, and ends zsh once it is all there.
CAPTURE = """
compadd() {
    if [[ "$*" == *-[OAD]\\ * ]]; then builtin compadd "$@"; return; fi
    local -a offered
    builtin compadd -O offered "$@"
    (( $#offered )) && print -rl -- $offered >> ~/offered
    builtin compadd "$@"
}
comppostfuncs=( exit )
PROMPT='what next? '
"""


def complete_in_bash(home: Path, typed: str) -> set[str]:
    words = ["partwise", *typed.split(" ")]
    script = (
        f". ~/.bashrc; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _partwise; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return _lines(_run(["bash", "--norc", "-c", script]))


def complete_in_fish(home: Path, typed: str) -> set[str]:
    lines = _lines(_run(["fish", "-c", f"complete -C 'partwise {typed}'"]))
    return {line.partition("\t")[0] for line in lines}


def complete_in_zsh(home: Path, typed: str) -> set[str]:
    (offered := home / "offered").write_text("")
    ours, theirs = pty.openpty()
    with subprocess.Popen(["zsh", "-i"], stdin=theirs, stdout=theirs, stderr=theirs) as shell:
        os.close(theirs)
        try:
            seen = b""
            while b"what next? " not in seen:
                seen += os.read(ours, 1 << 16)
            os.write(ours, f"partwise {typed}\t".encode())
            shell.wait(timeout=120)
        finally:
            shell.kill()
            os.close(ours)
    return _lines(offered.read_text())


pytestmark = pytest.mark.slow  # finds out about the options of every command

COMPLETE = {"bash": complete_in_bash, "zsh": complete_in_zsh, "fish": complete_in_fish}


@pytest.fixture
def complete_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """See what a shell offers."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR", "ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    # fish completes only what it finds.
    here = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(here), os.environ["PATH"]]))
    monkeypatch.chdir(tmp_path)
    # As nearly everyone's .zshrc has it; -u asks nothing, whoever owns zsh's own files.
    (tmp_path / ".zshrc").write_text(f"autoload -Uz compinit\ncompinit -u\n{CAPTURE}")

    def complete_in(shell: str) -> None:
        assert main(["--install-completion", "--shell", shell]) == 0
        offered = {typed: COMPLETE[shell](tmp_path, typed) for typed, _ in WORDS}
        assert offered == dict(WORDS)

    return complete_in


def test_bash_completes_commands_options_and_choices(complete_in) -> None:
    complete_in("bash")


def test_zsh_completes_commands_options_and_choices(zsh, complete_in) -> None:
    complete_in("zsh")


def test_fish_completes_commands_options_and_choices(fish, complete_in) -> None:
    complete_in("fish")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines()} - {""}
