"""A flow that is called without Prefect, which takes a second to import, where it can be."""

import copy
import functools
import inspect
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from partwise.errors import ArgumentError, InputError, PartwiseError
from partwise.flows.orchestration.direct import runs_directly
from partwise.flows.orchestration.python_signature import python_signature
from partwise.formatting import did_you_mean, lone_surrogate
from partwise.mistakes import describe_mistakes
from partwise.processes.garbage import collecting_rarely
from partwise.stand_ins import load

P = ParamSpec("P")
R = TypeVar("R")


class LazyFlow(Generic[P, R]):
    """Stands for a flow of Prefect's, which is made when somebody asks for something of it.

    A call without a server needs nothing of Prefect. It is not an `ABC`, since to ask whether
    something is one looks at its `__class__`, which loads Prefect here.
    """

    def __init__(self, fn: Callable[..., R], name: str, signature: inspect.Signature) -> None:
        functools.update_wrapper(self, fn)
        del self.__wrapped__
        self.name = name
        self.signature = signature
        # What `help()` and notebooks show; Prefect looks at the other one.
        self.__signature__ = python_signature(signature)

    opaque: tuple[str, ...] = ()
    """The names of parameters that hold rows or much else, which no document holds."""
    has_options = False
    """Whether it has options of Prefect's that its code does not give."""

    @abstractmethod
    def make_flow(self) -> Any:
        """Return the flow of Prefect's."""

    @functools.cached_property
    def flow(self) -> Any:
        """The flow of Prefect's."""
        with collecting_rarely():
            return self.make_flow()

    def with_options(self, **options: Any) -> Self:
        """Return this with other options of Prefect's, by which its calls are run for these.

        Prefect makes a flow of its own class, whose calls are not what those of ours are.
        """
        from prefect import Flow

        # A copy by `copy` would be this very flow, as pickle has it.
        changed = object.__new__(type(self))
        flow = copy.copy(self.flow)
        vars(flow).update(vars(Flow.with_options(flow, **options)), _called=changed)
        vars(changed).update(vars(self), flow=flow, has_options=True)
        return changed

    def runs_directly(self) -> bool:
        """Whether a call, here and now, runs without Prefect."""
        return not self.has_options and runs_directly()

    def __getattr__(self, name: str) -> Any:
        # Who looks at what a module holds, such as pickle, asks for these of anything.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.flow, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """That of Prefect's flow, which loads one by its entrypoint and looks whether it is one.

        Whoever asks whether it is a `LazyFlow` is answered by its type, without this.
        """
        return type(self.flow)

    def __get__(self, instance: object, owner: type) -> "LazyFlow[P, R]":
        """What has this is a function to `help()`, which then shows how it is called."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return load, ("partwise.flows", self.__name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the flow: as a flow run of Prefect, or without it where no server is named."""
        try:
            return self.run_bound(args, kwargs)
        except PartwiseError as error:
            if os.environ.get("PARTWISE_DEBUG"):
                raise
            # Our frames and those of Prefect's engine, forty lines, tell nobody anything.
            raise error.with_traceback(None) from error.__cause__

    @abstractmethod
    def run_bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Run the flow with the arguments of a call."""

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of a call by name.

        Raises:
            ArgumentError: One is missing, given twice, or not one of the flow's.
            InputError: One has a text that no file can hold.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            known = self.signature.parameters
            unknown = next((name for name in kwargs if name not in known), None)
            if unknown is None:
                first = [p.name for p in known.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
                places = f" By their place it takes {', '.join(first)}, all others by name."
                raise ArgumentError(
                    f"{self.__name__}(): {error}.{places if args and first else ''}"
                ) from None
            hint = did_you_mean(unknown, known) or f" help({self.__name__}) shows them all."
            raise ArgumentError(f"{self.__name__}() has no argument {unknown!r}.{hint}") from None
        for name, value in bound.arguments.items():
            # Parameters of a million partitions would take seconds; no document holds them.
            is_many = name in self.opaque and isinstance(value, Mapping)
            if not is_many and (found := lone_surrogate(value)):
                raise InputError(
                    f"{self.__name__}(): {name} holds {found}: correct it, or rename the file."
                )
        return bound

    @functools.cached_property
    def _model(self) -> type[BaseModel]:
        """What pydantic makes of the signature, as Prefect has it make it."""
        fields: dict[str, Any] = {
            each.name: (each.annotation, ... if each.default is each.empty else each.default)
            for each in self.signature.parameters.values()
        }
        return create_model(
            self.name, __config__=ConfigDict(arbitrary_types_allowed=True), **fields
        )

    def valid(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return parameters as pydantic makes them fit.

        Raises:
            InputError: One is of a wrong type, or none of the choices.
        """
        try:
            return dict(self._model.model_validate(parameters))
        except ValidationError as error:
            raise InputError(describe_call(self.name, error)) from None


def describe_call(flow: str, error: ValidationError) -> str:
    """Return in one line what is wrong with the parameters of a call."""
    return f"The call of {flow} has parameters that it cannot use: {describe_mistakes(error)}"
