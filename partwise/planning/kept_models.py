"""Models that the serde of a call cannot keep, as far as that can be seen of the function."""

import inspect
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, get_args

from partwise.engine.child.named_code import NamedCode
from partwise.errors import UnkeptModelError
from partwise.models.serdes import ModelSerde, TorchSerde, library_of_type


def refuse_unkept(function: Any, serde: ModelSerde | None) -> None:
    """Refuse a function that is annotated to return a PyTorch class which the serde does not know.

    Of any other function it is known when it has returned its first model.

    Raises:
        UnkeptModelError: It is.
    """
    hint: Any = None
    function = getattr(function, "train_func", function)  # of a TorchDistributor
    # Names that only a type checker knows, say nothing here.
    with suppress(Exception):
        hint = inspect.get_annotations(function, eval_str=True).get("return")
    if names := _unknown(get_args(hint) or (hint,), serde):
        raise UnkeptModelError(
            f"The function returns a {' or a '.join(names)}, by its annotation: {_remedy(names)}"
        )


def classes_left_out(function: Any, serde: ModelSerde | None) -> tuple[str, ...]:
    """Return a sentence about PyTorch classes of the caller's that the serde lacks; else none.

    No refusal: the function may return something else. But if it returns a module of these, that
    is refused after all the work.
    """
    if "torch" not in sys.modules:
        return ()
    named = NamedCode([function])
    names = _unknown((named.owners[name] for name in named.own & named.owners.keys()), serde)
    if not names:
        return ()
    sentence = (
        "The function names PyTorch classes of yours that the call's serde does not, and a model "
        f"of them is refused when all the work is done: {_remedy(names)}"
    )
    return (sentence,)


def _unknown(kinds: Iterable[Any], serde: ModelSerde | None) -> list[str]:
    """Return the names of PyTorch classes of the caller's that a serde does not know."""
    takes = TorchSerde() if serde is None else serde
    if not isinstance(takes, TorchSerde) or takes.mode != "module":
        return []
    return sorted(
        kind.__name__
        for kind in kinds
        if isinstance(kind, type)
        and library_of_type(kind) == "torch"
        and kind.__module__.partition(".")[0] != "torch"
        and kind not in takes.classes
    )


def _remedy(names: list[str]) -> str:
    return (
        f"pass serde=TorchSerde(classes=({', '.join(names)},)), with all classes of yours that it "
        'is made of, TorchSerde(mode="state", factory=...), or PickleSerde().'
    )
