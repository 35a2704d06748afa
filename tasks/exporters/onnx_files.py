"""ONNX files: what stands in their metadata, and how they are written."""

from pathlib import Path
from typing import Any

from partwise.tasks.exporters.signature import METADATA_KEY, Signature

PRODUCER = "partwise"


def save_onnx(model: Any, signature: Signature, file_path: str) -> None:
    """Write an ONNX model with its signature in its metadata; equal models give equal bytes.

    Args:
        model: An `onnx.ModelProto`.
        signature: What it takes and gives.
        file_path: Where to.
    """
    model.producer_name = PRODUCER
    model.producer_version = ""
    model.ClearField("metadata_props")
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, signature.to_json()
    Path(file_path).write_bytes(model.SerializeToString(deterministic=True))
