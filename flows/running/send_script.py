"""A call of a script that is carried out in a work pool, on machines that see none of its files.

The source directory and the inputs that are paths here go to the folder of the run in the store,
where `partwise runs gc` finds them; requirements are sent as lines.
"""

import logging
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from partwise.calls.script import ScriptCall
from partwise.environments.requirement_files import without_files
from partwise.errors import InputError
from partwise.flows.running.script_inputs import is_path
from partwise.flows.running.work_pool import call_in_work_pool
from partwise.planning.script import (
    check_call,
    check_script,
    store_source,
    take_code,
    warnings_of_paths,
)
from partwise.runs.run import Run
from partwise.scripts.inputs import SharedPath, find_path, send_input
from partwise.store.store import Store

logger = logging.getLogger(__name__)


def send_script(call: ScriptCall, store: Store) -> Run:
    """Carry out a call of `run_script` in a work pool, with the files that it names here.

    Of its inputs, a path is one of this machine, and file:// names one of the machine that carries
    out the call; files of its environment are read here.

    Raises:
        InputError: The call contradicts itself, names a file that is not here, or cannot be sent
            there; nothing was written.
        PackageError: A file of the environment cannot be read.
        ServiceError: The flow run ended without a run, or cannot be followed any more.
    """
    check_call(call, call.inputs)
    code = take_code(call, store)
    check_script(call, code)
    for warning in warnings_of_paths(call, code):
        logger.warning("Run %s: %s", call.run_id, warning)
    paths = {name: _find(name, given) for name, given in call.inputs.items() if is_path(given)}
    packages = without_files(call.environment)
    if packages.has_password:
        raise InputError(
            "environment= holds a password, which would be in Prefect's database: have uv find it "
            "on the machines of the work pool, in UV_INDEX_URL or in a .netrc file."
        )
    stays = {name: given for name, given in call.inputs.items() if name not in paths}
    arguments = replace(call, inputs=stays, environment=packages).parameters()
    target, infrastructure = arguments.pop("cluster"), arguments.pop("infrastructure")

    def stage() -> dict[str, Any]:
        brought = {name: send_input(found, store, call.run_id) for name, found in paths.items()}
        return {
            "source_directory": store_source(call, code, store),
            "inputs": {**stays, **brought},
        }

    return call_in_work_pool("run-script", arguments, target, infrastructure, stage)


def _find(name: str, given: str | PurePath) -> SharedPath:
    found = find_path(str(given))
    if found is None:
        raise InputError(
            f"The input {name!r}, {given}, is not on this machine, from which it would be sent; "
            f"file://{given} names it on the machines of the work pool."
        )
    return found
