"""Apps that answer on loopback, in a thread of this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Answer at the URL that is given, from its first request on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Who connects before the app has started waits in the queue of the socket.
        config = uvicorn.Config(
            app, ws="none", log_config=None, timeout_graceful_shutdown=1, loop="asyncio"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
