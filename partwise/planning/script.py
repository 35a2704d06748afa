"""What the flow of a script decides before a rank is started: most refusals are here."""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from partwise.calls.script import ScriptCall
from partwise.engine.scaling import ClusterWorker
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import InputError, RunNotFoundError
from partwise.fingerprints.functions import arguments_fingerprint
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import Placement, place_nodes
from partwise.gangs.plan import GangPlan
from partwise.gangs.spec import RANK_KEY
from partwise.planning.caller_paths import paths_left_behind
from partwise.redaction import MASK, masked, names_secret
from partwise.runs.claim import Identity, Intent
from partwise.runs.documents import RUN_SCHEME, SNAPSHOTS, run_path, to_json
from partwise.runs.run import Run
from partwise.scripts.inputs import ScriptInput, StoredFiles, find_input
from partwise.scripts.open_mpi import check_open_mpi
from partwise.scripts.outputs import check_globs
from partwise.scripts.rank_work import ScriptRankWork
from partwise.scripts.snapshot import (
    Snapshot,
    read_snapshot_names,
    sha256_of_snapshot,
    snapshot_name,
    take_snapshot,
)
from partwise.scripts.spec import (
    ENV,
    ScriptSpec,
    argument_words,
    check_placeholders,
    input_variable,
)
from partwise.sources.descriptions import Source
from partwise.store.store import Store

if TYPE_CHECKING:
    from distributed import Client
    from pydantic import JsonValue

_NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPTION = re.compile(
    r"(--?[\w-]{1,64})(\s{1,8})(\"[^\"\n]{1,1024}\"|'[^'\n]{1,1024}'|[^\s-]\S{0,1024})"
)
_SNAPSHOT = re.compile(
    rf"run://([^/]+)(?:/({SNAPSHOTS}/[0-9a-f]{{64}}(?:-[0-9a-f]{{8}})?)(?:\.tar\.gz)?)?/?"
)


@dataclass(frozen=True, slots=True)
class Code:
    """The source directory as the run will have it."""

    name: str = ""
    """Of the snapshot, relative to the folder of the run; empty: there is none."""
    content: bytes = b""
    """Empty: the run has it already."""
    names: frozenset[str] = frozenset()
    """Of the files in it."""


def prepare_script(
    call: ScriptCall,
    inputs: Mapping[str, str | Source],
    store: Store,
    shown: Mapping[str, Any],
    resolved: ResolvedEnvironment | None = None,
) -> GangPlan:
    """Return the plan of a run of a script, checked as far as it can be before a slot is taken.

    `inputs` are what `find_input` takes, or rows; `shown` are they as they can be written down,
    without those that cannot. `resolved` None: the worker's own Python.
    """
    check_call(call, inputs)
    code = take_code(call, store)
    check_script(call, code)
    rows = {name: each for name, each in inputs.items() if not isinstance(each, str)}
    found = {
        name: find_input(name, each, store)
        for name, each in inputs.items()
        if isinstance(each, str)
    }
    spec = ScriptSpec(
        words=_words(call),
        is_script=bool(call.entry_script),
        shell=call.command if isinstance(call.command, str) else "",
        backend=call.backend,
        environment=resolved,
        grace_s=call.grace_s,
        snapshot=code.name,
        environment_variables={"PARTWISE_BACKEND": call.backend, **call.environment_variables},
        inputs=found,
        row_inputs=tuple(sorted(rows)),
        outputs=tuple(call.outputs),
        resume_argument=call.resume_argument,
    )
    texts = {f"The argument {word!r}": word for word in spec.words}
    check_placeholders({**texts, "The command": spec.shell}, inputs)
    intent = _describe_intent(call, code, _identities(found, rows), shown, resolved)
    return GangPlan(
        identity=Identity(run_id=call.run_id, kind=call.run_kind(), key_columns=RANK_KEY),
        sources=rows,
        work=ScriptRankWork(spec=spec, store=store),
        name=f"The script {call.entry_script!r}" if call.entry_script else "The command",
        intent=intent,
        warnings=(*_warnings(intent), *warnings_of_paths(call, code)),
        seed=0,
        on_existing=call.on_existing_artifacts,
        place=partial(_place, call),
        options=_options(call),
        check_workers=_check_of(call),
        resume_from=_resume_from(call.resume_from),
        buckets=tuple(each.store.url for each in found.values() if isinstance(each, StoredFiles)),
        shares_gpus=True,
    )


def _options(call: ScriptCall) -> GangOptions:
    return GangOptions(
        timeout_s=call.timeout_s,
        grace_s=call.grace_s,
        join_timeout_s=call.join_timeout_s,
        max_retries=call.max_retries,
    )


