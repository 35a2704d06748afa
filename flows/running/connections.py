"""What a call names outside of us, opened: its store, its cluster, its databases."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from partwise.blocks import (
    CudaCluster,
    CustomCluster,
    FilesBlock,
    LocalCluster,
    QueryBlock,
    RemoteCluster,
    TableBlock,
)
from partwise.calls.call import RowsCall
from partwise.calls.one_model import DistributedCall, TuneCall
from partwise.datasets.dataset import resolve_references
from partwise.engine.scaling import ClusterWorker, cluster_workers, sharing
from partwise.errors import ClusterError, InputError
from partwise.flows.orchestration.block_parameters import (
    Cluster,
    ClusterParameter,
    OutputParameter,
    StoreParameter,
)
from partwise.flows.orchestration.saved_blocks import keys_of, load_block, names_block, open_store
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.output import Output
from partwise.publishing.sql_output import Table
from partwise.redaction import remember
from partwise.sources.descriptions import Source
from partwise.sources.files.file_set import Files
from partwise.sources.files.remote_files import bucket_of
from partwise.sources.opening import open_source
from partwise.sources.references import is_reference
from partwise.sources.sql.query import Query
from partwise.store.credentials import set_credentials

if TYPE_CHECKING:
    from distributed import Client

_CLUSTERS = (LocalCluster, CudaCluster, RemoteCluster, CustomCluster)
_ADDRESSES = ("tcp://", "tls://")
_connected: set[int] = set()
"""The number of this process, and of those that it was forked from, which worked with a cluster."""


def open_data(data: Any, store: StoreParameter) -> Any:
    """Return what a caller gives as data, with datasets of the store in place of their names."""
    return resolve_references(open_rows(data), lambda: open_store(store))


def open_rows_of(call: RowsCall) -> Source:
    """Open the rows of a call: its columns of them, under its filter."""
    data = open_data(call.data, call.store)
    return open_source(data, columns=call.columns or None, filter=call.filter or None)


def open_eval_rows(call: DistributedCall | TuneCall) -> dict[str, Source]:
    """Open the rows that a model is measured on, by name."""
    given = dict(call.eval_data).items()
    return {name: open_source(open_data(each, call.store)) for name, each in given}


def open_rows(data: Any) -> Any:
    """Return what `open_source` takes for the rows that a caller names: a block's plain value.

    They may be named by a `FilesBlock` or `QueryBlock`, the name of one that is saved
    ("files-block/sales", "query-block/shop"), a mapping as a form sends it for files, or a list of
    these. Anything else is returned as it is.
    """
    if isinstance(data, list | tuple) and len(data) == 1:
        # As the command line has it.
        return open_rows(data[0]) if names_block(data[0], QueryBlock) else [open_rows(data[0])]
    if isinstance(data, list | tuple):
        return [open_rows(item) for item in data]
    if isinstance(data, Mapping):
        return Files.from_recipe(data)
    if names_block(data, FilesBlock):
        data = load_block(FilesBlock, data)
    if isinstance(data, FilesBlock):
        return _files(data)
    if names_block(data, QueryBlock):
        data = load_block(QueryBlock, data)
    if not isinstance(data, QueryBlock):
        return data
    return Query(
        data.query,
        data.uri,
        driver=data.driver,
        order_by=tuple(data.order_by),
        password=_password(data),
        block=data.saved_name,
    )


def open_output(output: OutputParameter) -> Output | None:
    """Return where a caller wants rows besides the run; none: nowhere.

    It may be named by a `TableBlock`, the name of one that is saved ("table-block/prod"), a
    `Table`, or the name of a dataset, "dataset://forecasts".
    """
    if isinstance(output, Table | DatasetOutput):
        return output
    if not output:
        return None
    if isinstance(output, str) and is_reference(output):
        return DatasetOutput.of(output)
    if names_block(output, TableBlock):
        output = load_block(TableBlock, output)
    if not isinstance(output, TableBlock):
        # Not repeated: it may be a URI with a password.
        raise InputError(
            f"The output is not a block's name ({TableBlock.block_type.slug}/<name>), a "
            "dataset (dataset://<name>), a TableBlock or a partwise.Table."
        )
    return Table(
        output.table,
        output.uri,
        driver=output.driver,
        password=_password(output),
        block=output.saved_name,
    )


def _password(block: QueryBlock | TableBlock) -> str | None:
    if block.password is None:
        return None
    password = block.password.get_secret_value()
    remember([password])
    return password


def _files(block: FilesBlock) -> Files:
    files = Files(
        block.paths,
        format=block.format or None,
        schema=block.schema_policy,
        types=block.types,
        file_column=block.file_column or None,
        version=block.version or None,
        csv=block.csv,
        excel=block.excel,
        endpoint_url=block.endpoint_url,
        region=block.region,
        profile=block.profile,
    )
    if keys := keys_of(block):
        for bucket in {bucket_of(path) for path in files.names if "://" in path}:
            set_credentials(bucket, keys)
    return files


def open_cluster(cluster: ClusterParameter, gpus: float | None = None) -> Cluster:
    """Return the cluster that a caller names, with room for all that share a GPU.

    `gpus` is what a partition is to have.

    Raises:
        InputError: There is none of that name.
        ClusterError: This process was forked from one that has worked with a cluster.
    """
    if _connected - {os.getpid()}:
        # Dask's threads are not in it, and neither are ours: it would wait for them for ever.
        raise ClusterError(
            "This process was forked from one that had worked with a cluster, whose threads it "
            "lacks: start it by another method, such as multiprocessing.get_context('spawn')."
        )
    opened = _open_cluster(cluster)
    return opened.shared_by(sharing(gpus)) if isinstance(opened, CudaCluster) else opened


def _open_cluster(cluster: ClusterParameter) -> Cluster:
    """Return the cluster that a caller names; none, or "local": the cores of this machine.

    It may be named by a block, the name of one that is saved ("cuda-cluster/big"), or the address
    of a scheduler ("tcp://10.0.0.7:8786").
    """
    if not cluster or cluster == "local":
        return LocalCluster()
    if not isinstance(cluster, str):
        return cluster
    if cluster.startswith(_ADDRESSES):
        return RemoteCluster(address=cluster)
    slugs = {kind.block_type.slug: kind for kind in _CLUSTERS}
    kind = slugs.get(cluster.partition("/")[0])
    if kind is None:
        raise InputError(
            f"The cluster {cluster!r} is not a block's name ({', '.join(slugs)}, each with "
            "/<name>) or a scheduler's address (tcp://... or tls://...)."
        )
    loaded: Cluster = load_block(kind, cluster)
    return loaded


@contextmanager
def connect(cluster: Cluster) -> Iterator["Client"]:
    """Give a client of the cluster, which stands for the time of the block."""
    _connected.add(os.getpid())
    with ExitStack() as stack:
        try:
            client = stack.enter_context(cluster.client())
        except (OSError, ImportError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"The {type(cluster).__name__} cannot be started or reached: {error}"
            ) from error
        # Outside of `try`: what the block raises says nothing of the cluster.
        yield client


def workers_at_most(cluster: Cluster, client: "Client") -> list[ClusterWorker]:
    """Return the workers of a cluster, those included that it may start while a run is at work."""
    workers = cluster_workers(client)
    most = cluster.max_workers if isinstance(cluster, LocalCluster | CustomCluster) else 0
    numbers = range(len(workers), most if workers else 0)
    # The GPUs of the machine are counted with the workers that are there.
    to_come = [replace(workers[0], address=f"to come: {number}", gpus=()) for number in numbers]
    return workers + to_come
