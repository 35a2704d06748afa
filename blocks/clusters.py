"""Where the work is done: Dask clusters to start here, or to connect to.

Each block's `client()` gives a connected `distributed.Client` and closes what it opened, also
when the body raises. What is started here listens on loopback addresses only, and lets nobody in
but the processes of its own run (TLS).

Dask's own log lines are silenced, since the flows report failures and deaths by partition. To see
them, set a level in Dask's configuration, such as `DASK_LOGGING__DISTRIBUTED=info`.
"""

import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, PrivateAttr, model_validator

from partwise.blocks.named_fields import BlockType, NamedFields
from partwise.cluster_calls import RESTART_S
from partwise.processes.worker_server import begin_worker_server

if TYPE_CHECKING:
    from distributed import Client
    from distributed import LocalCluster as DaskCluster
    from distributed.security import Security

LOGO = "process"
_DASHBOARD_ADDRESS = Field(
    default="",
    description=(
        "Where Dask's dashboard listens, such as 127.0.0.1:8787, for everyone who reaches it: it"
        " asks for no password. Empty: no dashboard."
    ),
)


class LocalCluster(NamedFields):
    """Worker processes on this machine, for the time of one run.

    Example:
        Load a saved cluster and use it:
        ```python
        from partwise import LocalCluster

        cluster = LocalCluster.load("BLOCK_NAME")
        with cluster.client() as client:
            print(client.submit(sum, [1, 2]).result())
        ```
    """

    block_type: ClassVar = BlockType(
        "Local Cluster",
        "local-cluster",
        "https://docs.dask.org/en/stable/deploying-python.html",
        LOGO,
    )

    shares_filesystem: ClassVar[bool] = True

    workers: int = Field(
        default=0,
        ge=0,
        description="How many worker processes, each with one thread. 0: one for each core.",
    )
    max_workers: int = Field(
        default=0,
        ge=0,
        description=(
            "Grow up to so many worker processes while there is work for them, and shrink again to"
            " as many as `workers` says, at least one. 0: their number stays as it is."
        ),
    )
    memory_limit_bytes: int = Field(
        default=0,
        ge=0,
        title="Memory limit (bytes)",
        description=(
            "Memory of one worker process above which Dask restarts it. The child process in which"
            " your function runs is not counted. 0: no limit."
        ),
    )
    dashboard_address: str = _DASHBOARD_ADDRESS

    @model_validator(mode="after")
    def _can_grow(self) -> "LocalCluster":
        check_growth(self.workers, self.max_workers)
        return self

    @contextmanager
    def client(self) -> Iterator["Client"]:
        """Start the workers and connect to them.

        Yields:
            A client of the new cluster. Both are closed when the context ends.
        """
        # Before Dask is imported, and beside it.
        begin_worker_server()
        import distributed
        from dask.system import CPU_COUNT

        from partwise.blocks.cluster_start import forked_environment, forked_workers, started

        fewest = self.workers or (1 if self.max_workers else CPU_COUNT)

        def start(options: dict[str, Any]) -> "DaskCluster":
            environment, forget_others = forked_environment()
            cluster = distributed.LocalCluster(
                n_workers=fewest,
                memory_limit=self.memory_limit_bytes,
                env=environment,
                **options | {"preload": [forget_others, *options["preload"]]},
            )
            if self.max_workers:
                # Dask closes idle workers only, and takes tasks for short ones until it has seen
                # some end: a worker for each shard that waits is what a shard is worth.
                cluster.adapt(minimum=fewest, maximum=self.max_workers, target_duration="100ms")
            return cluster

        with forked_workers, started(start, self.dashboard_address) as client:
            yield client


class CudaCluster(NamedFields):
    """One worker process for each GPU of this machine, for the time of one run.

    Needs the extra `cuda` and an NVIDIA driver. Each worker, and the child process in which your
    function runs, sees its own GPU as the first one.

    Example:
        Load a saved cluster and use it:
        ```python
        from partwise import CudaCluster

        cluster = CudaCluster.load("BLOCK_NAME")
        with cluster.client() as client:
            print(len(client.scheduler_info()["workers"]), "GPUs")
        ```
    """

    block_type: ClassVar = BlockType(
        "CUDA Cluster", "cuda-cluster", "https://docs.rapids.ai/api/dask-cuda/stable/", LOGO
    )

    shares_filesystem: ClassVar[bool] = True

    devices: str = Field(
        default="",
        pattern=r"^\s*([\w-]+(\s*,\s*[\w-]+)*)?\s*$",
        description="Numbers or UUIDs of the GPUs to use, separated by commas. Empty: all.",
    )
    dashboard_address: str = _DASHBOARD_ADDRESS
    _sharing: int = PrivateAttr(default=1)

    def shared_by(self, partitions: int) -> "CudaCluster":
        """Return it with room for so many partitions at once on each GPU."""
        shared = self.model_copy()
        shared._sharing = partitions
        return shared

    @contextmanager
    def client(self) -> Iterator["Client"]:
        """Start a worker for each GPU and connect to them.

        Yields:
            A client of the new cluster. Both are closed when the context ends.

        Raises:
            ImportError: The extra `cuda` is not installed.
            ConnectionError: There is no GPU here, or `devices` names one that cannot be used.
        """
        try:
            import pynvml
            from dask_cuda.local_cuda_cluster import LocalCUDACluster
        except ImportError as exc:
            raise ImportError(
                f"CudaCluster needs the extra 'cuda', of which {exc.name} is missing: "
                "install it with `pip install 'partwise[cuda]'`."
            ) from exc
        from partwise.blocks.cluster_start import started

        devices = [name.strip() for name in self.devices.split(",") if name.strip()]

        def start(options: dict[str, Any]) -> "DaskCluster":
            try:
                # Nothing of ours stays in Dask's memory, so there is nothing to spill.
                return LocalCUDACluster(
                    CUDA_VISIBLE_DEVICES=devices or None,
                    memory_limit=0,
                    device_memory_limit=0,
                    **options | {"threads_per_worker": self._sharing},
                )
            except (pynvml.NVMLError, ValueError) as exc:
                what = f"the GPUs {self.devices!r}" if devices else "GPUs"
                raise ConnectionError(
                    f"CudaCluster cannot use {what} on this machine ({exc}): see what `nvidia-smi` "
                    "lists, or use LocalCluster."
                ) from exc

        with started(start, self.dashboard_address) as client:
            yield client


