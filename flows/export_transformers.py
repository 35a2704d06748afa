"""The flow that exports a collection of Hugging Face models, and proves each file."""

from partwise.calls.exports import TransformersCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.execute_shards import execute
from partwise.planning.exports import prepare_collection
from partwise.runs.run import Run
from partwise.transformers.collection import read_exports


@run_flow(TransformersCall, name="export-transformers")
def export_transformers(call: TransformersCall) -> Run:
    """Export models of transformers, each a partition, and prove each file before it is kept.

    A file is compared with its model at sizes that it was not captured with, unless it is fixed to
    its own, as all for neuron and some of torchscript are: to the batch_size and sequence_length of
    the options. A model whose file gives anything else is FAILED with TransformersMismatchError,
    one that cannot be captured with ExportRefusedError; of neither is a file kept, and the others
    go on. A process has one model at a time, and a worker as many as it has slots.

    Example:
        >>> models = [("models/bert", "masked-lm"), ("models/gpt2", "causal-lm")]
        >>> run = export_transformers(models, run_id="hub-1")  # doctest: +SKIP
        >>> run.model("bert-masked-lm").run(feeds)  # doctest: +SKIP

    Returns:
        The run, with the names of the models as keys. Its status is SUCCESS or PARTIAL_FAILURE.

    Raises:
        InputError: An argument cannot be used, or a model has no such feature; nothing was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No model was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
    """
    plan = prepare_collection(call, read_exports(call.models))
    return execute(plan, call.store, call.cluster)
