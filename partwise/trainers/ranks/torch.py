"""PyTorch on the ranks of a gang: the process group around a function, opened and closed."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from partwise.errors import FunctionError, InputError
from partwise.outcomes import Result
from partwise.processes.variables import variables_set
from partwise.ranks.context import RankContext
from partwise.ranks.current_context import set_context
from partwise.ranks.protocols import Backend
from partwise.renamed import is_called_now
from partwise.trainers.resolving import resolve_trainer

if TYPE_CHECKING:
    from torch.distributed import TCPStore

_TWICE = "initialize the default process group twice"
_kept: list[object] = []
"""Process groups of functions that have ended well: none is freed in this process, which ends soon.
Who frees one has Python's lock and waits for gloo's threads (torch 2.13), and one of these may wait
for that lock, to let go of the last sum of DistributedDataParallel."""


@dataclass(frozen=True, slots=True)
class TorchDistributor:
    """Train one model by a function that runs on every rank of a gang.

    It opens torch's default process group, calls the function, and closes the group again, also
    after an error. So the function must not call `init_process_group`, unless with
    process_group="function": then it does, or a library such as accelerate or Lightning does it
    for the function. A script that runs as a command of its own opens it, too. All variables of
    torchrun are set, so that "env://" is all that a group needs.

    What rank 0's function returns is the model: a module, also one that is wrapped in
    DistributedDataParallel; a state dict, with `serde=TorchSerde(mode="state", factory=...)`; or a
    `Result` of either, with metrics. None where it keeps its model in `context.model_directory`.
    What the other ranks return is not looked at.

    Example:
        >>> def train():
        ...     context = get_context()
        ...     model = DistributedDataParallel(make_model().to(context.device))
        ...     rows = context.data().to_torch_dataset(batch_size=64, shuffle=True)
        ...     ...
        ...     return model
        >>> distributor = TorchDistributor(train, params={"lr": 1e-3})  # doctest: +SKIP
    """

    train_func: Callable[..., Any] | str
    """A function of the context, or of nothing, or its name as "package.module:function"."""
    backend: Literal["auto", "gloo", "nccl"] = "auto"
    """"auto" is nccl where ranks have GPUs, and gloo on CPUs."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """What `context.params` holds; those of the call come first."""
    timeout_s: float | None = None
    """How long ranks wait for each other in a collective; None: as long as torch has it."""
    process_group: Literal["distributor", "function"] = "distributor"
    """Who opens the process group and closes it. Where the function does, backend and timeout_s are
    its own: it finds the backend for its devices as `context.default_backend`."""

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """Refuse names of before, which Python would call unexpected ones."""
        for name in named:
            if sentence := is_called_now("TorchDistributor", name):
                raise InputError(f"TorchDistributor: the argument {sentence}.")
        # With slots, the class is made twice, and super() would ask the first.
        return object.__new__(cls)

    def __post_init__(self) -> None:
        """Refuse before any work what could not be called on a rank.

        Raises:
            FunctionError: The function cannot be found, or does not take one context or nothing.
            InputError: There is no such backend, or the time is not positive.
        """
        # A name stands for what it names, so that a resume sees when its code has changed.
        function = resolve_trainer(self.train_func)
        object.__setattr__(self, "train_func", function)
        _takes_context(function)
        if self.backend not in ("auto", "gloo", "nccl"):
            raise InputError(f'backend={self.backend!r}: it can be "auto", "gloo" or "nccl".')
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InputError(f"timeout_s={self.timeout_s}: it must be more than 0, or None.")
        if self.process_group not in ("distributor", "function"):
            raise InputError(
                f'process_group={self.process_group!r}: it can be "distributor" or "function".'
            )
        if self.process_group == "function" and (self.backend, self.timeout_s) != ("auto", None):
            raise InputError(
                'With process_group="function", backend and timeout_s are what the function gives '
                "to init_process_group: leave them out here."
            )

    def __call__(self, context: RankContext) -> Any:
        """Work as one rank; every rank of the gang has to call it.

        Raises:
            InputError: PyTorch is not installed, the backend does not fit the rank's devices, or
                a process group is open already.
        """
        opens = self.process_group == "distributor"
        backend = self._backend(context) if opens else None
        given = {**self.params, **context.params}
        with (
            _meeting_place(context) as (found, store),
            _process_group(found, store, backend, self.timeout_s) if backend else nullcontext(),
        ):
            joined = replace(found, params=given)
            set_context(joined)
            try:
                outcome = self._call(joined)
            finally:
                set_context(context)
            # Rank 0 holds the store of the group, so it stays until all have come to their end.
            joined.barrier()
        return _unwrapped(outcome)

    def _call(self, context: RankContext) -> Any:
        function: Any = self.train_func
        try:
            return function(context) if _takes_context(function) else function()
        except ValueError as error:
            if _TWICE not in str(error) or self.process_group == "function":
                raise
            raise InputError(
                "The function calls torch.distributed.init_process_group(), but TorchDistributor "
                "has opened the process group before it called the function, and closes it: take "
                'that call out, or pass process_group="function".'
            ) from error

    def _backend(self, context: RankContext) -> Backend:
        backend = context.default_backend if self.backend == "auto" else self.backend
        if backend not in context.supported_backends:
            raise InputError(
                f"backend={backend!r} needs a GPU for each rank, and rank {context.rank} has none: "
                'ask for GPUs, or pass backend="gloo".'
            )
        return backend


def _takes_context(function: Callable[..., Any]) -> bool:
    """Whether a function wants the context; one with a default does where it is named so."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # of some built-in functions nothing is known
        return True
    parameters = [
        each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    needed = [each.name for each in parameters if each.default is each.empty]
    first = next((each.name for each in parameters if each.kind is not each.KEYWORD_ONLY), "")
    if not needed:
        return first == "context"
    if needed != [first]:
        raise FunctionError(
            f"{function!r} needs the arguments {', '.join(needed)}: a function for "
            "TorchDistributor takes the context, or nothing; others go into params=."
        )
    return True


@contextmanager
def _meeting_place(context: RankContext) -> "Iterator[tuple[RankContext, TCPStore]]":
    """Open the store by which ranks find each other, and say so in the environment, for a while.

    The context comes with that store as the address of rank 0.
    """
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise InputError(
            "TorchDistributor needs PyTorch, which is not installed on this worker: "
            "pip install 'partwise[torch]'."
        ) from error
    if dist.is_initialized():
        raise InputError(
            f"A process group is open on rank {context.rank} already; TorchDistributor opens it, "
            'or the function does that it calls, with process_group="function".'
        )
    torch.set_num_threads(context.threads)
    if context.gpus:
        torch.cuda.set_device(context.device)
    store, port = _open_store(context)
    found = replace(context, addresses=((context.master_address, port), *context.addresses[1:]))
    # By these, libraries find the process group.
    variables = {
        "MASTER_ADDR": found.master_address,
        "MASTER_PORT": str(port),
        # So rank 0, too, joins the store that is open, where it would open another one.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    with variables_set(variables):
        yield found, store


@contextmanager
def _process_group(
    context: RankContext, store: "TCPStore", backend: Backend, timeout_s: float | None
) -> Iterator[None]:
    """Open torch's default process group and close it again, however the block ends."""
    import torch.distributed as dist

    dist.init_process_group(
        backend,
        store=store,
        rank=context.rank,
        world_size=context.world_size,
        timeout=None if timeout_s is None else timedelta(seconds=timeout_s),
    )
    try:
        # Gloo (torch 2.13) waits for ever for a rank that leaves while another one is connecting,
        # as one does whose function fails or closes the group at once.
        context.barrier()
        yield
        # After an error it is freed: that sets the other ranks free.
        _kept.append(dist.group.WORLD)
    finally:
        # The function may have closed it, as scripts do.
        if dist.is_initialized():
            dist.destroy_process_group()


def _open_store(context: RankContext) -> "tuple[TCPStore, int]":
    """Return the store by which ranks find each other, and its port.

    Rank 0 is given a free port and tells it to the others. A port that is chosen beforehand, as
    MASTER_PORT is, may be taken by the time when it is used.
    """
    from torch.distributed import TCPStore

    host, world_size = context.master_address, context.world_size
    if context.rank == 0:
        # It must not wait: the others come when they know its port.
        store = TCPStore(host, 0, world_size, is_master=True, wait_for_workers=False)
        return store, int(context.all_gather(b"%d" % store.port)[0])
    port = int(context.all_gather(b"")[0])
    return TCPStore(host, port, world_size, is_master=False, wait_for_workers=False), port


def _unwrapped(outcome: Any) -> Any:
    """Return a model as it is without DistributedDataParallel around it."""
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(outcome, Result):
        return replace(outcome, model=_unwrapped(outcome.model))
    if not isinstance(outcome, DistributedDataParallel):
        return outcome
    _kept.append(outcome.process_group)
    return outcome.module
