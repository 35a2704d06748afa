"""Loading what children find loaded, before there are any."""

from partwise.engine.worker.child import CHILD
from partwise.engine.worker.machine_slots import thread_variables
from partwise.processes.machine_server import MACHINE_SERVERS
from partwise.processes.warm_server import Preloaded
from partwise.processes.worker_server import worker_variables


def preload_here(modules: tuple[str, ...], cpus: int) -> Preloaded:
    """Begin to load for the children of workers that this process starts; do not wait.

    Where a worker's variables turn out to be others, as by Dask's configuration, it loads itself.
    """
    variables = worker_variables() | thread_variables(cpus)
    return Preloaded(modules=modules, token=MACHINE_SERVERS.begin(CHILD, variables, modules))
