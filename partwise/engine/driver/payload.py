"""The user's function on its way to the workers."""

import pickle
from hashlib import blake2b

import cloudpickle

from partwise.errors import FunctionError
from partwise.trainers.scored import libraries_of

LARGEST_PAYLOAD_BYTES = 10 << 20


def pack_work(work: object, name: str) -> bytes:
    """Return work as cloudpickle bytes; only child processes open them.

    It is a `Work`, or what ranks of a gang get. What cannot be packed, or carries more than 10 MB,
    is refused.
    """
    try:
        payload: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise FunctionError(
            f"{name} cannot be sent to the workers: {error}. It must not capture open files, "
            "connections, locks or clients; open them inside the function."
        ) from error
    if len(payload) > LARGEST_PAYLOAD_BYTES:
        raise FunctionError(
            f"{name} carries {len(payload) / 1e6:.0f} MB with it, and the limit is "
            f"{LARGEST_PAYLOAD_BYTES / 1e6:.0f} MB: it captures large objects. Read them inside "
            "the function, or hand per-partition values over as params=."
        )
    return payload


def name_of(function: object) -> str:
    """Return how messages name a function or trainer."""
    name = getattr(function, "__qualname__", None)
    return f"The function {name!r}" if name else f"The trainer {type(function).__name__}"


def full_name_of(function: object, *more: str) -> str:
    """Return a name that functions, or trainers, share which use the same libraries.

    `more` decides besides, as the run whose models are used. It is a digest: where the pickle of an
    assignment has the words `__main__` in it, Dask pickles it a second time, by cloudpickle.
    """
    named = function if hasattr(function, "__qualname__") else type(function)
    # It has no module where exec() made it in a namespace without a name.
    place = [named.__module__ or "", getattr(named, "__qualname__", "")]
    words = [*place, *libraries_of(function), *more]
    return blake2b(" ".join(words).encode(), digest_size=16).hexdigest()
