"""Reading what was typed: option names, text that stands for values, and what is wrong with it."""

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cyclopts import (
    CycloptsError,
    MissingArgumentError,
    Parameter,
    Token,
    UnknownOptionError,
    default_name_transform,
)

from partwise.errors import InputError
from partwise.formatting import nearest
from partwise.renamed import RENAMED
from partwise.runs.kinds import KINDS

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")
V = TypeVar("V")

_FLAGS = {
    "fraction": "--holdout-fraction",
    "column": "--holdout-by-time",
    "start": "--holdout-start",
    "params": "--param",
    "space": "--tune",
    "time": "--backtest-time",
    "horizon": "--backtest-horizon",
    "windows": "--backtest-windows",
    "step": "--backtest-step",
    "group": "--fold-group",
    "candidates": "--candidate",
    "unseen_for_versions": "--retire-unseen",
}
"""Options that have another name than the field that they fill."""

_OF_THE_SHELL = {
    "where": "filter",
    "infer_on": "inference_data",
    "model_inputs": "input_layout",
    "tune": "space",
    "tune_timeout_s": "tune_max_duration_s",
    "input": "inputs",
    "output": "outputs",
    "env": "environment_variables",
    # Of a command that has both, the GPUs of each partition or rank.
    "gpus": "devices",
}
"""Options that were called otherwise once, besides those of `partwise.renamed`."""

_OF_GUIDES = {
    "framework": "transformers 5 has torch only",
    "cache_dir": "set the environment variable HF_HUB_CACHE to that folder",
    "export_with_transformers": "partwise is what exports",
}
"""Options of `python -m transformers.onnx` that have none here, and why or what does it."""