class RemoteCluster(NamedFields):
    """A Dask cluster that somebody else started; it is left running.

    Whoever reaches a Dask scheduler can run code on its workers. So a plaintext address is refused
    unless it is on this machine, or `allow_plaintext` says that the network is trusted. The TLS
    files stay where they are: the block holds their paths only.

    Raises:
        InputError: The address is in plaintext and not allowed, or TLS files are missing.

    Example:
        Load a saved cluster and use it:
        ```python
        from partwise import RemoteCluster

        cluster = RemoteCluster.load("BLOCK_NAME")
        with cluster.client() as client:
            print(len(client.scheduler_info()["workers"]), "workers")
        ```
    """

    block_type: ClassVar = BlockType(
        "Remote Cluster", "remote-cluster", "https://docs.dask.org/en/stable/deploying.html", LOGO
    )

    address: str = Field(
        description="Where the scheduler listens, such as tls://scheduler.example.org:8786.",
    )
    tls_ca_file: str = Field(
        default="",
        title="TLS CA file",
        description="Path to the certificate of the authority that signed the cluster's (PEM).",
    )
    tls_cert_file: str = Field(
        default="",
        title="TLS certificate file",
        description="Path to the certificate that this client shows (PEM).",
    )
    tls_key_file: str = Field(
        default="",
        title="TLS key file",
        description="Path to the key of that certificate (PEM).",
    )
    connect_timeout_s: float = Field(
        default=30.0,
        gt=0,
        title="Connect time-out (s)",
        description="How many seconds to wait for the scheduler's answer.",
    )
    allow_plaintext: bool = Field(
        default=False,
        description="Allow tcp:// to another machine, on a network where everyone may run code.",
    )
    shares_filesystem: bool = Field(
        default=False,
        description="Whether the workers see this machine's files under the same paths.",
    )

    @model_validator(mode="after")
    def _is_safe(self) -> "RemoteCluster":
        address = urlsplit(self.address.strip())
        if address.scheme not in ("tls", "tcp") or not address.hostname or not _port(address):
            raise ValueError(
                f"{self.address!r} is not an address of a Dask scheduler: write tls://host:port, "
                "such as tls://scheduler.example.org:8786."
            )
        if address.scheme == "tls":
            files = {
                "tls_ca_file": self.tls_ca_file,
                "tls_cert_file": self.tls_cert_file,
                "tls_key_file": self.tls_key_file,
            }
            missing = ", ".join(name for name, path in files.items() if not path)
            if missing:
                raise ValueError(f"{self.address} needs {missing} as well: paths to PEM files.")
        elif not (self.allow_plaintext or is_loopback(address.hostname or "")):
            raise ValueError(
                f"{self.address} is in plaintext: anyone on the way could run code on the workers. "
                "Give a tls:// address, or set allow_plaintext on a network that you trust."
            )
        return self

    @contextmanager
    def client(self) -> Iterator["Client"]:
        """Connect to the scheduler.

        Yields:
            A client, closed when the context ends. The cluster goes on.

        Raises:
            ConnectionError: The scheduler does not answer, or not as one.
            FileNotFoundError: A TLS file is not there.
        """
        from partwise.blocks.cluster_start import connected, new_client, quiet

        address = self.address.strip().rstrip("/")
        security = self._security()
        try:
            client = new_client(address, self.connect_timeout_s, security)
        except OSError as exc:
            raise ConnectionError(
                f"No Dask scheduler answered at {address} within {self.connect_timeout_s:g} s: "
                "check that it runs, and that this machine may reach it."
            ) from exc
        # Else one that has lost its scheduler would be closed after the time-out for connecting.
        client._timeout = max(client._timeout, RESTART_S)
        with quiet(), connected(client):
            yield client

    def _security(self) -> "Security | None":
        if not self.address.strip().startswith("tls:"):
            return None
        for path in (self.tls_ca_file, self.tls_cert_file, self.tls_key_file):
            if not os.path.isfile(path):
                raise FileNotFoundError(
                    f"The TLS file {path!r} for {self.address} is not there: correct its path."
                )
        from distributed.security import Security

        return Security(
            tls_ca_file=self.tls_ca_file,
            tls_client_cert=self.tls_cert_file,
            tls_client_key=self.tls_key_file,
            require_encryption=True,
        )


def check_growth(workers: int, max_workers: int) -> None:
    """Refuse a cluster that would have to grow down."""
    if 0 < max_workers < workers:
        raise ValueError(
            f"max_workers is {max_workers}, and workers, the fewest, {workers}: raise "
            "max_workers, or give 0 for a number that stays as it is."
        )


def _port(address: SplitResult) -> int | None:
    try:
        return address.port
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is that of this machine for itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
