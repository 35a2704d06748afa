"""PyTorch modules, never unpickled freely."""

import pickle
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal

from partwise.errors import SerdeError
from partwise.models.serdes.damage import readable
from partwise.models.serdes.pickle import BY_PICKLE

_MAIN = "__main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSerde:
    """A module as a whole, or its state to be loaded into what a factory builds.

    Both are read with `weights_only=True`: a file that asks for anything but tensors, the classes
    of `torch.nn` and those in `classes` is refused. Tensors come back on the CPU.

    Example:
        >>> TorchSerde(classes=(Net, Block))  # doctest: +SKIP
        >>> TorchSerde(mode="state", factory=make_net)  # doctest: +SKIP
    """

    mode: Literal["module", "state"] = "module"
    """"module" keeps the module object; "state" its `state_dict()`, which outlives changed code."""
    factory: Callable[[], Any] | None = None
    """Builds the module that a state is loaded into. For the mode "state" only."""
    classes: tuple[type, ...] = ()
    """Your own classes that a whole module may be made of. Those of a script or notebook, which is
    `__main__` there, are found by their names in another process, which passes them again."""
    filename: str = "model.pt"

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))  # a list, where JSON held it
        if self.mode not in ("module", "state"):
            raise SerdeError(f'TorchSerde has the modes "module" and "state", not {self.mode!r}.')
        if (self.mode == "state") != (self.factory is not None):
            raise SerdeError(
                'TorchSerde needs factory= with mode="state", and takes none with mode="module".'
            )
        for kind in self.classes:
            # A function such as getattr, once allowed, would let a file do anything.
            if not isinstance(kind, type):
                raise SerdeError(f"TorchSerde(classes=...) takes classes only, not {kind!r}.")

    def write(self, model: Any, file_path: str) -> None:
        """Write a module, and make sure that it can be read again.

        For mode "state" also a state dict, as a function has it that gathers the parameters of
        several processes.

        Raises:
            SerdeError: It is not a module, cannot be written whole, needs classes not given, or is
                a state that the factory's module does not take.
        """
        import torch

        module = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
        if self.factory is not None and isinstance(model, Mapping):
            module = _filled(self.factory, model)
        if not isinstance(module, torch.nn.Module):
            raise SerdeError(f"TorchSerde writes a torch.nn.Module, not a {type(model).__name__}.")
        if self.mode == "module":
            kinds = {type(each) for each in module.modules()}
            self._refuse(f"{k.__module__}.{k.__qualname__}" for k in kinds - {*self._classes()})
        try:
            with _found_in_main(self.classes):
                torch.save(module.state_dict() if self.mode == "state" else module, file_path)
        except (pickle.PicklingError, RuntimeError, TypeError, AttributeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise SerdeError(
                f"The module {type(module).__name__} cannot be written ({reason[:200]}): define "
                "its classes where they can be imported, or at the top of the script or notebook, "
                'or pass serde=TorchSerde(mode="state", factory=...).'
            ) from error
        self._check_classes(file_path)

    def read(self, file_path: str) -> Any:
        """Return the module: as it was written, or for mode "state" in evaluation mode.

        Raises:
            SerdeError: The file needs classes not given, or was written in the other mode.
        """
        import torch

        with readable(file_path, "PyTorch"):
            try:
                with torch.serialization.safe_globals(self._allowed()):
                    content = torch.load(file_path, weights_only=True, map_location="cpu")
            except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
                if zipfile.is_zipfile(file_path):
                    self._check_classes(file_path)
                raise SerdeError(
                    f"{file_path} is not a model that TorchSerde reads safely."
                ) from error
        is_module = isinstance(content, torch.nn.Module)
        if is_module != (self.mode == "module"):
            raise SerdeError(
                f"{file_path} holds a {type(content).__name__}: pass serde="
                + ("TorchSerde()." if is_module else 'TorchSerde(mode="state", factory=...).')
            )
        if self.factory is None:
            return content
        return _filled(self.factory, content).eval()

    def _classes(self) -> tuple[Any, ...]:
        return (*_torch_nn_classes(), *self.classes) if self.mode == "module" else ()

    def _allowed(self) -> list[Any]:
        # A script that wrote the file was `__main__` there, and is a module like others here.
        as_in_main = [(kind, f"{_MAIN}.{kind.__qualname__}") for kind in self.classes]
        return [*self._classes(), *as_in_main]

    def _check_classes(self, file_path: str) -> None:
        import torch

        with torch.serialization.safe_globals(self._allowed()):
            self._refuse(torch.serialization.get_unsafe_globals_in_checkpoint(file_path))

    def _refuse(self, unknown: Iterable[str]) -> None:
        names = ", ".join(sorted(unknown))
        if names:
            raise SerdeError(
                f"The model needs what TorchSerde does not load by itself: {names[:150]}. If these "
                "are your own classes, pass serde=TorchSerde(classes=(...)) with them; else pass "
                f'serde=TorchSerde(mode="state", factory=...), or {BY_PICKLE}: that keeps classes '
                "of a script or notebook in the file."
            )


@contextmanager
def _found_in_main(classes: Iterable[type]) -> Iterator[None]:
    """Have classes of the caller's script or notebook be found, where they came to by value.

    A file names them, and who names a class looks whether it is there under that name.
    """
    main = vars(sys.modules[_MAIN])
    own = {kind.__qualname__: kind for kind in classes if kind.__module__ == _MAIN}
    before = {name: main[name] for name in own if name in main}
    main.update(own)
    try:
        yield
    finally:
        for name in own:
            del main[name]
        main.update(before)


def _filled(factory: Callable[[], Any], state: Mapping[str, Any]) -> Any:
    """Return what the factory builds, with this state."""
    module = factory()
    try:
        module.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")[:300]
        raise SerdeError(
            f"The state does not fit the {type(module).__name__} that factory= builds "
            f"({reason}): return the state of the module itself, and not of what wraps it."
        ) from error
    return module


@cache
def _torch_nn_classes() -> tuple[Any, ...]:
    import torch

    modules = [m for m in vars(torch.nn.modules).values() if isinstance(m, ModuleType)]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
    }
    # Transformer layers hold their activation as a function.
    return (*classes, torch.nn.functional.relu, torch.nn.functional.gelu)
