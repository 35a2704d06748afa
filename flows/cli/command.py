"""Commands that are made of calls: an option for each field, named, typed and described by it.

What a shell types in another way than Python stands in `_TYPES`, by the name that the type has in
the classes of calls: a condition is a text, keys have commas between them, a cluster is given by
options of its own. A new field of a type that is known, or of a plain one, is an option by itself.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter, default_name_transform
from pydantic import BaseModel, create_model

from partwise.calls.call import Call, KeyedCall, RowsCall, VersionedCall
from partwise.calls.descriptions import first_paragraphs
from partwise.choices import ScriptBackend
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import Environment
from partwise.errors import InputError
from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.options import (
    EXECUTION,
    ROWS,
    RUN,
    ClusterOptions,
    Names,
    StoreUrl,
)
from partwise.flows.cli.parsing import by_name, flag, parse_condition, split_names
from partwise.gangs.options import GangOptions
from partwise.models.export_options import ExportOptions, ValidationOptions
from partwise.runs.kinds import KINDS

EXPORT = Group("Export", sort_key=0)
RANKS = Group("Ranks", sort_key=4)
ENVIRONMENT = Group("Environment", sort_key=5)

S = TypeVar("S", bound=BaseModel)


# Without equality: of equal annotations `typing` makes one, and then outputs were data.
@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """How what was typed becomes the value of a field."""

    value: Callable[[Any], Any]
    """Makes it of what was typed; may raise InputError."""
    default: Any = ()
    """What stands for nothing typed, in which case the field has its own default; empty as that of
    a parameter: it has to be typed."""
    form: str = ""
    """How it is typed, in a sentence that the help has behind what the field is."""
    is_rest: bool = False
    """Whether it is all words that are left, such as those behind "--"."""
    fields: tuple[str, ...] = ()
    """The fields that are made of it, where these are several: `value` returns them by name."""


def _values_by_name(form: str, *, as_typed: bool = False) -> Any:
    """Return the type of values by name, typed in a form such as NAME=PATH.

    `as_typed`: blanks are part of a value, and it may be empty.
    """

    def read(texts: Names) -> dict[str, str]:
        pairs = []
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals or not name.strip() or not (value.strip() or as_typed):
                raise InputError(f"{text!r} is not of the form {form}.")
            pairs.append((name.strip(), value if as_typed else value.strip()))
        return by_name(pairs)

    return Annotated[Names, Read(value=read, form=f"Given as {form}; may be repeated.")]


def _serde(chosen: bool) -> Any:
    from partwise.models.serdes import PickleSerde

    return PickleSerde() if chosen else ""


def _only(texts: Names) -> list[str] | str:
    """Return keys; or the table or run that stands behind an @, which is given alone."""
    if not any(text.startswith("@") for text in texts):
        return list(texts)
    if len(texts) > 1:
        raise InputError(f"{texts!r}: give keys, or one @ with a table or run.")
    return texts[0].removeprefix("@")


def without(kind: type[S], hidden: str) -> Any:
    """Return the type of options of a model, of which one field is not typed."""
    field = kind.model_fields[hidden]
    not_typed: Any = (Annotated[field.annotation, Parameter(parse=False)], field.default)
    typed = create_model(kind.__name__, __base__=kind, **{hidden: not_typed})

    def plain(options: S) -> S:
        return kind(**{name: getattr(options, name) for name in options.model_fields_set})

    return Annotated[typed, Read(value=plain, default=typed())]


def _renamed(**names: str) -> Callable[[str], str]:
    """Return what names options after fields, some of which have other names."""
    return lambda field: names.get(field, default_name_transform(field))


def _with_names(options: ExportOptions) -> ExportOptions:
    """Return the options with the columns of a,b,c as three."""
    if options.features is None:
        return options
    return options.model_copy(update={"features": tuple(split_names(options.features))})


_DATA = Read(value=list)
_NAMES = Annotated[Names, Read(value=split_names)]
_TYPES: Mapping[str, Any] = {
    "DataParameter": Annotated[Names, _DATA],
    "PartitionBy": _NAMES,
    "ColumnsParameter": _NAMES,
    "FilterParameter": Annotated[
        Names,
        Read(value=lambda texts: [parse_condition(text) for text in texts]),
        Parameter(
            help='Rows to keep, such as "price > 0", "day < 2026-01-01" or "store in a,b". Given '
            "several times, all must hold. Text that looks like a number is quoted: "
            "'zip = \"01234\"'."
        ),
    ],
    "FilesParameter": Annotated[Names, Read(value=list), Parameter(group=ROWS)],
    "TextsParameter": Annotated[Names, Read(value=list)],
    "OnlyParameter": Annotated[
        Names,
        Read(
            value=_only,
            form="Given as a key, and repeated for more; or as @TABLE or @RUN.",
        ),
    ],
    "FallbackParameter": Annotated[Names, Read(value=list)],
    "TextsByNameParameter": _values_by_name("NAME=VALUE", as_typed=True),
    "InputsByNameParameter": _values_by_name("NAME=PATH"),
    "EvalDataParameter": _values_by_name("NAME=PATH"),
    "PathParameter": str,
    "BackendParameter": ScriptBackend,
    "SerdeParameter": Annotated[
        bool,
        Read(value=_serde, default=False),
        Parameter(
            name="--pickle",
            group=RUN,
            help="Let models be pickles where no native format fits. Reading one runs the code in "
            "it.",
        ),
    ],
    **dict.fromkeys(
        (
            *("FunctionParameter", "PredictParameter", "ExampleInputsParameter"),
            *("ExporterParameter", "MetricParameter", "CommandParameter", "OutputParameter"),
            *("VersionParameter", "ParamsParameter"),
        ),
        str,
    ),
    "StoreParameter": StoreUrl,
    "ClusterParameter": Annotated[
        ClusterOptions, Read(value=ClusterOptions.checked, default=ClusterOptions())
    ],
    "Environment": Annotated[
        # Of its own name are those in a file.
        without(Environment, "constraints"),
        Parameter(
            name="*",
            group=ENVIRONMENT,
            name_transform=_renamed(
                packages="package",
                requirements_file="requirements",
                pyproject_file="pyproject",
                constraints_file="constraints",
                extra_index_urls="extra-index-url",
            ),
        ),
    ],
    "ExecutionOptions": Annotated[ExecutionOptions, Parameter(name="*", group=EXECUTION)],
    "ScalingConfig": Annotated[ScalingConfig, Parameter(name="*", group=RANKS)],
    "GangOptions": Annotated[GangOptions, Parameter(name="*", group=RANKS)],
    "ExportOptions": Annotated[
        ExportOptions,
        Read(value=_with_names, default=ExportOptions()),
        # `--features` are those of a trainer.
        Parameter(name="*", group=EXPORT, name_transform=_renamed(features="model-features")),
    ],
    "ValidationOptions": Annotated[ValidationOptions, Parameter(name="*", group=EXPORT)],
    # Each command says what trains, by a class of options.
    **dict.fromkeys(
        (
            *("TrainerParameter", "SearchedTrainerParameter", "StudyTrainerParameter"),
            *("DistributedTrainerParameter", "HoldoutParameter", "OneParamsParameter"),
            *("SpaceParameter", "SearchedSpaceParameter", "ArgumentsParameter"),
        ),
        object,
    ),
}
"""What is typed for a type of `partwise.calls.parameters`, or for a model of options."""

_GROUPS = {Call: RUN, VersionedCall: RUN, RowsCall: ROWS, KeyedCall: ROWS}
"""Where the help shows fields of calls in common, by the class that has them first."""
_ELSEWHERE = {
    **dict.fromkeys(("seed", "serde", "trust", "resume_from", "output"), RUN),
    **dict.fromkeys(
        ("filter", "columns", "eval_data", "inference_data", "keep_columns", "only"), ROWS
    ),
}
"""Fields that the help shows elsewhere than others of their class."""
_SHORT = {"partition_by": "-p", "source_directory": "-d", "nodes": "-n", "ranks_per_node": "-k"}

_READING = inspect.Parameter(
    "reading", inspect.Parameter.KEYWORD_ONLY, default=FileOptions(), annotation=FileOptions
)
"""How the files of `data` are read, which from Python is said by `Files`."""

_WORDS = (
    (r" From Python [^.]*\.", ""),
    (r"<(\w+)>", r"\1"),
    (r"\ba list of them\b", "several: store,date"),
    (r"\ba list of these\b", "several of these"),
    *((rf"\b{kind.flow}\b", f"`partwise {name}`") for name, kind in KINDS.items()),
)
"""What the help says in other words than Python's documentation."""


