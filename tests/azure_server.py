"""A server of Azure's blob storage of our own: Azurite, which Microsoft makes for tests."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.own_cluster import wait_for
from tests.ports import free_port

ACCOUNT = "devstoreaccount1"
CONTAINER = "tests"
# Published for tests: docs of Azurite, "Well-known storage account and key".
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_QUIET = ("--silent", "--disableTelemetry", "--inMemoryPersistence", "--skipApiVersionCheck")


@contextmanager
def azure_server(azurite: str) -> Iterator[str]:
    """Start one with a container, by the path of its program, and give its connection string."""
    from azure.storage.blob import BlobServiceClient

    port = free_port()
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
    )

    def listens() -> bool:
        with socket.socket() as asked:
            return asked.connect_ex(("127.0.0.1", port)) == 0

    command = [azurite, "--blobHost", "127.0.0.1", "--blobPort", str(port), *_QUIET]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            wait_for(listens, "Azurite does not answer")
            with BlobServiceClient.from_connection_string(connection) as client:
                client.create_container(CONTAINER)
            yield connection
        finally:
            server.terminate()
