"""Prefect's embedded server, as a process that ends when the one that started it does."""

import json
import os

from partwise.processes.starting import become_child


def main(argument: str) -> None:
    """Serve Prefect's API on a loopback port; the JSON has `parent`, a process ID, and `port`."""
    given = json.loads(argument)
    become_child(given["parent"])
    # Its database holds blocks, and the key that they are encrypted with.
    os.umask(0o077)
    import uvicorn

    uvicorn.run(
        "prefect.server.api.server:create_app",
        factory=True,
        host="127.0.0.1",
        port=given["port"],
        log_level="error",
        lifespan="on",
    )
