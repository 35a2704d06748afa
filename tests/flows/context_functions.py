"""Functions that use their context: a module of its own, which workers import at no cost."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector

BLOB = bytes(range(256)) * 12_000


def show_artifacts(context: PartitionContext) -> dict[str, Any]:
    context.upload(BLOB, "blob.bin")
    context.upload("first", "notes.txt")
    context.upload("grüße", "notes.txt")
    context.upload({"best": [3, None]}, "choice.json")
    context.upload([1, 2], "list.csv", write=lambda obj, path: Path(path).write_text(f"{obj}"))
    return {
        "blob": context.download("blob.bin") == BLOB,
        "notes": context.download("notes.txt"),
        "choice": context.download("choice.json"),
        "list": context.download("list.csv", read=lambda path: Path(path).read_text()[1:-1]),
    }


def go_on_after_failure(context: PartitionContext, *, die: bool) -> dict[str, Any]:
    if context.attempt == 1:
        context.upload({"epoch": 7}, "state.json")
        if die:
            os._exit(9)
        raise RuntimeError("stopped at epoch 7")
    return {"state": context.download("state.json"), "attempt": context.attempt}


def refuse_names(context: PartitionContext) -> dict[str, Any]:
    refused = []
    for name in ("../x", "a/b", "", "log.txt", ".hidden", "x" * 200, "end."):
        try:
            context.upload(b"", name)
        except ValueError as error:
            refused.append(str(error).count("\n"))
    try:
        context.upload(object(), "object.bin")
    except ValueError as error:
        refused.append("pass write=" in str(error))
    return {"refused": refused}


def write_to_the_log(context: PartitionContext) -> dict[str, Any]:
    print("from print")
    print("from stderr", file=sys.stderr)
    context.logger.info("from the logger, %s", context.key)
    context.logger.debug("not from debug")
    logging.getLogger("somebody.else").warning("from another logger")
    warnings.warn("from a warning", stacklevel=1)
    os.write(1, b"from a descriptor\n")
    subprocess.run(["echo", "from a program"], check=True)
    subprocess.run("echo from a shell >&2", shell=True, check=True)
    print("from the end", end="")
    return {}


def change_the_process(context: PartitionContext) -> dict[str, Any]:
    print("file name \udcff")
    sys.stdout.close()
    sys.stderr.close()
    signal.alarm(1)
    warnings.filterwarnings("error")
    logging.disable(logging.CRITICAL)
    logging.getLogger().setLevel(logging.ERROR)
    os.chdir("/")
    random.seed(0)
    return {}


def warn_once_more(context: PartitionContext) -> dict[str, Any]:
    warnings.warn("from the same line", stacklevel=1)
    context.logger.info("logging works")
    print("printing works")
    print("on both", file=sys.stderr)
    return {"cwd": os.getcwd()}


def load_with_workers(data: DataConnector) -> dict[str, Any]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    values = torch.from_numpy(data.to_numpy("value").copy())
    loader = DataLoader(TensorDataset(values), batch_size=4, num_workers=2)
    return {"sum": sum(float(batch.sum()) for (batch,) in loader)}


def act(data: DataConnector, context: PartitionContext) -> dict[str, list[str]]:
    """What the partition of each key does; its answer is kept as JSON."""
    match context.key:
        case 0:
            answer = show_artifacts(context)
        case 1:
            answer = go_on_after_failure(context, die=False)
        case 2:
            answer = go_on_after_failure(context, die=True)
        case 3:
            answer = context.download("nothing.bin")
        case 4:
            answer = refuse_names(context)
        case 5:
            answer = write_to_the_log(context)
        case 6 | 7 | 9:
            answer = warn_once_more(context)
        case 8:
            answer = change_the_process(context)
        case 10:
            answer = load_with_workers(data)
    return {"answer": [json.dumps(answer)]}


def draw(data: DataConnector, context: PartitionContext) -> dict[str, list[Any]]:
    """Return what chance gives, torch's too, which is first imported here."""
    import torch

    return {
        "seed": [context.seed],
        "random": [random.random()],
        "numpy": [float(np.random.random())],
        "torch": [float(torch.rand(()))],
        "order_of_a_set": ["".join({"alpha", "beta", "gamma", "delta", "epsilon"})],
    }


def describe_key(data: DataConnector, context: PartitionContext) -> dict[str, list[str]]:
    values = context.key if isinstance(context.key, tuple) else (context.key,)
    return {
        "kind": [type(context.key).__name__],
        "kinds": [",".join(type(value).__name__ for value in values)],
        "shown": [repr(context.key)],
        "columns": [",".join(context.key_columns)],
        "partition_id_seen": [context.partition_id],
        "run_id": [context.run_id],
        "params": [repr(dict(context.params))],
    }
