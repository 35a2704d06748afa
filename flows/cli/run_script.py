"""`partwise run-script`: a training script, or any command, on nodes x processes."""

from typing import Annotated

from cyclopts import Group, Parameter

from partwise.calls.script import ScriptCall
from partwise.flows.cli.command import Read, command_of
from partwise.scripts.infrastructure import Infrastructure

SCRIPT, PROCESSES = Group("Script", sort_key=0), Group("Processes", sort_key=1)
WORK_POOL = Group("Work pool", sort_key=6)
_OF_PROCESSES = (
    *("nodes", "ranks_per_node", "cpus", "gpus", "backend", "timeout_s", "grace_s"),
    *("join_timeout_s", "max_retries"),
)

run_script = command_of(
    ScriptCall,
    """Run a training script or a command as processes on several machines.

    The arguments of the script stand behind "--": partwise run-script train.py -- --epochs 3.
    """,
    group=SCRIPT,
    groups=dict.fromkeys(_OF_PROCESSES, PROCESSES),
    places={"entry_script": "SCRIPT", "arguments": "ARGUMENTS"},
    types={
        "arguments": Annotated[
            str,
            Read(value=list, is_rest=True),
            Parameter(
                help='Its arguments, behind "--". {inputs.NAME}, {outputs}, {checkpoints} and '
                "{resume_from} in them stand for paths, $RANK, $LOCAL_RANK, $NODE_RANK, "
                "$WORLD_SIZE, $MASTER_ADDR and $MASTER_PORT for their values.",
            ),
        ],
        "infrastructure": Annotated[Infrastructure, Parameter(group=WORK_POOL)],
    },
)
