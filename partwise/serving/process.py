"""A server as a process, or as several that share its port: uvicorn with uvloop and httptools."""

import gc
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from partwise.errors import InputError, PartwiseError
from partwise.formatting import counted, shortened
from partwise.processes.variables import variables_set
from partwise.serving.server_options import ServerOptions

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from uvicorn import Config

    from partwise.serving.served import PredictorOptions

_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which all processes count."""
_DOES_NOT_START = 3
"""The exit code by which uvicorn knows that another process would not start either."""
_LOG = logging.getLogger("uvicorn.error")
_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
        for name in ("uvicorn", "partwise.serving")
    },
}
"""Events go to stderr; stdout is the access log's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a server answers by, and how; each of its processes makes its app of it."""

    reference: str
    """Such as catalog://sales, or run://ID."""
    store: str
    predictor: "PredictorOptions"
    options: ServerOptions
    is_replacement: bool = False
    """Whether one like it has been served by this server already."""

    def app(self) -> "Starlette":
        """Return the app, its models loaded and warm.

        Raises:
            PartwiseError: The reference cannot be opened, or requests by its keys cannot be kept.
        """
        from partwise.serving.app import make_app
        from partwise.serving.kept_requests import KeepOptions, KeptRequests, check_may_be_kept
        from partwise.serving.predictor import Predictor
        from partwise.store.store import Store

        predictor = Predictor.open(self.reference, self.store, options=self.predictor)
        kept = None
        if fraction := self.options.keep_requests:
            check_may_be_kept(predictor.current.key_columns)
            store = Store.of(self.store)
            kept = KeptRequests(store, predictor.name, KeepOptions(fraction=fraction))
        app = make_app(predictor, self.options, kept)
        served = predictor.current
        _LOG.info("%s answers by %s.", served.reference, counted(served.n_keys, "model"))
        if self.predictor.format == "onnx":
            # Which takes a tenth of a second, and the first questions would wait for it.
            import onnxruntime  # noqa: F401
        # Otherwise each search for garbage goes through all keys and modules: a fifth of a request.
        gc.freeze()
        return app

    def __call__(self) -> "Starlette":
        """Return the app in one of several processes; end the process where there is none.

        The first ones tell the others so, whose reference cannot be opened either. One in the
        place of a process that died is tried again: the store may come back.
        """
        try:
            return self.app()
        except PartwiseError as error:
            _LOG.error("%s", shortened(str(error), 1000))
            sys.exit(1 if self.is_replacement else _DOES_NOT_START)


def serve(service: Service) -> bool:
    """Serve until SIGTERM or SIGINT; requests that have been begun are answered before the end.

    In one process, the signal is raised again after that.

    Args:
        service: What is served.

    Returns:
        Whether the server came to its end by a signal, and not since it could not start.

    Raises:
        PartwiseError: The reference cannot be opened (by one process), or the port is taken.
    """
    _check_installed()
    import uvicorn

    if service.options.processes > 1:
        with (
            tempfile.TemporaryDirectory(
                prefix="partwise-metrics-", ignore_cleanup_errors=True
            ) as folder,
            variables_set({_FOLDER_VARIABLE: folder}),
        ):
            return _serve_by_several(service)
    server = uvicorn.Server(_config(service.app, service.options))
    with _unless_taken(service.options):
        server.run()
    return server.started


def _config(app: Callable[[], Any], options: ServerOptions) -> "Config":
    import uvicorn

    return uvicorn.Config(
        app,
        factory=True,
        host=options.host,
        port=options.port,
        workers=options.processes,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=_LOGGING,
        access_log=False,
        server_header=False,
        # Who asks is who connects: behind a proxy, that is the proxy.
        proxy_headers=False,
        timeout_graceful_shutdown=int(options.timeout_s) + 5,
    )


def _serve_by_several(service: Service) -> bool:
    from prometheus_client.multiprocess import mark_process_dead
    from uvicorn.supervisors import Multiprocess

    class Processes(Multiprocess):
        """Counts what died as dead, and takes a later failure to start as one that passes."""

        has_started = False

        def keep_subprocess_alive(self) -> None:
            before = {process.pid for process in self.processes}
            super().keep_subprocess_alive()
            for pid in before - {process.pid for process in self.processes}:
                mark_process_dead(pid)  # type: ignore[no-untyped-call]
            if not self.has_started and all(each.is_ready() for each in self.processes):
                self.has_started = True
                _LOG.info("All %d processes are ready.", len(self.processes))
                # What is sent to a new process is this very object.
                self.config.app = replace(service, is_replacement=True)

    config = _config(service, service.options)
    with _unless_taken(service.options):
        listener = config.bind_socket()
    with listener:
        supervisor = Processes(config, [listener])
        supervisor.run()
    return supervisor.has_started


@contextmanager
def _unless_taken(options: ServerOptions) -> Iterator[None]:
    """Say in a sentence of ours that a port cannot be had."""
    try:
        yield
    except SystemExit as error:
        if error.code != _DOES_NOT_START:
            raise
        # uvicorn has logged the reason.
        raise InputError(
            f"Port {options.port} of {options.host} cannot be listened at: end what listens there, "
            "or pass another port."
        ) from error


def _check_installed() -> None:
    try:
        for name in ("httptools", "orjson", "prometheus_client", "starlette", "uvicorn", "uvloop"):
            import_module(name)
    except ImportError as error:
        raise InputError(
            f"A server needs the package {error.name}: pip install 'partwise[serve]'."
        ) from error
