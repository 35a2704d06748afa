"""The packages that a flow's function asks for, resolved before anything of the run is begun."""

from prefect.runtime import flow_run

from partwise.environments.beside import resolve_beside
from partwise.environments.environment import Environment
from partwise.environments.resolution import ResolvedEnvironment
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
    earlier: dict[str, str] = {}
    try:
        run = Run.open(run_id, open_store(store))
        if run.generation:
            document = run.read_generation_document()
            # A flow run that is begun again goes on with its own run.
            is_own = flow_run.id is not None and document.flow_run_id == flow_run.id
            if on_existing == "resume" or is_own:
                earlier = document.environment
    except RunNotFoundError:
        pass
    return resolve_beside(environment, earlier)