def command_of(
    call: type[Call],
    summary: str,
    *,
    group: Group | None = None,
    groups: Mapping[str, Group] | None = None,
    places: Mapping[str, str] | None = None,
    types: Mapping[str, Any] | None = None,
    carry_out: Callable[..., int] | None = None,
) -> Callable[..., int]:
    """Return a command that makes a call of what was typed, and carries it out.

    Args:
        call: The kind of call.
        summary: What the help begins with.
        group: Where the help shows the fields of its own.
        groups: Where it shows some of these, by name.
        places: Fields that are given by their place, and what help calls them. Default: data.
        types: How fields are typed, by name, where their types do not say it.
        carry_out: Takes the call, and by name options of the command's own. Default: it is carried
            out by its flow, and its run is printed.
    """
    act = carry_out or _call_and_print
    of_command = _of_function(act)
    of_call = _parameters(call, group, groups or {}, places or {"data": "DATA"}, types or {})
    reads = {each.name: read for each in of_call if (read := _read_of(each.annotation))}
    parameters = [*of_call, *of_command]
    if any(read is _DATA for read in reads.values()):
        parameters.append(_READING)
    # A signature wants them by kind, and those without a default first.
    parameters.sort(key=lambda each: (each.kind, each.default is not each.empty))
    signature = inspect.Signature(parameters, return_annotation=int)

    def command(*positional: Any, **options: Any) -> int:
        from partwise.flows.orchestration.run_ids import new_run_id

        typed = signature.bind(*positional, **options).arguments
        own = {each.name: typed.pop(each.name) for each in of_command if each.name in typed}
        files = typed.pop(_READING.name, FileOptions())
        given: dict[str, Any] = {}
        for name, value in typed.items():
            read = reads.get(name)
            if read is _DATA:
                given[name] = files.of(value)
            elif read is not None and read.fields:
                given |= read.value(value)
            else:
                given[name] = value if read is None else _read(read, name, value)
        # Not left to the flow: whoever interrupts the command reads the name to go on with.
        given["run_id"] = given.get("run_id") or new_run_id(call.kind)
        return act(call(**given), **own)

    command.__doc__ = summary
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
    return command


