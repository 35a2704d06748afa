"""The options of every command that begins a run: how files are read, the run, where it works."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from partwise.engine.options import ExecutionOptions
from partwise.flows.cli.input_files import FileOptions
from partwise.flows.cli.options import ClusterOptions, Execution, FollowingRunOptions, RunOptions

if TYPE_CHECKING:
    from partwise.calls.call import CallKind


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FollowingCallOptions:
    """Those of a run that follows another one."""

    files: FileOptions = field(default_factory=FileOptions)
    run: FollowingRunOptions = field(default_factory=FollowingRunOptions)
    execution: Execution = field(default_factory=ExecutionOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)

    def arguments(self, kind: "CallKind", data: Sequence[str]) -> dict[str, Any]:
        """Return them as arguments of a flow.

        Args:
            kind: What the run does; one without a name gets a name by it.
            data: Where the rows come from.

        Raises:
            InputError: Options contradict each other.
        """
        return {
            "data": self.files.of(data),
            **self.run.arguments(kind),
            "execution": self.execution,
            "cluster": self.cluster.checked(),
        }


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CallOptions(FollowingCallOptions):
    """Those of a run with a seed of its own."""

    run: RunOptions = field(default_factory=RunOptions)
