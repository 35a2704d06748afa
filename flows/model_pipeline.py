"""The flow from rows to proved exports and their predictions: four runs under one name."""

from dataclasses import replace

from partwise.calls.pipeline import PipelineCall
from partwise.flows.export_models import export_models
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.run_inference import run_inference
from partwise.flows.running.connections import open_data
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.train_models import train_models
from partwise.flows.validate_exports import validate_exports
from partwise.planning.refusals import check_inference, check_stages
from partwise.runs.pipeline import Pipeline
from partwise.tasks.flow_run import flow_run_count
from partwise.tasks.publish_pipeline import publish_pipeline
from partwise.tasks.steps import try_step


@run_flow(PipelineCall, name="model-pipeline")
def model_pipeline(call: PipelineCall) -> Pipeline:
    """Train a model per partition, export each, prove the files, and infer with them.

    Four runs, one after another: <run_id>-train, -export, -validate and -infer. A stage that does
    nothing, or exceeds the failure budget of `execution`, ends the pipeline. Called again with
    "resume", each stage runs only what is not done or has changed.

    Example:
        >>> trainer = LightGBMTrainer(label="sales")  # doctest: +SKIP
        >>> done = model_pipeline("sales.parquet", "store", trainer, run_id="mon")  # doctest: +SKIP
        >>> done.inference.predictions()  # doctest: +SKIP

    Returns:
        The four runs. The status is PARTIAL_FAILURE where a partition failed in any, SKIPPED where
        a stage skipped all, else SUCCESS.

    Raises:
        InputError: An argument cannot be used.
        ExportRefusedError: The models of this trainer cannot be exported so.
        RunExistsError: A run of the pipeline exists, and on_existing_artifacts is "error".
        RunFailedError: A stage did none of its partitions, or exceeded the failure budget; carries
            its run.
        RunCancelledError: The pipeline was cancelled; what was committed is kept.
    """
    check_stages(call)
    # All stages read the version of a dataset that is the newest now.
    data, used = open_data(call.data, call.store), open_data(call.inference_data, call.store)
    call = replace(call, data=data, inference_data=used)
    check_inference(call, earlier_keys(call.training()))
    if flow_run_count() > 1:
        # A flow run that is begun again goes on with its own runs.
        call = replace(call, on_existing_artifacts="resume")
    trained = train_models(**vars(call.training()))
    exported = export_models(**vars(call.exporting(trained.run_id)))
    proved = validate_exports(**vars(call.validating(exported.run_id)))
    inferred = run_inference(**vars(call.inferring(exported.run_id)))
    done = Pipeline(
        call.run_id, training=trained, export=exported, validation=proved, inference=inferred
    )
    try_step(publish_pipeline, done)
    return done
