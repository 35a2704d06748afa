"""What a rank of a gang knows of itself, of the other ranks, and of its rows."""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partwise.errors import InputError
from partwise.formatting import TOO_LARGE, plain_value, reason
from partwise.peers import family_of
from partwise.ranks.protocols import Backend, Checkpoints, Exchange, RankRows, Share
from partwise.renamed import is_called_now

if TYPE_CHECKING:
    from partwise.connector.data_connector import DataConnector

RELEASE_S = 1.0
"""For so long a rank waits for its port to be free, which takes milliseconds."""


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """The argument of a function that runs as one rank of a gang."""

    rank: int
    world_size: int
    local_rank: int = 0
    """Its number among the ranks of its node."""
    local_world_size: int = 1
    node_rank: int = 0
    """The number of its node, which is one Dask worker."""
    attempt: int = 1
    """1 at first, 2 after the first restart of the gang."""
    addresses: tuple[tuple[str, int], ...] = ()
    """Host and reserved port of each rank. The port is bound until `release_port`, but nothing
    listens there; rank 0's is MASTER_PORT."""
    threads: int = 1
    """Threads that this rank may use."""
    gpus: tuple[str, ...] = ()
    """The GPUs that this rank may use, as CUDA_VISIBLE_DEVICES names them."""
    run_id: str = ""
    seed: int = 0
    """The run's, as libraries take it, in [0, 2**31); the same on every rank."""
    params: Mapping[str, Any] = field(default_factory=dict)
    model_directory: Path = Path()
    """A folder on this machine; what rank 0 leaves there is kept with the run."""
    scratch_directory: Path | None = None
    """A folder on this machine's disk for what is gone with the rank, however that ends. None, as
    outside a gang: there is none, and `tempfile` chooses."""
    node_directory: Path | None = None
    """A folder on this machine that the ranks of the node share, gone with the node; None outside a
    gang."""
    sources: Mapping[str, RankRows] = field(default_factory=dict)
    exchange: Exchange | None = None
    checkpoints: Checkpoints | None = None
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("partwise.rank"))
    metrics: dict[str, float] = field(default_factory=dict)
    """The numbers that `report` was given last, by name."""
    reported: dict[str, Any] = field(default_factory=dict)
    """What else `report` was given last: lists, texts and mappings, kept as `REPORTED_FILE`."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Artifacts beside the model: what rank 0 puts here is kept with the run."""
    outputs: dict[str, Path] = field(default_factory=dict)
    """Files of this machine that are kept with the run as artifacts of this rank, by their names,
    when the gang has done its work."""
    row_counts: dict[str, int] = field(default_factory=dict)
    """How many rows this rank was given of each source that it asked for."""
    on_step: Callable[[int, Mapping[str, float]], None] | None = field(default=None, repr=False)
    """Told of each `report` with a step; None: nobody asks how far this rank is."""
    reserved: socket.socket | None = field(default=None, repr=False)
    """What holds this rank's port."""

    if not TYPE_CHECKING:
        # Else mypy would believe every name.
        def __getattr__(self, name: str) -> Any:
            if sentence := is_called_now("RankContext", name):
                raise AttributeError(f"{sentence}.")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def share(
        self,
        name: str = "train",
        *,
        equal: bool = False,
        group: str = "",
        whole: bool = False,
    ) -> Share:
        """Return this rank's rows of a source; every rank has to call it alike.

        Args:
            name: The source's: "train", or a name in the call's `eval_data`.
            equal: Whether all ranks get the same number of rows; what is left over is left out.
            group: A column whose equal neighbours stay on one rank.
            whole: Whether every rank gets all rows.

        Raises:
            InputError: There is no such source.
        """
        if name not in self.sources:
            known = ", ".join(sorted(self.sources)) or "none"
            raise InputError(f"The gang has no rows named {name!r}; there are: {known}.")
        share = self.sources[name].share(equal=equal, group=group, whole=whole)
        self.row_counts[name] = share.rows
        return share

    def rows(self, name: str = "train", *, equal: bool = False) -> Iterator[pa.RecordBatch]:
        """Read this rank's rows of a source, as `share` divides them."""
        return self.share(name, equal=equal).batches()

    def all_gather(self, content: bytes) -> list[bytes]:
        """Return what every rank has given, in the order of ranks; each has to call it."""
        return [content] if self.exchange is None else self.exchange.all_gather(content)

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self.all_gather(b"")

    def release_port(self) -> tuple[str, int]:
        """Give up this rank's reserved port, for what binds it next, and return its address."""
        host, port = self.addresses[self.rank]
        if self.reserved is not None and self.reserved.fileno() >= 0:
            self.reserved.close()
            _await_release(port, family_of(host))
        return host, port

    def report(self, **values: Any) -> None:
        """Set metrics of this rank; the newest value of each stands in the ledger.

        Lists, texts and mappings, which are no metrics, become the rank's artifact reported.json
        when the gang has done its work: `run.artifact(0, "reported.json")["losses"]`.

        In a trial of `tune_model`, rank 0 tells with `step` among them how far it is: the study may
        then end the trial.

        Raises:
            InputError: A value is neither a number nor what JSON holds; or a study is told a step
                that is not a count.
        """
        numbers, others = _divided(values)
        step = None if self.on_step is None else numbers.get("step")
        # With another one, the pruner would end the whole study.
        if step is not None and not 0 <= step < 2**63:
            raise InputError(
                f"context.report() was given the step {values['step']!r}, which is not a count."
            )
        self.metrics.update(numbers)
        self.reported.update(others)
        if self.on_step is not None and step is not None:
            self.on_step(int(step), numbers)

    def data(
        self,
        name: str = "train",
        *,
        equal: bool | None = None,
        group: str = "",
        whole: bool = False,
    ) -> "DataConnector":
        """Return this rank's rows as a connector; every rank has to call it alike.

        The rows lie in a file that is mapped into memory. The codes of categories mean the same on
        every rank, and, since the run keeps the categories, in inference.

        Args:
            name: The source's: "train", or a name in the call's `eval_data`.
            equal: Whether all ranks get the same number of rows, and what is left over is left
                out. Ranks that wait for each other after each batch, as those of PyTorch do,
                hang where one has a batch more. None: they do, unless `group` or `whole` is given.
            group: A column whose equal neighbours stay on one rank.
            whole: Whether every rank gets all rows, as of a small table that rows are joined with.

        Raises:
            InputError: There is no such source; or `equal` and `group` are both given.

        Example:
            >>> stores = context.data("stores", whole=True).to_pandas()  # doctest: +SKIP
            >>> rows = context.data().to_torch_dataset(batch_size=64)  # doctest: +SKIP
            >>> for batch in DataLoader(rows, batch_size=None): ...  # doctest: +SKIP
        """
        from partwise.ranks.data import rank_data

        if equal is None:
            equal = not group
        share = self.share(name, equal=equal and not whole, group=group, whole=whole)
        return rank_data(self, self.files, share)

    @property
    def device(self) -> str:
        """The device of this rank as torch and XGBoost name it: "cuda:0" and so on, or "cpu"."""
        if not self.gpus:
            return "cpu"
        # Libraries count the devices that this variable leaves, and not those of the machine.
        visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        first = self.gpus[0]
        return f"cuda:{visible.index(first) if first in visible else first}"

    @property
    def master_address(self) -> str:
        """The host of rank 0."""
        return self.addresses[0][0]

    @property
    def master_port(self) -> int:
        """Where rank 0 listens for the others: in a function, the process group's store."""
        return self.addresses[0][1]

    @property
    def default_backend(self) -> Backend:
        """What torch is to exchange gradients by: nccl between GPUs, gloo between CPUs."""
        return self.supported_backends[-1]

    @property
    def supported_backends(self) -> tuple[Backend, ...]:
        """What torch can exchange gradients by on this rank."""
        return ("gloo", "nccl") if self.gpus else ("gloo",)

    def checkpoint(
        self,
        write: Callable[[Path], object],
        *,
        step: int,
        every_steps: int | None = None,
        every_minutes: float | None = None,
    ) -> bool:
        """Keep a checkpoint in the artifact store, where one is due; any rank may call it.

        Call it after each step. One is due when as many steps or minutes have gone by since the
        last one, or since the start; without either, at each call. It counts when it is complete.
        The last two are kept.

        Args:
            write: Called as `write(folder)` with a new local folder, on rank 0 only: what it
                writes there is the checkpoint. It must not wait for other ranks.
            step: How many steps are done, 0 or more.
            every_steps: Steps between checkpoints, 1 or more.
            every_minutes: Minutes between checkpoints, more than 0.

        Returns:
            Whether this rank wrote one.

        Raises:
            InputError: An argument is out of range, or nothing was written.
            StoreError: The store cannot be written.

        Example:
            >>> def save(folder):
            ...     torch.save({"step": step, "model": model.state_dict()}, folder / "state.pt")
            >>> context.checkpoint(save, step=step, every_minutes=10)  # doctest: +SKIP
        """
        # On every rank: all are refused alike, so that none goes on to wait for rank 0.
        between = [each for each in (every_steps, every_minutes) if each is not None]
        if step < 0 or not all(each > 0 for each in between):
            raise InputError(
                f"checkpoint(step={step}, every_steps={every_steps}, "
                f"every_minutes={every_minutes}): steps count from 0, and what is between two "
                "checkpoints must be more than 0."
            )
        if self.rank > 0 or self.checkpoints is None:
            return False
        return self.checkpoints.save(
            write, step=step, every_steps=every_steps, every_minutes=every_minutes
        )

    def resume_from(self) -> Path | None:
        """Return a local folder with the checkpoint to go on from; None: start afresh.

        It is the newest complete one of this run that the same function and rows have left, or
        else what the caller's `resume_from` names. Every rank is given the same one.

        Raises:
            IntegrityError: Its content differs from its checksums.
            StoreError: The store cannot be read.
        """
        return None if self.checkpoints is None else self.checkpoints.resume_from()


