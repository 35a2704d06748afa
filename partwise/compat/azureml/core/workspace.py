"""A workspace: the store of its runs, and what the names of compute targets mean."""

from collections.abc import Mapping
from typing import Any

from partwise.errors import InputError


class Workspace:
    """Where runs lie, and clusters by the names of compute targets.

    Example:
        >>> Workspace.from_config().store
        'artifacts'

    Attributes:
        store: The artifact store of its runs, as the flows take it.
        compute_targets: By name a cluster, as `run_script` takes it.
    """

    def __init__(
        self,
        subscription_id: str = "",
        resource_group: str = "",
        workspace_name: str = "",
        *,
        store: Any = "artifacts",
        compute_targets: Mapping[str, Any] | None = None,
    ) -> None:
        if subscription_id or resource_group:
            raise InputError(
                "A workspace of partwise has no subscription and no resource group: give "
                "Workspace(store='a folder or a URL', compute_targets={'name': a cluster})."
            )
        self.name, self.store = workspace_name, store
        self.compute_targets = dict(compute_targets or {})

    @classmethod
    def from_config(cls, path: object = None, auth: object = None) -> "Workspace":
        """Return a workspace over the store `artifacts`; a config.json of theirs is not read."""
        del path, auth
        return cls()

    def cluster(self, target: Any) -> Any:
        """Return the cluster that a compute target means; "local" and none: of this machine.

        Raises:
            InputError: A name of theirs, which means no cluster here.
        """
        if target in (None, "", "local"):
            return ""
        if not isinstance(target, str):
            return target
        # Names of blocks and addresses have one; those of compute targets have none.
        if target not in self.compute_targets and "/" not in target:
            raise InputError(
                f"The compute target {target!r} means no cluster here: name one by "
                f"Workspace(compute_targets={{{target!r}: 'tcp://...'}}), its scheduler or a "
                "block such as 'remote-cluster/NAME'; 'local' is this machine."
            )
        return self.compute_targets.get(target, target)
