"""The packages that a flow's function asks for, resolved before anything of the run is begun."""

from collections.abc import Mapping

from prefect.runtime import flow_run

from partwise.environments.beside import resolve_beside
from partwise.environments.environment import Environment
from partwise.environments.resolution import resolve
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import RunNotFoundError
from partwise.flows.running.connections import open_store
from partwise.flows.running.parameters import StoreParameter
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run


def resolve_packages(
    environment: Environment, run_id: str, store: StoreParameter, on_existing: OnExisting
) -> ResolvedEnvironment | None:
    """Find a version of each package that is asked for; None: none is.

    A run that goes on has the versions that it had, as far as they still fit what is asked: newer
    ones would be changed code, and run all partitions again.

    Raises:
        PackageError: There are none that fit, or partwise does not work with them.
    """
    if not environment.is_own:
        return None
    return resolve_beside(environment, _earlier_versions(run_id, store, on_existing))


def resolve_script_packages(
    environment: Environment, run_id: str, store: StoreParameter, on_existing: OnExisting
) -> ResolvedEnvironment:
    """Find a version of each package of a script, which has none of the workers' own.

    A run that goes on has the versions that it had, as `resolve_packages` says.

    Raises:
        PackageError: There are none that fit.
    """
    if not environment.is_own:
        return resolve(environment)
    earlier = dict(_earlier_versions(run_id, store, on_existing))
    # These stand beside the packages, and are none.
    for name in ("python", "platform"):
        earlier.pop(name, None)
    return resolve(environment, earlier)


def _earlier_versions(
    run_id: str, store: StoreParameter, on_existing: OnExisting
) -> Mapping[str, str]:
    """Return the versions that the run has, where this call goes on with it."""
    try:
        run = Run.open(run_id, open_store(store))
    except RunNotFoundError:
        return {}
    if not run.generation:
        return {}
    document = run.read_generation_document()
    # A flow run that is begun again goes on with its own run.
    is_own = flow_run.id is not None and document.flow_run_id == flow_run.id
    return document.environment if on_existing == "resume" or is_own else {}
