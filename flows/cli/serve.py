"""`partwise serve`: answer over HTTP by the models of a catalog or a run."""

import os
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from partwise.flows.cli.exit_codes import FAILURE, TERMINATED
from partwise.flows.cli.options import Count, Names, StoreUrl

Positive = Parameter(validator=Number(gt=0))


def serve(
    reference: Annotated[str, Parameter(name="REFERENCE")],
    /,
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 8000,
    processes: Count = 1,
    api_key_file: str | None = None,
    also: tuple[int, ...] = (),
    fallback: Names = (),
    format: Literal["onnx", "native"] = "onnx",  # noqa: A002
    serde: str | None = None,
    cache_mib: Count = 128,
    warm: Literal["recent", "all", "none"] = "recent",
    poll_s: Annotated[float, Positive] = 5.0,
    timeout_s: Annotated[float, Positive] = 5.0,
    max_rows: Count = 100_000,
    metrics_keys: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    keep_requests: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.0,
    no_access_log: bool = False,
    store: StoreUrl = "artifacts",
) -> int:
    """Answer over HTTP by the models of a catalog or a run, each key by its own.

    Requests are those of the Open Inference Protocol (/v2/models/NAME/infer), or plain rows
    (/predict/NAME). A new version of a catalog is served as soon as it is seen. Needs the extra
    serve.

    Args:
        reference: What is served: catalog://sales, or run://ID.
        host: The address to listen at. Beyond loopback an API key is needed.
        port: The port to listen at.
        processes: So many processes share the port; each has its own models in memory.
        api_key_file: A file with the API key that requests have to show. Default: the variable
            PARTWISE_SERVE_API_KEY; without either nobody is asked for one.
        also: An earlier version that is served beside the newest; may be repeated.
        fallback: Models for keys that have none, such as catalog://regions, run://ID, or a number
            that is the answer; may be repeated, the first that knows a key answers.
        format: "onnx": exports that were proved; "native": the models as they were trained.
        serde: With --format native: the serde that may read the models where it runs code of
            theirs, such as pickle.
        cache_mib: How much memory models may take in each process.
        warm: Which models of a version are loaded before it is served: those that were asked
            recently, all, or none.
        poll_s: How often a newer version is looked for, in seconds.
        timeout_s: The most seconds for an answer.
        max_rows: The most rows of a request.
        metrics_keys: Count rows by key as well, for so many keys at most.
        keep_requests: Keep the rows and answers of this share of the requests in the store, such as
            0.01, for evaluate_predictions with inference_run_id served://NAME.
        no_access_log: Do not write a line for each request to stdout.
        store: A folder, or a URL such as s3://bucket/folder.
    """
    # Arrow's own allocator keeps 40 MiB of what it has once read a version with.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Here, since they import pyarrow.
    from partwise.serving import process
    from partwise.serving.served import PredictorOptions
    from partwise.serving.server_options import ServerOptions, read_api_key

    service = process.Service(
        reference=reference,
        store=store,
        predictor=PredictorOptions(
            format=format,
            serde=serde,
            fallback=tuple(map(_level, fallback)),
            also=also,
            cache_bytes=cache_mib * 2**20,
            warm=warm,
        ),
        options=ServerOptions(
            host=host,
            port=port,
            processes=processes,
            api_key=read_api_key(api_key_file),
            max_rows=max_rows,
            timeout_s=timeout_s,
            poll_s=poll_s,
            access_log=not no_access_log,
            metrics_keys=metrics_keys,
            keep_requests=keep_requests,
        ),
    )
    return TERMINATED if process.serve(service) else FAILURE


def _level(text: str) -> str | float:
    """Return a reference, or the number that is the answer."""
    try:
        return float(text)
    except ValueError:
        return text
