"""What to type after a run: a command of this program, with all that it needs."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from partwise.catalogs.documents import CATALOG_SCHEME
from partwise.errors import InputError, PartwiseError, RunNotFoundError
from partwise.outcomes import RunStatus
from partwise.runs.documents import SAMPLE_SUFFIX
from partwise.runs.exports import exported_as, has_one_model
from partwise.runs.kinds import KINDS
from partwise.runs.portfolio import has_portfolio
from partwise.runs.run import Run
from partwise.store.store import Store

MOST_PATHS = 3
_PLAIN = frozenset(("paths", "columns", "filter"))
"""What a command can say of the rows of a call."""
_FORECAST_LATER_ROWS = ("lagged", "statsforecast")
"""Kinds of trainers whose models predict only what is later than the rows of the training."""


def next_command(run: Run) -> tuple[str, str]:
    """Return the command to type after such a run, as it stands, and what it is for."""
    command, why = _next(run, run.run_id, store_option(run))
    return f"{program()} {command}", why


def _next(run: Run, name: str, where: str) -> tuple[str, str]:
    match run.status:
        case RunStatus.SUCCESS if run.run_id.endswith(SAMPLE_SUFFIX):
            all_rows = "read this again; the same call without --sample runs all partitions"
            return f"runs show {name}{where}", all_rows
        case RunStatus.SUCCESS if KINDS[run.kind].models == "each" and _has_models(run):
            return _infer(run, run, _keys(run), "use the models")
        case RunStatus.SUCCESS if KINDS[run.kind].models == "one":
            return _infer(run, run, "", "use the model")
        case RunStatus.SUCCESS if run.kind == "export" and run.counts.get("DONE"):
            keys, trained = _keys(run), run
            # It may have been removed: a run that uses another one outlives it.
            with suppress(RunNotFoundError):
                keys = "" if has_one_model(run) else keys
                trained = Run.open(run.document.training_run_id or "", run.store)
            form = next(iter(exported_as(run)), "native")
            return _infer(run, trained, keys, "use the exports", f" --format {form}")
        case RunStatus.SUCCESS if _has_files_alone(run):
            return f"runs export {name} --what artifacts --to {name}{where}", "its files"
        case RunStatus.SUCCESS if run.kind == "infer":
            export = f"runs export {name} --what predictions --to {name}.parquet{where}"
            return export, "the predictions as a file; run.predictions() reads them"
        case RunStatus.SUCCESS if run.kind == "compare":
            used = [each for each in run.document.models if each.startswith(CATALOG_SCHEME)]
            catalog = used[0].removeprefix(CATALOG_SCHEME).partition("@")[0] if used else "CATALOG"
            dry = f"promote {catalog} --comparison {name} --dry-run{where}"
            return dry, "what a promotion would change"
        case RunStatus.SUCCESS if run.kind == "evaluate":
            return f"runs show {name} --open{where}", "which keys got worse"
        case RunStatus.SUCCESS if has_portfolio(run.store, run.run_id):
            return _train(run)
        case RunStatus.SUCCESS:
            return f"runs show {name}{where}", "read this again"
        case RunStatus.SKIPPED:
            return f"runs show {name} --open{where}", "what was skipped, and why"
        case RunStatus.PARTIAL_FAILURE | RunStatus.FAILURE:
            return f"runs show {name} --failures{where}", "what failed, and where"
        case RunStatus.CANCELLED | RunStatus.IN_PROGRESS:
            return f"runs resume {name}{where}", "go on with what is not done"


def _has_models(run: Run) -> bool:
    serdes = pc.struct_field(pc.list_flatten(run.ledger["artifacts"]), "serde")
    return bool(pc.any(pc.not_equal(serdes, ""), min_count=0).as_py())


def _has_files_alone(run: Run) -> bool:
    """Whether a function has uploaded files, and returned no models or predictions."""
    has_files = bool(pc.sum(pc.list_value_length(run.ledger["artifacts"])).as_py())
    has_rows = run.ledger["rows_file"].null_count < run.ledger.num_rows
    return run.kind in ("train", "infer") and has_files and not has_rows


def store_option(run: Run) -> str:
    """Return " --store URL" where a command would not find the run's store without it."""
    default = os.environ.get("PARTWISE_STORE", "artifacts")
    # What is no store is that of no run.
    with suppress(InputError):
        if Store.parse(default).url == run.store.url:
            return ""
    return f" --store {shlex.quote(_shown_path(run.store.url))}"


