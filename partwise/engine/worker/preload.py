"""What the process that Dask workers are forked from imports; nobody else imports this module."""

import os
from importlib import import_module

from partwise.processes.garbage import never_collected
from partwise.processes.starting import become_child

_MODULES = (
    "distributed.nanny",
    # pyarrow imports it with the first array that is made of values, or gives them to numpy.
    "pandas",
    "partwise.engine.worker.shard_run",
    "partwise.engine.worker.tasks",
    "partwise.shuffle.write",
    "partwise.trainers",
)

# Ctrl-C, and the SIGTERM by which Prefect cancels a flow run, reach all processes of a group. Were
# this one ended, its workers would count as dead.
os.setpgid(0, 0)
become_child(os.getppid())
with never_collected():
    for _name in _MODULES:
        import_module(_name)
    from partwise.engine.scaling import own_version

    # Which looks through the folder of all packages, and is asked of each worker.
    own_version()
