"""The process of a rank: it opens what it was sent, works, and tells how."""

import json
import os
import pickle
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from partwise.engine.child.log import ChildLog
from partwise.engine.child.seeding import Seeding
from partwise.engine.failures import describe_error, storable_start
from partwise.engine.libraries import loaded_libraries
from partwise.engine.outcome import Produced, WrittenModel
from partwise.engine.works import check_metrics
from partwise.errors import InputError, PartwiseError
from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.gangs.exchange import RankExchange
from partwise.gangs.rank_settings import (
    ERROR_FILE,
    MODEL_FOLDER,
    STEPS_FILE,
    WORK_FOLDER,
    RankOutcome,
    RankSettings,
    read_settings,
)
from partwise.gangs.work import GangPayload, RankEnded
from partwise.outcomes import PartitionStatus
from partwise.processes.shared_files import name_own_files, own_folder_of
from partwise.ranks.context import RankContext
from partwise.ranks.current_context import set_context
from partwise.runs.bundle import LOG_FILENAME, REPORTED_FILE
from partwise.store.credentials import set_credentials
from partwise.store.signing import parse_keys
from partwise.store.store import Store

if TYPE_CHECKING:
    from partwise.ranks.protocols import RankRows

LARGEST_ERROR_BYTES = 1 << 20


def main(given: Mapping[str, Any]) -> None:
    """Work as one rank, leave the outcome in the rank's folder, and end this process."""
    settings = read_settings(given)
    # Apart from files of ours: a function may make what it likes there, or remove all.
    working_directory = os.path.join(settings.directory, "cwd")
    os.makedirs(working_directory, exist_ok=True)
    os.chdir(working_directory)
    log = ChildLog(settings.log_fd)
    name_own_files(settings.token, own_folder_of(settings.directory, settings.token))
    for url, keys in settings.credentials.items():
        set_credentials(url, keys)
    reserved = socket.socket(fileno=settings.port_fd)
    code = 0
    metrics: dict[str, float] = {}
    params: Mapping[str, Any] = {}
    try:
        exchange = _open_exchange(settings)
        payload: GangPayload = pickle.loads(  # noqa: S301 (the caller's own code)
            Path(settings.payload).read_bytes()
        )
        params = payload.params
        Seeding().seed_all(settings.seed)
        context = _make_context(settings, payload, exchange, reserved, metrics)
        set_context(context)
        work_folder = Path(settings.directory, WORK_FOLDER)
        work_folder.mkdir()
        outcome = _describe(payload.work(context, str(work_folder)), context)
    except RankEnded as ended:
        code = ended.exit_code
        # No failure: how the process ends, and what its log ends with, says all there is to say.
        outcome = RankOutcome(status=PartitionStatus.FAILED.value, metrics=metrics)
    except BaseException as error:
        code = _exit_code(error)
        failure = describe_error(error, params)
        log.write(failure.traceback)
        if isinstance(error, PartwiseError):
            metrics |= error.metrics
        _keep_error(error, settings.directory)
        outcome = RankOutcome(
            status=PartitionStatus.FAILED.value,
            metrics=metrics,
            failure=asdict(failure),
        )
    # Before this process ends, and with it its connections: of these the other ranks die, and the
    # first who is known to have failed is to be the one who did.
    used = sorted(loaded_libraries())
    replace(outcome, libraries=used).write(settings.directory)
    log.restore()
    if code < 0:
        _end_by_signal(-code)
    # The end of a rank is no place for users' exit handlers and threads to linger in.
    os._exit(code & 0xFF)


def _open_exchange(settings: RankSettings) -> RankExchange:
    listener = socket.socket(fileno=settings.listener_fd) if settings.listener_fd >= 0 else None
    return RankExchange(
        settings.rank,
        settings.world_size,
        listener,
        settings.exchange_address,
        bytes.fromhex(settings.key),
    )


