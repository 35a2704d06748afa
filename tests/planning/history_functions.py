"""What random histories of calls train with, in a module of its own, as a user's function is."""

from typing import Any


def trainer(factor: int, order: tuple[str, ...], name: str) -> Any:
    """Return a function that looks at all that a history changes.

    Args:
        factor: A number in its closure.
        order: The keys of a dict in its closure.
        name: The path of a file that it reads.
    """
    settings = dict.fromkeys(order)

    def fit(data: Any, context: Any) -> Any:
        frame = data.to_pandas()
        with open(name) as file:
            word = file.read()
        return {
            "sum": factor * int(frame["value"].sum()),
            "first": next(iter(settings)),
            "codes": frame["kind"].cat.codes.tolist(),
            "word": word,
            **context.params,
        }

    return fit
