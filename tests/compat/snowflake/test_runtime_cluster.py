"""Snowflake's control of a cluster: of one that is named, or of this machine."""

from typing import Any

import pytest

from partwise.compat.snowflake.ml.runtime_cluster import (
    get_cluster_size,
    get_nodes,
    scale_cluster,
)
from partwise.errors import InputError


def test_without_a_cluster_there_is_this_machine() -> None:
    with pytest.warns(UserWarning, match="did nothing"):
        assert scale_cluster(3, notebook_name="n") is True
    (node,) = get_nodes()
    assert list(node) == ["name", "cpus", "gpus"]
    assert node["cpus"] >= get_cluster_size() == 1


def test_a_cluster_that_is_named_is_scaled(dask_client: Any) -> None:
    address = dask_client.scheduler.address
    (node,) = get_nodes(address)
    threads = dask_client.nthreads()
    assert node["cpus"] == sum(threads.values())
    assert scale_cluster(len(threads), cluster=address) is True
    with pytest.raises(InputError, match="timeout_s 'x'"):
        scale_cluster(2, options={"rollback_after_seconds": "x"}, cluster=address)
    with pytest.raises(InputError, match="is_async"):
        scale_cluster(2, is_async=True, cluster=address)