def check_call(call: ScriptCall, inputs: Mapping[str, Any]) -> None:
    """See that a call does not contradict itself."""
    if bool(call.entry_script) == bool(call.command):
        both = "both are" if call.command else "neither is"
        raise InputError(f"entry_script and command: give one of them; {both} given.")
    for what in ("nodes", "ranks_per_node"):
        if (number := getattr(call, what)) < 1:
            raise InputError(f"{what} is {number}: give a number from 1.")
    _options(call)
    if call.command and call.arguments:
        raise InputError("arguments go with entry_script: a command has its own words.")
    check_globs(call.outputs)
    for name in inputs:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"The input {name!r} has no fit name: use letters, digits, '-', '_' and '.', "
                "beginning with a letter."
            )
    variables = [input_variable(name) for name in inputs]
    if twice := sorted({each for each in variables if variables.count(each) > 1}):
        raise InputError(f"Two inputs would have the variable {twice[0]}: rename one of them.")
    for name in call.environment_variables:
        if not _VARIABLE.fullmatch(name):
            raise InputError(f"environment_variables has {name!r}, which is not a variable's name.")


def take_code(call: ScriptCall, store: Store) -> Code:
    """Pack the source directory, or read the snapshot that a run has of it."""
    named = _SNAPSHOT.fullmatch(call.source_directory)
    if call.source_directory.startswith(RUN_SCHEME) and named is None:
        raise InputError(
            f"source_directory={call.source_directory!r} is not of the form run://RUN."
        )
    if not call.source_directory:
        if call.entry_script:
            raise InputError("entry_script needs a source_directory: name the script's folder.")
        return Code()
    if named is None:
        taken: Snapshot = take_snapshot(Path(call.source_directory))
        return Code(taken.name, taken.content, read_snapshot_names(taken.content, taken.name))
    run_id = named[1]
    name = newest_snapshot(run_id, store) if named[2] is None else f"{named[2]}.tar.gz"
    try:
        content = store.read(run_path(run_id, name))
    except FileNotFoundError as error:
        raise RunNotFoundError(
            f"source_directory={call.source_directory!r}: {store.url}, as {os.uname().nodename} "
            "sees it, has no such snapshot: give a store that all machines see, or begin the run "
            "again from its source directory."
        ) from error
    names = read_snapshot_names(content, name)
    if run_id == call.run_id:
        return Code(name, b"", names)
    return Code(snapshot_name(sha256_of_snapshot(name)), content, names)


def newest_snapshot(run_id: str, store: Store) -> str:
    """Return the name of the snapshot that the newest generation of a run was begun with."""
    run = Run.open(run_id, store)
    arguments = run.read_generation_document().arguments if run.generation else {}
    named = _SNAPSHOT.fullmatch(str(arguments.get("source_directory")))
    if named is None or named[2] is None:
        raise InputError(
            f"The run {run_id!r} is of the kind {run.kind!r} and has no snapshot of a source "
            "directory: name a run of a script."
        )
    return f"{named[2]}.tar.gz"


def check_script(call: ScriptCall, code: Code) -> None:
    """See that the source directory has the script."""
    if not call.entry_script:
        return
    path = PurePosixPath(call.entry_script)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(
            f"entry_script={call.entry_script!r} is not in the source directory: give its path "
            "relative to source_directory."
        )
    if path.as_posix() not in code.names:
        scripts = sorted(name for name in code.names if name.endswith(".py"))
        there = ", ".join(scripts[:5]) + (" ..." if len(scripts) > 5 else "")
        raise InputError(
            f"There is no script {call.entry_script!r} in {call.source_directory!r}, or it is "
            f"ignored there; the scripts that are: {there or 'none'}."
        )


def _words(call: ScriptCall) -> tuple[str, ...]:
    """Return the script or command, and its arguments."""
    if call.command:
        return () if isinstance(call.command, str) else tuple(map(str, call.command))
    return (PurePosixPath(call.entry_script).as_posix(), *argument_words(call.arguments))


def warnings_of_paths(call: ScriptCall, code: Code) -> tuple[str, ...]:
    """Return what to say of relative paths that only the caller's folder has."""
    shell = call.command if isinstance(call.command, str) else ""
    return paths_left_behind(_words(call), shell, call.environment_variables, code.names)


def _place(call: ScriptCall, workers: Sequence[ClusterWorker]) -> Placement:
    placement = place_nodes(
        workers,
        call.nodes,
        call.ranks_per_node,
        call.cpus,
        call.gpus,
    )
    if call.backend == "nccl" and not placement.gpus:
        raise InputError(
            "backend='nccl' is for GPUs, and no process has one: give backend='gloo', or a "
            "cluster with a GPU for each process."
        )
    return placement


def _check_of(call: ScriptCall) -> "Callable[[Client, Sequence[str]], object] | None":
    """Return what looks whether workers have the program that starts the ranks."""
    if call.backend != "mpi":
        return None
    return partial(check_open_mpi, path=call.environment_variables.get("PATH"))


def _resume_from(text: str) -> str:
    """Return what a gang is to resume from: run://RUN is the run of this name."""
    return text.removeprefix(RUN_SCHEME).rstrip("/") if text.startswith(RUN_SCHEME) else text