def _read(read: Read, field: str, value: Any) -> Any:
    try:
        return read.value(value)
    except InputError as error:
        if not read.form:
            raise
        raise InputError(f"{flag(field)} {error}") from None


def _call_and_print(asked: Call) -> int:
    from partwise.flows.cli.flow_calls import call_and_print

    return call_and_print(asked)


def _of_function(act: Callable[..., int]) -> list[inspect.Parameter]:
    """Return the options that a function takes besides the call."""
    hints = get_type_hints(act, include_extras=True)
    _, *own = inspect.signature(act).parameters.values()
    return [each.replace(annotation=hints[each.name]) for each in own]


def _parameters(
    call: type[Call],
    group: Group | None,
    groups: Mapping[str, Group],
    places: Mapping[str, str],
    types: Mapping[str, Any],
) -> "list[inspect.Parameter]":
    # Fields have their types as texts, so that their names stand for what a shell types here.
    hints = {**get_type_hints(call, localns={**_TYPES}, include_extras=True), **types}
    texts = _texts(call)
    filled = {name for hint in hints.values() if (read := _read_of(hint)) for name in read.fields}
    fields = {each.name: each for each in dataclasses.fields(call)}
    names = [*places, *(name for name in inspect.signature(call).parameters if name not in places)]
    found = []
    for name in names:
        if name in filled and name not in types:
            continue
        hint, text = hints[name], texts.get(name)
        at: Any = inspect.Parameter.KEYWORD_ONLY
        if name in places:
            at = inspect.Parameter.POSITIONAL_ONLY
        if read := _read_of(hint):
            text = f"{text} {read.form}".strip()
            at = inspect.Parameter.VAR_POSITIONAL if read.is_rest else at
        if not _is_of_options(hint):
            shown = Parameter(help=text)
            if name in places:
                shown = Parameter.combine(shown, Parameter(name=places[name]))
            elif (found_in := _group_of(call, name, group, groups)) is not None:
                shown = Parameter.combine(shown, Parameter(group=found_in))
            if name in _SHORT:
                shown = Parameter.combine(shown, Parameter(alias=_SHORT[name]))
            # What the type says is said last.
            hint = Annotated[(_plain(hint), shown, *_metadata(hint))]
        found.append(
            inspect.Parameter(name, at, default=_default(fields[name], hint), annotation=hint)
        )
    return found


def _group_of(
    call: type[Call], name: str, group: Group | None, groups: Mapping[str, Group]
) -> Group | None:
    classes = reversed(call.__mro__)
    first = next(each for each in classes if name in inspect.get_annotations(each))
    return groups.get(name) or _ELSEWHERE.get(name) or _GROUPS.get(first, group)


def _default(field: "dataclasses.Field[Any]", hint: Any) -> Any:
    """Return what the help shows as default; empty: it has to be given."""
    read = _read_of(hint)
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return inspect.Parameter.empty
    if read is not None:
        return inspect.Parameter.empty if read.is_rest else read.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _metadata(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _read_of(hint: Any) -> Read | None:
    return next((each for each in _metadata(hint) if isinstance(each, Read)), None)


def _is_of_options(hint: Any) -> bool:
    """Whether a type has options of its own, in groups of its own."""
    kind = _plain(hint)
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel)
    )


def _texts(call: type[Call]) -> Mapping[str, str]:
    """Return what the help says of each field, by name."""
    found = dict(first_paragraphs(call))
    # The ID of a run is also the name of a column.
    names = "|".join(name for name in found if "_" in name and name != "run_id")
    fields = re.compile(rf"(?<![\w.{{<])({names})(?![\w}}>])")
    nothing = {each.name for each in dataclasses.fields(call) if each.default in (None, "", ())}
    for name, text in found.items():
        for pattern, words in _WORDS:
            text = re.sub(pattern, words, text)
        if name in nothing:
            text = re.sub(r"\b(Empty|None given):", "Default:", text)
        found[name] = fields.sub(lambda field: flag(field[0]), text)
    return found
