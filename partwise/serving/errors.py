"""What a predictor refuses for the sake of its other users."""

from partwise.errors import PartwiseError


class OverloadedError(PartwiseError):
    """Too many questions wait already."""


class DeadlineError(PartwiseError):
    """The time for an answer is over."""


class VersionNotServedError(PartwiseError, LookupError):
    """Another version was asked for than those that are served."""
