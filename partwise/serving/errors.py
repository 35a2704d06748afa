"""Why a server does not answer now."""

from partwise.errors import PartwiseError


class OverloadedError(PartwiseError):
    """Too many questions wait: one more would not be answered in time."""


class DeadlineError(PartwiseError, TimeoutError):
    """The time for an answer is over."""


class VersionNotServedError(PartwiseError, LookupError):
    """Another version than those that are served was asked for."""
