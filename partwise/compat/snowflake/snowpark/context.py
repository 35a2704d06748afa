"""The session of a notebook."""

from partwise.compat.snowflake.snowpark.session import Session


def get_active_session() -> Session:
    """Return the active session; the first one is made here, as a notebook of theirs has one."""
    return Session.builder.getOrCreate()
