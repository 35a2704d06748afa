"""Prefect's own command, for a server on SQLite whose requests wait for each other to write.

Prefect 3.8 begins most of its transactions with BEGIN DEFERRED, which takes SQLite's lock at the
first write. Most read first; and when another one has written in between, SQLite refuses the write
at once ("database is locked") and does not wait: what was read is out of date.
The server then answers 503, which Prefect's clients repeat and browsers do not, so that a form was
sent and no flow run made. Prefect begins some of its transactions with BEGIN IMMEDIATE for this
reason; here all do, and wait for their turn, for up to 60 s.

There is no setting for it: this holds for the releases that pyproject.toml allows, and a test
looks at it. Of PostgreSQL nothing is changed.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from partwise.processes.garbage import collecting_rarely

with collecting_rarely():
    from prefect.cli import app
    from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
    from prefect.server.database.dependencies import set_database_config
    from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL
    from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

    # Known to automations of the server from here on.
    from partwise.blocks.mail import SmtpMail  # noqa: F401


class WaitingConfiguration(AioSqliteConfiguration):
    """How Prefect talks to SQLite, with the lock taken as a transaction begins."""

    @asynccontextmanager
    async def begin_transaction(
        self, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncGenerator[AsyncSessionTransaction, None]:
        """Begin a transaction, which waits until no other one writes."""
        is_within_another = SQLITE_BEGIN_MODE.get() is not None
        if is_within_another:
            # That one has the lock, and would never give it up while it waits for this one.
            async with super().begin_transaction(session, with_for_update) as transaction:
                yield transaction
            return
        async with super().begin_transaction(session, with_for_update=True) as transaction:
            await session.connection()
            # What is opened meanwhile inherits the mode, also to read only.
            token = SQLITE_BEGIN_MODE.set("DEFERRED")
            try:
                yield transaction
            finally:
                SQLITE_BEGIN_MODE.reset(token)


def main() -> None:
    """Run the `prefect` command of this process's arguments."""
    url = PREFECT_SERVER_DATABASE_CONNECTION_URL.value()
    if url.startswith("sqlite"):
        set_database_config(WaitingConfiguration(connection_url=url))
    # Most of it is imported only now: 13 % of the time until it answers went into collections.
    with collecting_rarely():
        app()


if __name__ == "__main__":
    main()
