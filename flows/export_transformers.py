"""The flow that exports a collection of Hugging Face models, and proves each file."""

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import SkipJsonSchema

from partwise.engine.options import ExecutionOptions
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.execute_shards import execute
from partwise.flows.running.parameters import (
    DEFAULT_EXECUTION,
    ClusterParameter,
    StoreParameter,
    VersionParameter,
)
from partwise.flows.running.prepare import Request
from partwise.flows.running.prepare_exports import prepare_collection
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run
from partwise.transformers.collection import TransformersExport, read_exports

Export = TransformersExport | SkipJsonSchema[tuple[Any, ...]] | SkipJsonSchema[dict[str, Any]]


@run_flow(name="export-transformers", kind="export-transformers", opaque=())
def export_transformers(
    models: Sequence[Export],
    *,
    run_id: str = "",
    store: StoreParameter = "artifacts",
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: ClusterParameter = "",
) -> Run:
    """Export models of transformers, each a partition, and prove each file before it is kept.

    A file is compared with its model at sizes that it was not captured with, unless it is fixed to
    its own, as all for neuron and some of torchscript are: to the batch_size and sequence_length of
    the options. A model whose file gives anything else is FAILED with TransformersMismatch, one
    that cannot be captured with ExportRefused; of neither is a file kept, and the others go on. A
    process has one model at a time, and a worker as many as it has slots.

    Example:
        >>> models = [("models/bert", "masked-lm"), ("models/gpt2", "causal-lm")]
        >>> run = export_transformers(models, run_id="hub-1")  # doctest: +SKIP
        >>> run.model("bert-masked-lm").run(feeds)  # doctest: +SKIP

    Args:
        models: What to export: TransformersExport, mappings of its fields, or tuples of the
            model's folder, its feature and TransformersOptions. In place of a folder, the ID of a
            model on the hub is fetched here, before the run: workers have to share this machine's
            cache folder of the hub.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        version: Your own word: a resume with another one exports all models anew.
        on_existing_artifacts: When the run exists: "error", "overwrite" all of it, or "resume":
            keep the models whose files, feature, options and libraries are those of a finished one.
        execution: Retries, limits, failure budget.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.

    Returns:
        The run, with the names of the models as keys. Its status is SUCCESS or PARTIAL_FAILURE.

    Raises:
        InputError: An argument cannot be used, or a model has no such feature; nothing was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No model was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
    """
    plan = prepare_collection(
        read_exports(models),
        Request(
            run_id=run_id,
            execution=execution,
            on_existing=on_existing_artifacts,
            version=version,
        ),
    )
    return execute(plan, store, cluster)