def program() -> str:
    """Return how this program is called from here: where the shell would not find it, its path."""
    called = Path(sys.argv[0])
    if called.parts[-2:] == ("partwise", "__main__.py"):
        return f"{shlex.quote(_shown_path(sys.executable))} -m partwise"
    if called.name != "partwise" or not called.is_file():
        return "partwise"
    there = shutil.which("partwise")
    is_found = there is not None and Path(there).samefile(called)
    path = _shown_path(str(called.absolute()))
    return "partwise" if is_found else shlex.quote(path if os.sep in path else f"./{path}")


def _shown_path(path: str) -> str:
    """Return a path relative to the current folder, where it lies below that."""
    here = os.getcwd()
    return os.path.relpath(path, here) if path.startswith(f"{here}{os.sep}") else path


def _infer(run: Run, trained: Run, keys: str, why: str, more: str = "") -> tuple[str, str]:
    """Return the command that uses the models of a run on the rows that they were trained on."""
    rows, where = _rows(trained), store_option(run)
    # One of them, or among the candidates of another trainer: its models refuse those rows.
    asked = json.dumps(_arguments(trained).get("trainer"))
    forecasts = any(f'"kind": "{kind}"' in asked for kind in _FORECAST_LATER_ROWS)
    if rows is None or forecasts:
        later = " on later rows" if forecasts else ""
        return (
            f"runs show {run.run_id} --open{where}",
            f"its report; partwise infer can {why}{later}",
        )
    command = f"infer {rows}{keys} --training-run-id {run.run_id}{more}{where}"
    return command, f"{why}, here on the rows of the training"


def _train(run: Run) -> tuple[str, str]:
    """Return the command that tries the settings of a portfolio on all partitions."""
    why = "try these settings on each partition"
    trainer, rows, where = _arguments(run).get("trainer"), _rows(run), store_option(run)
    kind, label, features = (
        trainer.get(name) if isinstance(trainer, Mapping) else None
        for name in ("kind", "label", "features")
    )
    if rows is None or not isinstance(kind, str) or not isinstance(label, str):
        again = f"read this again; partwise train --portfolio can {why}"
        return f"runs show {run.run_id}{where}", again
    words = f" --trainer {shlex.quote(kind)} --label {shlex.quote(label)}"
    if isinstance(features, list) and features:
        words += f" --features {shlex.quote(','.join(map(str, features)))}"
    return f"train {rows}{_keys(run)}{words} --portfolio {run.run_id}{where}", why


def _keys(run: Run) -> str:
    return f" --partition-by {shlex.quote(','.join(run.document.partition_by))}"


def _arguments(run: Run) -> Mapping[str, Any]:
    arguments = _call(run).get("arguments")
    return arguments if isinstance(arguments, Mapping) else {}


def _call(run: Run) -> Mapping[str, Any]:
    with suppress(PartwiseError):
        return run.read_generation_document().call or {}
    return {}


def _rows(run: Run) -> str | None:
    """Return the words that name the rows of a run's call; None: they are not a few plain files."""
    data = _call(run).get("data")
    if not isinstance(data, Mapping):
        return None
    paths, conditions = data.get("paths"), data.get("filter") or [[]]
    others = [name for name, value in data.items() if name not in _PLAIN and value]
    if others or not isinstance(paths, list) or not 1 <= len(paths) <= MOST_PATHS:
        return None
    if not isinstance(conditions, list) or not isinstance(conditions[0], list) or conditions[1:]:
        return None  # alternatives, which no option can say
    words = [shlex.quote(_shown_path(str(path))) for path in paths]
    for condition in conditions[0]:
        match condition:
            case [str(column), str(operator), str() | int() | float() | list() as value] if (
                '"' not in column
            ):
                text = f'"{column}" {operator} {json.dumps(value, ensure_ascii=False)}'
                words.append(f"--filter {shlex.quote(text)}")
            case _:
                return None  # a value that no option can say, or nothing of ours
    return " ".join(words)
