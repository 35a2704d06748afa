"""Errors of gangs that only the gang itself looks at."""

from partwise.errors import PartwiseError


class PeerLostError(PartwiseError):
    """A rank failed because another one had ended; never the reason that a gang is given."""
