"""Errors of gangs that only the gang itself looks at."""

from partwise.errors import PeerLostError

__all__ = ["PeerLostError"]
