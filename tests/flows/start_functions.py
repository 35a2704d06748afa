"""Functions of runs that are started: in a module that pytest leaves as it is written."""

import time


def nap(data, context):
    time.sleep(context.params.get("nap_s", 0.2))
    return {"twice": 2 * data.to_numpy("value")}


def times(factor: float):
    """Return a function that can only be sent by value."""

    def much(data, context):
        return {"much": factor * data.to_numpy("value")}

    return much