def _identities(found: Mapping[str, ScriptInput], rows: Mapping[str, Source]) -> dict[str, str]:
    """Return by name what changes when an input does."""
    identities = {name: each.identity for name, each in found.items()}
    return identities | {name: each.description().fingerprint for name, each in rows.items()}


def store_source(call: ScriptCall, code: Code, store: Store) -> str:
    """Write the source directory to the run, for a machine that does not see it; return its URL."""
    if code.content:
        store.create(run_path(call.run_id, code.name), code.content)
    return _stored_source(call.run_id, code)


def _stored_source(run_id: str, code: Code) -> str:
    return f"{RUN_SCHEME}{run_id}/{code.name}" if code.name else ""


def _describe_intent(
    call: ScriptCall,
    code: Code,
    identities: Mapping[str, str],
    shown: Mapping[str, Any],
    resolved: ResolvedEnvironment | None,
) -> Intent:
    """Return what the call is about to do; a repeat of it takes the snapshot that the run has."""
    packages = {} if resolved is None else resolved.versions
    digest = hashlib.sha256(repr(sorted(identities.items())).encode()).hexdigest()
    passed = call.arguments
    by_name, words = (passed, ()) if isinstance(passed, Mapping) else ({}, passed)
    deciding = {
        "entry_script=": call.entry_script,
        "command=": call.command,
        # Two arguments of earlier versions, whose runs are known by this.
        "params=": dict(by_name),
        "arguments=": list(words),
        "processes=": [call.nodes, call.ranks_per_node],
        "backend=": call.backend,
        "environment_variables=": dict(call.environment_variables),
        "outputs=": list(call.outputs),
        "resume_from=": call.resume_from,
        "resume_argument=": call.resume_argument,
    }
    given = {f"library {name}": version for name, version in packages.items()}
    given |= {"file source_directory": sha256_of_snapshot(code.name)} if code.name else {}
    fingerprint = arguments_fingerprint(deciding, given)
    repeated = replace(call, source_directory=_stored_source(call.run_id, code), inputs=dict(shown))
    written: dict[str, JsonValue] = {
        name: to_json(value.model_dump(mode="json") if isinstance(value, BaseModel) else value)
        for name, value in repeated.written_arguments().items()
    }
    shown_arguments = _without_secrets(written)
    whole: dict[str, JsonValue] = {
        "flow": call.flow(),
        "data": None,
        "arguments": shown_arguments,
        "version": None,
    }
    obstacle = "environment= holds a password" if call.environment.has_password else None
    if secret := _name_of_secret(written, shown_arguments):
        obstacle = f"{secret}= holds what looks like a secret, which is not written down"
    if lacking := sorted(set(identities) - set(shown)):
        obstacle = f"the input {lacking[0]!r} is held in memory, or is a query with a password"
    return Intent(
        source_fingerprint=digest,
        inputs_fingerprint=digest,
        code_fingerprint=fingerprint.digest,
        code_unknown=fingerprint.unknown,
        code_parts=fingerprint.parts,
        packages=packages,
        files={code.name: code.content} if code.content else {},
        call=None if obstacle else whole,
        call_obstacle=obstacle,
        call_known=whole if obstacle else None,
    )


def _without_secrets(arguments: Mapping[str, "JsonValue"]) -> dict[str, "JsonValue"]:
    """Return the arguments of a call with secrets masked, also behind options such as --api-key."""
    shown: dict[str, JsonValue] = masked(arguments)
    for name in ("arguments", "command"):
        match shown[name]:
            case str(line):
                shown[name] = _OPTION.sub(_masked_option, line)
            case list(words):
                before = ["", *words[:-1]] if words else []
                shown[name] = [
                    MASK if _is_secret_option(option) and not _is_placeholder(word) else word
                    for option, word in zip(map(str, before), map(str, words), strict=True)
                ]
    return shown


def _warnings(intent: Intent) -> tuple[str, ...]:
    """Return what to say of secrets in a call, before it is carried out."""
    obstacle = intent.call_obstacle
    if obstacle is None or "secret" not in obstacle:
        return ()
    said = (
        f"{obstacle}: so `partwise runs resume` and `repeat` cannot repeat the call; and other "
        "users of the machine see the words of a process. Set a variable where workers are "
        "started, such as API_KEY, and have the script read it, or write "
        f"{{{ENV}API_KEY}} in its place."
    )
    return (said,)


def _masked_option(match: re.Match[str]) -> str:
    hidden = _is_secret_option(match[1]) and not _is_placeholder(match[3])
    return f"{match[1]}{match[2]}{MASK}" if hidden else match[0]


def _is_secret_option(word: str) -> bool:
    return word.startswith("-") and "=" not in word and names_secret(word.lstrip("-"))


def _is_placeholder(word: str) -> bool:
    """Whether a word is the name of a variable, and not its value."""
    return word.startswith(("$", "{" + ENV)) or word == MASK


def _name_of_secret(
    given: Mapping[str, "JsonValue"], shown: Mapping[str, "JsonValue"]
) -> str | None:
    """Return the first argument of which something was masked."""
    return next((name for name, value in given.items() if shown[name] != value), None)