_CONDITION = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]+)"|(?P<column>[^\s"=!<>]+))\s*"""
    r"""(?P<operator>==|!=|<=|>=|=|<|>|\bnot\s+in\b|\bin\b)\s*(?P<value>.*?)\s*""",
    re.DOTALL,
)

_OPTIONS = (
    *(r"(?<=another )run_id|run_id(?==)", "on_existing_artifacts", "training_run_id"),
    *("partition_by", "keep_columns", "null_keys", "on_missing_model", "max_retries"),
    *("timeout_s", "memory_bytes", "n_shards", r"format(?==)"),
    *(r"comparison(?==)", r"models(?==)", r"min_rows(?==)"),
)
"""Arguments of flows that are options of commands by the same name; a run_id that is talked about
may be an argument of the command."""
_ARGUMENT = re.compile(
    rf"""(?<![\w'"./-])(?P<name>{"|".join(_OPTIONS)})(?![\w'"/-])"""
    r"""(?:=(?:'(?P<text>[^']*)'|(?P<plain>[\w.]*\w)))?(?![^()]*\))"""
)
"""One of them, with its value or without; in parentheses they are those of a call in Python."""
_RESUMES = re.compile(r"(--on-existing-artifacts \w+) or '(\w+)'")


def _shown_default(value: Any) -> Any:
    """Return a default as help shows it; None: the help text itself says what happens."""
    return None if value is None or value is False or value in ((), "") else value


COMMON = Parameter(negative=(), show_default=_shown_default)
"""What holds for the options of all commands."""


def flag(name: str) -> str:
    """Return how an option is written: max_retries becomes --max-retries."""
    return f"--{default_name_transform(name)}"


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were typed: not None, not empty, no flag that is off; 0 counts."""
    return {
        name: value
        for name, value in options.items()
        if value is not None and value is not False and value not in ((), "")
    }


def build_settings(kind: Callable[..., T], **settings: Any) -> T:
    """Return settings of a kind, or a value that Prefect saves as a block.

    Raises:
        InputError: A setting is refused; says in one line which option, and why.
    """
    from pydantic import ValidationError

    try:
        return kind(**settings)
    except InputError as error:
        # Settings say it in words of Python.
        cause = error.__context__
        if not isinstance(cause, ValidationError):
            raise
        raise InputError(_describe_first(cause, _FLAGS)) from cause


def describe_wrong_option(error: CycloptsError) -> str | None:
    """Return in one line what is missing, or what a model refused; None: it is neither."""
    if isinstance(error, MissingArgumentError):
        return _describe_missing(error)
    if isinstance(error, UnknownOptionError):
        old = (error.token.keyword or error.token.value).partition("=")[0]
        known = {name for each in error.argument_collection for name in each.names}
        if "--feature" in known and (instead := _OF_GUIDES.get(old.strip("-").replace("-", "_"))):
            return f"There is no {old} here: {instead}."
        return _is_called_now(old, known, (error.command_chain or ("",))[0])
    from pydantic import ValidationError

    cause, argument = error.__cause__, error.argument
    if not isinstance(cause, ValidationError) or argument is None:
        return None
    strangers = [word for word in error.unused_tokens or () if word.startswith("--")]
    if strangers and error.app is not None:
        # What is wrong with the others may be that this one is not among them.
        unknown = UnknownOptionError(
            token=Token(keyword=strangers[0].partition("=")[0], source="cli"),
            argument_collection=error.app.assemble_argument_collection(),
            command_chain=error.command_chain,
            verbose=False,
        )
        return describe_wrong_option(unknown) or str(unknown)
    told = _describe_first(cause, {child.keys[-1]: child.name for child in argument.children})
    if told.startswith("--gpus: Input should be a valid integer"):
        told += " It says how many; which GPUs of this machine there are workers for, --devices."
    return told


def in_words_of_the_shell(message: str) -> str:
    """Return a message with options in place of Python's arguments.

    Example:
        >>> in_words_of_the_shell("pass another run_id, or on_existing_artifacts='resume'.")
        'pass another --run-id, or --on-existing-artifacts resume.'
    """

    def option(found: re.Match[str]) -> str:
        value = found["text"] or found["plain"]
        # Of several values, those that follow are quoted as well: x='a' or 'b'.
        return flag(found["name"]) + (f" {value}" if value else "")

    return re.sub(_RESUMES, r"\1 or \2", _ARGUMENT.sub(option, message))


def _describe_missing(error: MissingArgumentError) -> str | None:
    """Tell an option that was not given from one that was given without its value."""
    argument = error.argument
    while argument is not None and argument.name == "*":
        # Options that a class of options has are missing, not the class.
        argument = next((each for each in argument.children if each.required), None)
    if argument is None:
        return None
    if typed := error.keyword or next((t.keyword for t in argument.tokens if t.keyword), None):
        return f"{typed} needs a value."
    strangers = [word for word in error.unused_tokens or () if word.startswith("--")]
    for word in strangers:
        if renamed := _is_called_now(word, {argument.name}):
            return renamed
    if meant := nearest(argument.name, strangers, most=1):
        return f"Unknown option: {meant[0]}. Did you mean {argument.name}?"
    meaning = " ".join((argument.parameter.help or "").split())
    return f"{argument.name} is missing: {meaning}" if meaning else f"{argument.name} is missing."


def _is_called_now(old: str, known: Collection[str], command: str = "") -> str | None:
    """Return what an option is called now; None: it was never called so, or of another command."""
    if old == "--param" and "ARGUMENTS" in known:
        return 'Arguments of a script stand behind "--" now, such as -- --epochs 3.'
    # `--inputs` of export was the function that makes example inputs.
    others = [names for owner, names in RENAMED.items() if owner != "ExportOptions"]
    flow = next((kind.flow for name, kind in KINDS.items() if name == command), f"model_{command}")
    # What one flow calls so another one may call otherwise.
    others.insert(0, RENAMED.get(flow, {}))
    field = old.removeprefix("--").replace("-", "_")
    found = (flag(names[field]) for names in (_OF_THE_SHELL, *others) if field in names)
    now = next((new for new in found if new in known), None)
    return now and f"{old} is called {now} now."


def _describe_first(error: "ValidationError", flags: Mapping[str, str]) -> str:
    first = error.errors()[0]
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    # For a union, pydantic puts the branches' own names between those of the fields.
    place = [str(part) for part in first["loc"] if str(part).isidentifier()]
    if not place:
        return reason if reason.endswith("?") else f"{reason}."
    value = f" (it is {first['input']!r})" if first["type"] != "missing" else ""
    option = flags.get(place[0]) or flag(place[0])
    end = "" if reason.endswith("?") and not value else "."
    return f"{'.'.join([option, *place[1:]])}: {reason}{value}{end}"


def split_names(values: Iterable[str]) -> list[str]:
    """Return names that were typed one by one, with commas between them, or both.

    Example:
        >>> split_names(["store,date", '"a,b"'])
        ['store', 'date', 'a,b']
    """
    names = []
    for text in values:
        try:
            # By itself: a quote that is left open would swallow the next one.
            rows = list(csv.reader([text], skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise InputError(
                f"{text!r} is not a list of names ({error}): write commas between them, and quote "
                "a name that holds a comma, a quote or the end of a line."
            ) from error
        names += [name.strip() for row in rows for name in row if name.strip()]
    return names


def parse_value(text: str) -> Any:
    """Return a number, truth value, list or quoted text as JSON has it; anything else is text.

    Example:
        >>> [parse_value(text) for text in ("15", "0.1", "true", "gbdt", '"15"', "2026-01-01")]
        [15, 0.1, True, 'gbdt', '15', '2026-01-01']
    """
    try:
        # Beyond JSON, Python's reader takes NaN and Infinity for numbers.
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def parse_parameter(text: str, option: str = "--param") -> tuple[str, Any]:
    """Return the name and value of "name=value", as it was typed behind an option.

    Raises:
        InputError: There is no name, or no "=".
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        example = "num_leaves=15" if option == "--param" else "cores=8"
        raise InputError(f"{option} {text!r} is not of the form name=value, such as {example}.")
    return name.strip(), parse_value(value.strip())


def by_name(pairs: Iterable[tuple[str, V]], option: str = "") -> dict[str, V]:
    """Return what was typed behind an option for each name.

    Raises:
        InputError: A name was typed twice, of which one value would be passed over.
    """
    found: dict[str, V] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"{option} {name!r} is given twice: leave one out.".lstrip())
        found[name] = value
    return found


def parse_condition(text: str) -> tuple[str, str, Any]:
    """Return a condition on rows: column, operator, value.

    Raises:
        InputError: It cannot be read as one.

    Example:
        >>> parse_condition("price >= 1.5"), parse_condition('"unit price" in 1, 2')
        (('price', '>=', 1.5), ('unit price', 'in', [1, 2]))
    """
    found = _CONDITION.fullmatch(text)
    if found is None or not found["value"]:
        raise InputError(
            f"--filter {text!r} is not of the form 'column operator value', with an operator of "
            "=, !=, <, <=, >, >=, in, not in."
        )
    column = found["quoted"] or found["column"]
    operator = " ".join(found["operator"].split())
    if operator.endswith("in"):
        values = parse_value(found["value"])
        if not isinstance(values, list):
            values = [parse_value(name) for name in split_values(found["value"])]
        return column, operator, values
    return column, operator, parse_value(found["value"])


def split_values(text: str) -> list[str]:
    """Split at commas outside quotes, and leave the quotes."""
    return [part.strip() for part in re.findall(r'\s*("(?:[^"\\]|\\.)*"|[^,]+)\s*(?:,|$)', text)]
