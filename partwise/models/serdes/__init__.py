"""Serdes: how a model becomes a file and comes back.

The native format of the model's library is chosen by the model's type. A file of a `PROGRAMS`
format runs what is in it when it is read, so only the caller chooses one of these: never a ledger,
which whoever writes to the store may change.
"""

from typing import Any

from partwise.errors import SerdeError
from partwise.models.serdes.keras import KerasSerde
from partwise.models.serdes.lightgbm import LightGBMSerde
from partwise.models.serdes.onnx import OnnxSerde
from partwise.models.serdes.pickle import BY_PICKLE, PickleSerde
from partwise.models.serdes.plain import PlainSerde
from partwise.models.serdes.protocol import ModelSerde, StreamSerde
from partwise.models.serdes.torch import TorchSerde
from partwise.models.serdes.torch_programs import NeuronSerde, Pt2Serde, TorchScriptSerde
from partwise.models.serdes.xgboost import XGBoostSerde

__all__ = [
    "PROGRAMS",
    "SERDES",
    "ModelSerde",
    "KerasSerde",
    "LightGBMSerde",
    "NeuronSerde",
    "OnnxSerde",
    "PickleSerde",
    "PlainSerde",
    "Pt2Serde",
    "StreamSerde",
    "TorchScriptSerde",
    "TorchSerde",
    "XGBoostSerde",
    "library_of",
    "library_of_type",
    "refuse_program",
    "resolve_serde",
    "serde_by_name",
    "serde_for",
    "serde_name",
]

SERDES: dict[str, type[ModelSerde]] = {
    "keras": KerasSerde,
    "lightgbm": LightGBMSerde,
    "neuron": NeuronSerde,
    "onnx": OnnxSerde,
    "pickle": PickleSerde,
    "plain": PlainSerde,
    "pt2": Pt2Serde,
    "torch": TorchSerde,
    "torchscript": TorchScriptSerde,
    "xgboost": XGBoostSerde,
}
"""The built-in serdes by the name that a ledger has for them."""

PROGRAMS = frozenset({"neuron", "pickle", "pt2", "torchscript"})
"""Those whose files hold code that runs when they are read."""

_NATIVE_TYPES = {
    ("keras", "Model"): "keras",
    ("lightgbm", "Booster"): "lightgbm",
    ("lightgbm", "LGBMModel"): "lightgbm",
    ("partwise", "PlainModel"): "plain",
    ("torch", "Module"): "torch",
    ("xgboost", "Booster"): "xgboost",
    ("xgboost", "XGBModel"): "xgboost",
}


def library_of(model: Any) -> str | None:
    """Return the name of the library whose native format fits a model's type, or None.

    The type's ancestors decide by name, so that no library is imported for the question. A Keras
    model on the torch backend is a torch module as well; Keras stands first among its ancestors.
    """
    return library_of_type(type(model))


def library_of_type(kind: type) -> str | None:
    """Return the name of the library whose native format fits models of a type, or None."""
    for ancestor in kind.__mro__:
        package = ancestor.__module__.split(".", maxsplit=1)[0]
        if (name := _NATIVE_TYPES.get((package, ancestor.__name__))) is not None:
            return name
    return None


def serde_for(model: Any) -> ModelSerde:
    """Return the native serde for a model's type.

    Raises:
        SerdeError: The type has none.

    Example:
        >>> serde_for(booster)  # doctest: +SKIP
        LightGBMSerde(filename='model.txt')
    """
    name = library_of(model)
    if name is None:
        kind = type(model)
        raise SerdeError(
            f"There is no native format for a model of type {kind.__module__}.{kind.__qualname__}: "
            f"{BY_PICKLE} or your own ModelSerde, or return a model of LightGBM, XGBoost, "
            "PyTorch or Keras."
        )
    return SERDES[name]()


def resolve_serde(serde: ModelSerde | str | None) -> ModelSerde | None:
    """Return the serde that a caller gives: itself, or the name of a built-in one; "" is none."""
    if not isinstance(serde, str):
        return serde
    if not serde:
        return None
    if serde not in SERDES:
        raise SerdeError(f"There is no serde {serde!r}; those by name are {', '.join(SERDES)}.")
    return SERDES[serde]()


def serde_name(serde: ModelSerde) -> str:
    """Return the name of a serde in a ledger: a key of SERDES, or "module:Class" for one's own."""
    kind = type(serde)
    for name, built_in in SERDES.items():
        if kind is built_in:
            return name
    return f"{kind.__module__}:{kind.__qualname__}"


def serde_by_name(name: str, given: ModelSerde | None) -> ModelSerde:
    """Return the serde that reads what the serde of this name wrote.

    Args:
        name: From a ledger: what `serde_name` gave when the model was written.
        given: What the caller passed. It is used where it bears that name, or, for a class of
            one's own, that class name (a script's `__main__` is another module elsewhere).

    Raises:
        SerdeError: The name is one of `PROGRAMS` or that of a class of one's own, and it was not
            given.
    """
    if given is not None and _class_name(serde_name(given)) == _class_name(name):
        return given
    if name in SERDES and name not in PROGRAMS:
        return SERDES[name]()
    passed = "none was given" if given is None else f"{serde_name(given)!r} was given"
    if name in PROGRAMS:
        raise SerdeError(
            f"The model is of the format {name!r}, and {passed}. To read it runs the code in it: "
            f"if you trust where it comes from, pass serde={SERDES[name].__name__}() (by name: "
            f"{name!r}{', --pickle on the command line' * (name == 'pickle')})."
        )
    raise SerdeError(
        f"The model was written by the serde {name[:80]!r}, and {passed}: pass an object of that "
        "class as serde=."
    )


def refuse_program(name: str, named: str) -> None:
    """Refuse a file that runs code when it is read, unless the caller named its format.

    `named` is the format that the caller named; "" for none.
    """
    if name in PROGRAMS and name != named:
        raise SerdeError(
            f"The files are of the format {name!r}, which the call does not name. To read one runs "
            f"the code in it: if you trust where they come from, pass format={name!r}."
        )


def _class_name(name: str) -> str:
    return name.rpartition(":")[2]