def _make_context(
    settings: RankSettings,
    payload: GangPayload,
    exchange: RankExchange,
    reserved: socket.socket,
    metrics: dict[str, float],
) -> RankContext:
    model_directory = Path(settings.directory, MODEL_FOLDER)
    model_directory.mkdir()
    scratch = Path(settings.directory, "scratch")
    scratch.mkdir()
    rows = Path(settings.directory, "rows")
    sources: dict[str, RankRows] = {}
    # In the same order on every rank, as opening may exchange data.
    for name, source in sorted(payload.sources.items()):
        folder = rows / str(len(sources))
        folder.mkdir(parents=True)
        sources[name] = source.open(settings.rank, settings.world_size, exchange, str(folder))
    checkpoints = None
    if settings.checkpoints:
        checkpoints = StoreCheckpoints(
            Store(**settings.store),
            settings.checkpoints,
            run_id=settings.run_id,
            generation=settings.generation,
            attempt=settings.attempt,
            directory=Path(settings.directory),
            resume_from=settings.resume_from,
            resume_sha256=settings.resume_sha256,
            key=next(iter(parse_keys(settings.checkpoint_key, "the rank's settings")), None),
        )
    return RankContext(
        rank=settings.rank,
        world_size=settings.world_size,
        local_rank=settings.local_rank,
        local_world_size=settings.local_world_size,
        node_rank=settings.node_rank,
        attempt=settings.attempt,
        addresses=tuple(settings.addresses),
        threads=settings.threads,
        gpus=tuple(settings.gpus),
        run_id=settings.run_id,
        seed=settings.seed,
        params=payload.params,
        model_directory=model_directory,
        scratch_directory=scratch,
        node_directory=Path(settings.node_directory),
        sources=sources,
        exchange=exchange,
        checkpoints=checkpoints,
        metrics=metrics,
        on_step=_step_writer(settings, payload.watched),
        reserved=reserved,
    )


def _step_writer(
    settings: RankSettings, watched: str
) -> Callable[[int, Mapping[str, float]], None] | None:
    """Return what leaves the watched metric of each step for the node; None: nobody asks."""
    if not watched or settings.rank > 0:
        return None
    path = Path(settings.directory, STEPS_FILE)

    def write(step: int, metrics: Mapping[str, float]) -> None:
        if watched in metrics:
            with path.open("a") as file:
                file.write(f"{step} {float(metrics[watched])!r}\n")

    return write


def _describe(produced: Produced, context: RankContext) -> RankOutcome:
    files = {}
    for number, (name, content) in enumerate(produced.files.items()):
        path = context.model_directory.parent / f"file-{number}"
        path.write_bytes(content)
        files[name] = str(path)
    if context.reported:
        path = context.model_directory.parent / REPORTED_FILE
        path.write_text(json.dumps(context.reported))
        files.setdefault(REPORTED_FILE, str(path))
    for name, path in context.outputs.items():
        if not path.is_file():
            raise InputError(f"The output {name!r} is to be {path}: there is no such file here.")
        # The node, which reads it, has another working directory.
        files[name] = str(path.absolute())
    own = (LOG_FILENAME, "" if produced.model is None else produced.model.filename)
    if taken := files.keys() & own:
        raise InputError(
            f"The file {min(taken)!r} of rank {context.rank} has the name of its log, or of the "
            "model: give it another."
        )
    return RankOutcome(
        status=produced.status.value,
        reason=storable_start(produced.reason),
        metrics=check_metrics({**context.metrics, **produced.metrics}),
        rows=context.row_counts.get("train"),
        model_file="" if produced.model is None else _model_file(produced.model, context),
        serde="" if produced.model is None else produced.model.serde,
        files=files,
    )


def _model_file(model: WrittenModel, context: RankContext) -> str:
    """Return the path of the model's file, which the node reads."""
    if isinstance(model.content, str):
        return model.content
    path = context.model_directory.parent / WORK_FOLDER / model.filename
    path.write_bytes(model.content)
    return str(path)


def _end_by_signal(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit) and isinstance(error.code, int) and 0 < error.code < 256:
        return error.code
    return 1


def _keep_error(error: BaseException, directory: str) -> None:
    """Leave the exception itself for the driver; one that cannot be pickled is text only."""
    with suppress(Exception):
        content = cloudpickle.dumps(error)  # type: ignore[no-untyped-call]
        # Some exceptions can be pickled and not read back: the driver is not to find that out.
        pickle.loads(content)  # noqa: S301 (what was written just now)
        if len(content) <= LARGEST_ERROR_BYTES:
            Path(directory, ERROR_FILE).write_bytes(content)
