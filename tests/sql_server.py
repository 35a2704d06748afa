"""A real PostgreSQL for the tests: Debian's, on a loopback port, gone with who it is for."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

USER, PASSWORD = "partwise", "canary of a password: /@%#"
QUOTED_PASSWORD = "canary%20of%20a%20password%3A%20%2F%40%25%23"
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Postgres:
    """A server at work; over TCP it asks for a password."""

    port: int
    folder: Path
    database: str = "postgres"

    @property
    def bare_uri(self) -> str:
        """The URI without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{self.database}"

    @property
    def uri(self) -> str:
        """The URI with the password in it."""
        return self.bare_uri.replace("@", f":{QUOTED_PASSWORD}@", 1)

    def execute(self, *statements: str) -> None:
        from adbc_driver_postgresql import dbapi

        with closing(dbapi.connect(self.uri, autocommit=True)) as connection:
            for statement in statements:
                with closing(connection.cursor()) as cursor:
                    cursor.execute(statement)

    def rows(self, query: str) -> list[Any]:
        from adbc_driver_postgresql import dbapi

        with (
            closing(dbapi.connect(self.uri, autocommit=True)) as connection,
            closing(connection.cursor()) as cursor,
        ):
            cursor.execute(query)
            return list(cursor.fetchall())

    def log(self) -> str:
        """All statements that the server was sent."""
        return (self.folder / "log").read_text()


@contextmanager
def postgres(initdb: str, auth: str = "scram-sha-256", **settings: str) -> Iterator[Postgres]:
    """A PostgreSQL server of our own, by the path of its program `initdb`."""
    # Its user has to reach it, which pytest's own folders forbid.
    folder = Path(tempfile.mkdtemp(prefix="partwise-postgres-"))
    port = free_port()
    # PostgreSQL refuses to work for root. It ends when we do, however that comes about.
    become = ["setpriv", "--pdeathsig", "INT"]
    (folder / "password").write_text(PASSWORD)
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in (folder, folder / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
        become += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = str(folder / "data")
    make = [initdb, "-D", data, "-U", USER, "-E", "UTF8", "--no-sync"]
    make += ["--auth-local=trust", f"--auth-host={auth}", f"--pwfile={folder / 'password'}"]
    serve = [
        str(Path(initdb).with_name("postgres")),
        "-D",
        data,
        "-p",
        str(port),
        "-k",
        str(folder),
    ]
    settings = {"listen_addresses": "127.0.0.1", "fsync": "off", **settings}
    for name, value in settings.items():
        serve += ["-c", f"{name}={value}"]
    try:
        subprocess.run([*become, *make], cwd=folder, check=True, capture_output=True)
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen([*become, *serve], cwd=folder, stdout=log, stderr=log) as process,
        ):
            try:
                ready = [str(Path(initdb).with_name("pg_isready"))]
                ready += ["-q", "-h", "127.0.0.1", "-p", str(port)]
                deadline = time.monotonic() + START_TIMEOUT_S
                while subprocess.run(ready).returncode:
                    if process.poll() is not None or time.monotonic() > deadline:
                        pytest.fail(f"no PostgreSQL:\n{(folder / 'log').read_text()}")
                    time.sleep(0.05)
                yield Postgres(port, folder)
            finally:
                process.send_signal(signal.SIGINT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
