"""Checks of a machine, a store, a cluster and Prefect's server: are they fit for work?"""

import importlib
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import Requirement

from partwise.cluster_calls import ANSWER_S, ask_workers, known_workers
from partwise.errors import ClusterError, PartwiseError, ServiceError
from partwise.formatting import duration, shortened, size
from partwise.store.store import Store

if TYPE_CHECKING:
    from partwise.flows.orchestration.block_parameters import Cluster

CONNECT_TIMEOUT_S = 5.0
STORE_S = 60.0
"""A worker may take so long to reach the store; that is tried twice."""
FEWEST_FILES = 1024
LEAST_SCRATCH_BYTES = 10 * 10**9
SHOWN = ("prefect", "dask", "distributed", "pyarrow", "numpy", "lightgbm", "xgboost", "torch")
LIBRARIES = ("lightgbm", "xgboost")
SAME_ON_WORKERS = ("partwise", "distributed", "cloudpickle", "numpy", "pyarrow")
WHAT_OTHERS_DO: dict[str, str] = {
    "prefect": "partwise was measured on 3.8",
    "fastapi": "with newer ones Prefect's server does not start, or refuses deployments",
    "sqlalchemy": "2.1 silently stops all schedules of Prefect's server",
    "fsspec": "older ones lose create-only writes of small files on S3",
    "s3fs": "older ones lose create-only writes of small files on S3",
    "lightgbm": "older ones overflow the heap when they read a crafted model (CVE-2024-43598)",
    "xgboost": "older ones forget the categories of a frame",
    "torch": "older ones can be made to run code by a model file (CVE-2025-32434)",
}
"""What versions that partwise does not allow are known to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    what: str
    verdict: Literal["good", "bad", "neutral"]
    text: str
    remedy: str = ""
    """What to do where the verdict is bad."""


def check_installation(store: Store | str, cluster: "Cluster") -> Iterator[Finding]:
    """Check packages, machine, GPUs, store, cluster and Prefect's server, in this order.

    Of a local cluster, a single worker is started.
    """
    yield from _versions()
    yield from _machine()
    yield _gpus()
    opened, finding = _store(store)
    yield finding
    yield from _cluster(cluster, opened)
    yield find_prefect_server()


def _versions() -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding(what="python", verdict="good", text=f"{python} ({sys.executable})")
    yield Finding(what="partwise", verdict="good", text=metadata.version("partwise"))
    told = set()
    for text in metadata.requires("partwise") or ():
        requirement = Requirement(text)
        optional = requirement.marker is not None and not requirement.marker.evaluate()
        finding = compare_version(requirement, optional)
        if finding is None or finding in told:
            continue  # several extras ask for the same
        told.add(finding)
        if finding.verdict == "bad" or requirement.name in SHOWN:
            yield finding
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:
            remedy = "LightGBM and XGBoost need the GNU OpenMP library: apt-get install libgomp1"
            yield Finding(what=name, verdict="bad", text=shortened(str(error)), remedy=remedy)


def compare_version(requirement: Requirement, optional: bool) -> Finding | None:
    """Compare an installed package with what partwise allows; None for an absent optional one."""
    name = requirement.name
    install = f"pip install '{name}{requirement.specifier}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        if optional:
            return None
        return Finding(what=name, verdict="bad", text="is not installed", remedy=install)
    if requirement.specifier.contains(version, prereleases=True):
        return Finding(what=name, verdict="good", text=version)
    why = WHAT_OTHERS_DO.get(name, "others were not tried")
    text = f"{version}, and partwise needs {requirement.specifier}: {why}"
    return Finding(what=name, verdict="bad", text=text, remedy=install)


def _machine() -> Iterator[Finding]:
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    yield Finding(what="CPUs", verdict="good", text=f"{CPU_COUNT}, each with a worker by default")
    yield Finding(what="memory", verdict="good", text=size(MEMORY_LIMIT or 0))
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    little = free < LEAST_SCRATCH_BYTES
    yield Finding(
        what="disk",
        verdict="neutral" if little else "good",
        text=f"{size(free)} free in {folder}, where rows are sharded",
        remedy="set TMPDIR to a folder with room for the source, twice" if little else "",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # -1 means that there is no limit.
    few = 0 <= hard < FEWEST_FILES
    yield Finding(
        what="open files",
        verdict="bad" if few else "good",
        text=f"{soft:,} at once, {hard:,} on request" if hard >= 0 else f"{soft:,} at once",
        remedy=f"raise the limit to {FEWEST_FILES:,}: ulimit -Hn {FEWEST_FILES}" if few else "",
    )


def _gpus() -> Finding:
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        return Finding(what="GPUs", verdict="neutral", text="not looked for: no extra 'cuda'")
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        texts = [
            f"{pynvml.nvmlDeviceGetName(handle)} "
            f"({size(pynvml.nvmlDeviceGetMemoryInfo(handle).total)})"
            for handle in handles
        ]
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        return Finding(what="GPUs", verdict="neutral", text=f"none seen ({error})")
    if not texts:
        return Finding(what="GPUs", verdict="neutral", text="none")
    return Finding(what="GPUs", verdict="good", text=f"{', '.join(texts)}, driver {driver}")


def _store(given: Store | str) -> tuple[Store | None, Finding]:
    try:
        store = Store.of(given)
        store.check_writable()
    except PartwiseError as error:
        return None, Finding(what="store", verdict="bad", text=str(error))
    return store, Finding(what="store", verdict="good", text=f"{store.url} can be written")


def _cluster(cluster: "Cluster", store: Store | None) -> Iterator[Finding]:
    from partwise.blocks import CustomCluster, LocalCluster, RemoteCluster
    from partwise.flows.running.connections import connect

    if isinstance(cluster, LocalCluster):
        cluster = LocalCluster(workers=1)
    is_remote = isinstance(cluster, RemoteCluster)
    if is_remote and "connect_timeout_s" not in cluster.model_fields_set:
        cluster = cluster.model_copy(update={"connect_timeout_s": CONNECT_TIMEOUT_S})
    began = time.monotonic()
    try:
        with connect(cluster) as client:
            workers = len(ask_workers(client, os.getpid, limit_s=ANSWER_S))
            if not workers:
                raise ClusterError(f"None of its workers has answered within {ANSWER_S:.0f} s.")
            match cluster:
                case RemoteCluster():
                    where = cluster.address
                case CustomCluster():
                    where = cluster.cluster_class
                case _:
                    where = "this machine"
            seconds = duration(time.monotonic() - began)
            text = f"{where}: {workers} of its workers answered within {seconds}"
            yield Finding(what="cluster", verdict="good", text=text)
            if isinstance(cluster, RemoteCluster | CustomCluster):
                yield from _workers(client, store)
    except PartwiseError as error:
        yield Finding(what="cluster", verdict="bad", text=str(error))


def _workers(client: Any, store: Store | None) -> Iterator[Finding]:
    """See that the workers have our versions, and reach the store."""
    answers = ask_workers(client, platform.python_version)
    yield _compare("python", answers, platform.python_version())
    for name in SAME_ON_WORKERS:
        answers = ask_workers(client, metadata.version, name)
        yield _compare(name, answers, metadata.version(name))
    if store is not None:
        # One after the other, as each makes the folder and takes it away again.
        errors = []
        for worker in known_workers(client):
            answers = ask_workers(client, store.check_writable, workers=[worker], limit_s=STORE_S)
            silent = TimeoutError(f"{worker} did not answer within {STORE_S:.0f} s")
            if (error := answers.get(worker, silent)) is not None:
                errors.append(error)
        text = f"workers: {errors[0]}" if errors else "the workers can write it"
        yield Finding(what="store", verdict="bad" if errors else "good", text=text)


def _compare(name: str, answers: dict[str, Any], ours: str) -> Finding:
    """Compare the version of a package on all workers with our own."""
    others = sorted({str(answer) for answer in answers.values()} - {ours})
    if not others:
        return Finding(what=name, verdict="good", text=f"{ours} on {len(answers)} workers, as here")
    return Finding(
        what=name,
        verdict="bad",
        text=f"{ours} here, but {', '.join(others)} on workers",
        remedy="install the same versions there, as with -c constraints.txt",
    )


def find_prefect_server() -> Finding:
    """See which server is named, by what, and whether it answers and lets us in."""
    from prefect.settings import PREFECT_API_URL

    from partwise.flows.operations.services import ANSWER_TIMEOUT_S, answers
    from partwise.flows.orchestration.server_client import server_client

    url = PREFECT_API_URL.value()
    if url is None:
        text = "no PREFECT_API_URL: runs need none, and none shows them"
        return Finding(what="Prefect server", verdict="neutral", text=text)
    is_set = "PREFECT_API_URL" in os.environ
    by = "PREFECT_API_URL" if is_set else "Prefect's profile or a file in this folder"
    if not answers(url):
        return Finding(
            what="Prefect server",
            verdict="bad",
            text=f"{url}, which {by} names, does not answer within {ANSWER_TIMEOUT_S:g} s",
            remedy="start it (prefect server start), or unset PREFECT_API_URL to run without one",
        )
    try:
        # What answers above lets everybody in; this asks for the password.
        with server_client(url, "refused to say what it has") as client:
            client.read_work_pools(limit=1)
    except ServiceError as error:
        return Finding(what="Prefect server", verdict="bad", text=str(error))
    return Finding(what="Prefect server", verdict="good", text=f"{url}, which {by} names, answers")
