"""What a server refuses for reasons of its own.

PartwiseError
├── InputError (ValueError)
│   └── RequestError                   a request that cannot be read, with its HTTP status
├── OverloadedError                    too much work is waiting
├── DeadlineError (TimeoutError)       there is no answer within the time of a request
└── VersionNotServedError (LookupError)  another version than those that are loaded
"""

from partwise.errors import InputError, PartwiseError


class RequestError(InputError):
    """A request that cannot be read, whatever the model is.

    Args:
        message: A sentence for whoever sent it.
        status: Of HTTP: 400, 401, 408, 413, 415 or 422.
    """

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class OverloadedError(PartwiseError):
    """Too much work is waiting already; a later attempt may find room."""


class DeadlineError(PartwiseError, TimeoutError):
    """There is no answer within the time that a request has; what it began goes on for others."""


class VersionNotServedError(PartwiseError, LookupError):
    """Another version than those that the server has loaded."""
