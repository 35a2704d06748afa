"""What a run of a script is asked to do, as it travels to the ranks."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partwise.choices import ScriptBackend
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import InputError
from partwise.scripts.inputs import ScriptInput

VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of a rank that stand for their values in arguments, as `$LOCAL_RANK`."""

ENV = "env."
"""Begins placeholders that stand for variables which a worker has, such as {env.API_KEY}."""
_PLACEHOLDER = re.compile(r"\{(inputs\.[^{}]+|env\.[A-Za-z_]\w*|outputs|checkpoints|resume_from)\}")
_SHELL_PART = re.compile(
    # In a comment a quote is none.
    rf"{_PLACEHOLDER.pattern}|'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|(?<!\S)#[^\n]*",
    re.DOTALL,
)
"""What a shell takes as one, as far as placeholders go."""
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def argument_words(arguments: Mapping[str, Any] | Sequence[object]) -> tuple[str, ...]:
    """Return the arguments of a script as words: those by name as options.

    An empty text is an option without a value, as AzureML has it; a list with one is that word.

    Example:
        >>> argument_words({"epochs": 3, "sizes": [8, 4], "quick": True, "seed": None, "dry": ""})
        ('--epochs', '3', '--sizes', '8', '4', '--quick', '--dry')
    """
    if not isinstance(arguments, Mapping):
        return tuple(map(str, arguments))
    words: list[str] = []
    for name, value in arguments.items():
        if value is None or value is False:
            continue
        values = value if isinstance(value, list | tuple) else [value]
        values = () if value is True or value == "" else values
        words += [name if name.startswith("-") else f"--{name}", *map(str, values)]
    return tuple(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSpec:
    """A program, and what it is given; the same for all ranks."""

    words: tuple[str, ...] = ()
    """A script and its arguments, or the words of a command; empty: `shell` is run."""
    is_script: bool = True
    """Whether the first word is a Python script, to be run by the environment's Python."""
    shell: str = ""
    """A command line for /bin/sh."""
    backend: ScriptBackend = "none"
    snapshot: str = ""
    """The packed source directory, relative to the folder of the run; empty: there is none."""
    environment: ResolvedEnvironment | None = None
    """None: the worker's own Python."""
    grace_s: float = 30.0
    """Between SIGTERM and SIGKILL, for a program whose MPI job has broken off."""
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, ScriptInput] = field(default_factory=dict)
    row_inputs: tuple[str, ...] = ()
    """Inputs that are rows, which the gang has as sources of these names."""
    outputs: tuple[str, ...] = ()
    """Globs, relative to the working folder."""
    resume_argument: str = "--resume-from"
    """The argument that says what the script resumes from, or words with the placeholder
    {resume_from}; empty: none."""

    def __post_init__(self) -> None:
        """See that the words of `resume_argument` can be told apart, before one is resumed.

        Raises:
            InputError: A quotation in it has no end.
        """
        try:
            shlex.split(self.resume_argument)
        except ValueError as error:
            raise InputError(
                f"resume_argument={self.resume_argument!r}: {error}; quote its words as a shell "
                "takes them."
            ) from error

    def command(
        self, python: str, places: Mapping[str, str], variables: Mapping[str, str]
    ) -> list[str]:
        """Return the words of the program as a rank starts it.

        `places` are what the placeholders stand for; without "resume_from" where there is nothing
        to resume from. A placeholder of a variable that the rank lacks is refused.
        """
        places = {**places, **self._secrets(variables)}
        resume = self._resume_words(places)
        if self.shell:
            line = " ".join([_filled_in_shell(self.shell, places), *map(shlex.quote, resume)])
            return ["/bin/sh", "-c", line]
        # Variables first: a path or a secret that is filled in may have a "$" of its own.
        words = [_filled(_with_variables(word, variables), places) for word in self.words]
        return [*([python] if self.is_script else []), *words, *resume]

    def _secrets(self, variables: Mapping[str, str]) -> dict[str, str]:
        texts = (self.shell, *self.words, self.resume_argument)
        wanted = {found for text in texts for found in _PLACEHOLDER.findall(text)}
        names = sorted(each.removeprefix(ENV) for each in wanted if each.startswith(ENV))
        if missing := [name for name in names if name not in variables]:
            raise InputError(
                f"An argument has {{{ENV}{missing[0]}}}, and the worker has no such variable: set "
                f"{missing[0]} where the worker is started."
            )
        return {f"{ENV}{name}": variables[name] for name in names}

    def _resume_words(self, places: Mapping[str, str]) -> list[str]:
        # A caller who uses the placeholder in arguments has said where it is to stand.
        is_placed = any("{resume_from}" in word for word in (self.shell, *self.words))
        if "resume_from" not in places or not self.resume_argument or is_placed:
            return []
        words = shlex.split(self.resume_argument)
        if "{resume_from}" not in self.resume_argument:
            words.append("{resume_from}")
        return [_filled(word, places) for word in words]


def input_variable(name: str) -> str:
    """Return the environment variable that says where an input lies.

    Example:
        >>> input_variable("train-rows")
        'PARTWISE_INPUT_TRAIN_ROWS'
    """
    return "PARTWISE_INPUT_" + re.sub(r"\W", "_", name, flags=re.ASCII).upper()


def check_placeholders(texts: Mapping[str, str], inputs: Mapping[str, Any]) -> None:
    """See that placeholders name inputs that there are.

    `texts` stand by the words that messages name them with.
    """
    for what, text in texts.items():
        for found in _PLACEHOLDER.findall(text):
            name = found.removeprefix("inputs.")
            if found.startswith("inputs.") and name not in inputs:
                known = ", ".join(sorted(inputs)) or "none"
                raise InputError(
                    f"{what} has {{{found}}}, and there is no input {name!r}; there are: {known}."
                )


def _filled(text: str, places: Mapping[str, str]) -> str:
    """Return a text with paths in place of the placeholders; an empty one where there is none."""
    return _PLACEHOLDER.sub(lambda match: places.get(match[1], ""), text)


def _filled_in_shell(line: str, places: Mapping[str, str]) -> str:
    """Return a command line with paths in place of the placeholders, quoted where they need it."""

    def fill(match: re.Match[str]) -> str:
        part = match[0]
        # Inside of "$(...)" the shell quotes anew; else quotes around a path end, and go on.
        is_anew = part[0] == '"' and ("$(" in part or "`" in part)
        mark = part[0] if part[0] in "'\"" and not is_anew else ""
        quoted = {
            name: place if shlex.quote(place) == place else f"{mark}{shlex.quote(place)}{mark}"
            for name, place in places.items()
        }
        return _filled(part, quoted)

    return _SHELL_PART.sub(fill, line)


def _with_variables(text: str, variables: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return variables.get(name, "") if name in VARIABLES else match[0]

    return _VARIABLE.sub(replace, text)
