"""Functions that the command line's tests name as "cli_functions:...".

They run in worker processes that were started before anybody knew of this file, so the tests have
it sent by value.
"""

import time

from partwise.outcomes import Result, Skip


def mean(data, context):
    if context.key == "s2":
        return Skip("too few rows")
    print(f"looking at {context.key}")
    if context.key in ("s3", "s4"):
        raise ValueError(f"{context.key} is\nbeyond me")
    return Result({"mean": float(data.to_numpy("y").mean())}, metrics={"rows": len(data)})


def fail(data, context):
    raise RuntimeError("none of them without run_id='own'")


def add(data, model, context):
    return {"mean": data.to_numpy("y") * 0 + model["mean"]}


def first_days(data, context):
    return data.to_arrow().slice(0, 1).select(["day"])


def wait(data, context):
    time.sleep(20)