def visible_gpus(variable: str) -> tuple[str, ...]:
    """Return the GPUs that the variable CUDA_VISIBLE_DEVICES leaves, as it names them."""
    names = []
    for name in map(str.strip, variable.split(",")):
        # CUDA itself stops at the first that cannot be a device.
        if not name.isdecimal() and not name.startswith(("GPU-", "MIG-")):
            break
        names.append(name)
    return tuple(names)


def _divided(values: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the numbers among reported values, and what else JSON holds of them."""
    numbers: dict[str, float] = {}
    others: dict[str, Any] = {}
    for name, value in values.items():
        is_other = isinstance(value, str | list | tuple | dict)
        try:
            with suppress(TypeError, ValueError, RuntimeError):
                if not is_other:
                    # An array of one number is one.
                    numbers[name] = float(value.item() if getattr(value, "size", 0) == 1 else value)
                    continue
            # Of arrays and tensors with several values.
            others[name] = plain_value(value if is_other else value.tolist())
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"context.report() was given {name}, a {type(value).__name__}, which is neither a "
                f"number nor what JSON holds: {reason(error)}."
            ) from error
        except OverflowError as error:
            raise InputError(f"context.report() was given {name}, {TOO_LARGE}") from error
    return numbers, others


def _await_release(port: int, family: socket.AddressFamily) -> None:
    """Wait until no other process holds a port any more.

    The processes by which it came to this one close it just after they have handed it over: later
    than this one asks for it, where the machine is busy.
    """
    deadline = time.monotonic() + RELEASE_S
    while time.monotonic() < deadline:
        with socket.socket(family) as probe, suppress(OSError):
            # What earlier connections left does not hold it. Those who reserve do not set this.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            return
        time.sleep(0.001)
