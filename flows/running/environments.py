"""The packages that a flow's function asks for, resolved before anything of the run is begun."""

from collections.abc import Mapping

from partwise.calls.call import Call
from partwise.calls.one_model import DistributedCall
from partwise.calls.partitions import FunctionCall
from partwise.calls.script import ScriptCall
from partwise.choices import GOES_ON
from partwise.environments.beside import resolve_beside
from partwise.environments.resolution import resolve
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import RunNotFoundError
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.runs.run import Run
from partwise.tasks.flow_run import flow_run_id


def resolve_packages(call: FunctionCall | DistributedCall) -> ResolvedEnvironment | None:
    """Find a version of each package that a call asks for; None: it asks for none.

    A run that goes on has the versions that it had, as far as they still fit what is asked: newer
    ones would be changed code, and run all partitions again.
    """
    if not call.environment.is_own:
        return None
    return resolve_beside(call.environment, _earlier_versions(call))


def resolve_script_packages(call: ScriptCall) -> ResolvedEnvironment:
    """Find a version of each package of a script, which has none of the workers' own.

    A run that goes on has the versions that it had, as `resolve_packages` says.
    """
    if not call.environment.is_own:
        return resolve(call.environment)
    earlier = dict(_earlier_versions(call))
    # These stand beside the packages, and are none.
    for name in ("python", "platform"):
        earlier.pop(name, None)
    return resolve(call.environment, earlier)


def _earlier_versions(call: Call) -> Mapping[str, str]:
    """Return the versions that the run has, where this call goes on with it."""
    try:
        run = Run.open(call.run_id, open_store(call.store))
    except RunNotFoundError:
        return {}
    if not run.generation:
        return {}
    document = run.read_generation_document()
    # A flow run that is begun again goes on with its own run.
    is_own = document.flow_run_id is not None and document.flow_run_id == flow_run_id()
    goes_on = call.on_existing_artifacts in GOES_ON or is_own
    return document.environment if goes_on else {}
